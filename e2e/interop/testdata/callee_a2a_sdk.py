"""An agent that is made with the official Python SDK of A2A 1.0, as its users would make
one: JSON-RPC at /, HTTP+JSON at /rest, gRPC on a port of its own if GRPC is set; clients
of 0.3 are served, too, if COMPAT is. It says on its first line where it is."""

import asyncio
import os
import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.helpers import get_message_text, new_task_from_user_message, new_text_part
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

BINDINGS = os.environ.get("BINDINGS", "JSONRPC").split(",")


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        said = get_message_text(context.message)
        message = lambda text: updater.new_agent_message([new_text_part(text)])
        asked = any(get_message_text(m) == "ask" for m in task.history) and said != "ask"
        if asked:
            await updater.add_artifact([new_text_part("you want " + said)])
            await updater.complete()
        elif said == "ask":
            await updater.requires_input(message("which?"))
        elif said == "fail":
            await updater.failed(message("no such file"))
        elif said == "hold":
            await updater.start_work(message("at it"))
            await asyncio.sleep(600)
        elif said == "stream":
            await updater.start_work()
            for i, chunk in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact([new_text_part(chunk)], artifact_id="out", append=i > 0, last_chunk=i == 2)
            await updater.complete()
        else:
            await updater.start_work()
            await updater.add_artifact([new_text_part("ANSWER " + said)])
            await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main():
    sock = socket.socket()
    sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    url = "http://127.0.0.1:%d" % sock.getsockname()[1]
    places = {"JSONRPC": url + "/", "HTTP+JSON": url + "/rest"}
    card = AgentCard(
        name="Python agent",
        description="Answers.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=os.environ.get("STREAMING", "1") == "1"),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="answer", name="Answer", description="Answers what is asked", tags=["test"])],
        supported_interfaces=[AgentInterface(protocol_binding=b, url=places[b], protocol_version="1.0") for b in BINDINGS],
    )
    handler = DefaultRequestHandlerV2(agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/") + create_rest_routes(handler, path_prefix="/rest")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    print(url, flush=True)
    await server.serve(sockets=[sock])


asyncio.run(main())
