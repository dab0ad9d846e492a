"""An agent that is made with FastA2A, version 0.5.0 as Agent Zero has it inside, or a newer
one. It says on its first line where it is."""

import asyncio
import contextlib
import os
import socket
import uuid

import uvicorn
from fasta2a import FastA2A, Worker, schema
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

NEWEST = hasattr(schema, "StreamMessageResponse")


def text_part(text):
    return {"text": text} if NEWEST else {"kind": "text", "text": text}


def reply(text):
    message = {"role": "agent", "message_id": str(uuid.uuid4()), "parts": [text_part(text)]}
    return message if NEWEST else {"kind": "message", **message}


class Agent(Worker):
    async def run_task(self, params):
        task = await self.storage.load_task(params["id"])
        await self.storage.update_task(task["id"], state="working")
        said = "".join(p.get("text", "") for p in task["history"][-1]["parts"])
        if said == "fail":
            await self.storage.update_task(task["id"], state="failed")
            return
        if said.startswith("hold"):
            await asyncio.sleep(float(os.environ.get("HOLD", "600")))
        answer = "ANSWER " + said
        if os.environ.get("HISTORY") == "1":  # as Agent Zero answers
            await self.storage.update_task(task["id"], state="completed", new_messages=[reply(answer)])
            return
        await self.storage.update_task(
            task["id"], state="completed", new_messages=[reply(answer)],
            new_artifacts=[{"artifact_id": str(uuid.uuid4()), "name": "answer", "parts": [text_part(answer)]}])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


storage, broker = InMemoryStorage(), InMemoryBroker()
worker = Agent(broker=broker, storage=storage)


@contextlib.asynccontextmanager
async def lifespan(app):
    async with app.task_manager, worker.run():
        yield


async def main():
    sock = socket.socket()
    sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    app = FastA2A(storage=storage, broker=broker, name="FastA2A agent", lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    print("http://127.0.0.1:%d" % sock.getsockname()[1], flush=True)
    await server.serve(sockets=[sock])


asyncio.run(main())
