"""The client of FastA2A against an agent of the hub: version 0.5, which Agent Zero
has inside, and the newest, whose messages look different."""

import asyncio
import os

import httpx
from fasta2a import schema
from fasta2a.client import A2AClient

URL = os.environ["AGENT_URL"]
CREDENTIAL = {"Authorization": "Bearer " + os.environ["AGENT_TOKEN"]}
NEWEST = hasattr(schema, "StreamMessageResponse")


def say(text, **more):
    part = {"text": text} if NEWEST else {"kind": "text", "text": text}
    message = {"role": "user", "message_id": "m", "parts": [part], **more}
    return message if NEWEST else {"kind": "message", **message}


def words(message):
    return "".join(p.get("text", "") for p in message["parts"])


async def send(client, message):
    response = await client.send_message(message, configuration={"accepted_output_modes": ["text/plain"], "blocking": True})
    result = response["result"]
    return result["task"] if NEWEST else result


async def main():
    async with httpx.AsyncClient(headers=CREDENTIAL, timeout=30) as http:
        client = A2AClient(URL, http_client=http)
        task = await send(client, say("hi"))
        assert task["status"]["state"] == "completed", task
        assert [m["role"] for m in task["history"]] == ["user", "agent"], task
        assert words(task["history"][-1]) == "ANSWER hi", task
        assert words(task["artifacts"][0]) == "ANSWER hi", task

        polled = (await client.get_task(task["id"]))["result"]
        assert polled["id"] == task["id"] and words(polled["history"][-1]) == "ANSWER hi", polled

        task = await send(client, say("fail", context_id=task["context_id"]))
        assert task["status"]["state"] == "failed", task
        assert words(task["history"][-1]) == "no such file", task

        task = await send(client, say("ask"))
        assert task["status"]["state"] == "input-required", task
        task = await send(client, say("that", task_id=task["id"], context_id=task["context_id"]))
        assert task["status"]["state"] == "completed" and words(task["history"][-1]) == "you want that", task

        gone = await client.get_task("none")
        assert gone["error"]["code"] == -32001 and gone["error"]["message"] == "Task not found", gone

        if NEWEST:
            await stream(client)


async def stream(client):
    got = []
    async for event in client.stream_message(say("stream")):
        got.append(event["result"])
    assert "task" in got[0], got
    chunks = "".join(words(a) for a in got[0]["task"].get("artifacts", []))  # it may have the first ones already
    chunks += "".join(words(e["artifact_update"]["artifact"]) for e in got if "artifact_update" in e)
    assert chunks == "one two three", got
    last = got[-1].get("status_update") or got[-1]["task"]  # a fast agent's stream is the task alone
    assert last["status"]["state"] == "completed", got
    card = httpx.get(URL + "/.well-known/agent-card.json").json()
    schema.agent_card_ta.validate_python(card)


asyncio.run(main())
