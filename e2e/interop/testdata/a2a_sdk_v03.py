"""The official Python SDK of A2A 0.3 against an agent of the hub, over JSON-RPC and
over HTTP+JSON."""

import asyncio
import os
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    Message,
    MessageSendConfiguration,
    Part,
    Role,
    TaskIdParams,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)

URL = os.environ["AGENT_URL"]
CREDENTIAL = {"Authorization": "Bearer " + os.environ["AGENT_TOKEN"]}


def say(text, **more):
    parts = [
        Part(root=TextPart(text=text)),
        Part(root=DataPart(data={"n": 7})),
        Part(root=FilePart(file=FileWithBytes(bytes="/+8=", name="x.bin", mime_type="a/b"))),
    ]
    return Message(role=Role.user, message_id=str(uuid.uuid4()), parts=parts, **more)


def text(message):
    return "".join(p.root.text for p in message.parts if p.root.kind == "text")


async def send(client, message, **configuration):
    """The task and everything that was streamed of it."""
    task, updates = None, []
    async for event in client.send_message(message, configuration=MessageSendConfiguration(**configuration) if configuration else None):
        task, update = event
        updates.append(update)
    return task, updates


async def plain(client):
    task, _ = await send(client, say("hi"))
    assert task.status.state == TaskState.completed, task
    assert text(task.artifacts[0]) == "ANSWER hi", task
    assert [m.role for m in task.history] == [Role.user, Role.agent], task.history
    assert text(task.history[-1]) == "ANSWER hi", task.history
    assert task.history[0].parts[2].root.file.bytes == "/+8=", task.history

    task, _ = await send(client, say("fail"))
    assert task.status.state == TaskState.failed, task
    assert text(task.history[-1]) == "no such file", task.history

    task, _ = await send(client, say("ask", context_id="mine"))
    assert task.status.state == TaskState.input_required and task.context_id == "mine", task
    assert text(task.status.message) == "which?", task
    task, _ = await send(client, say("that", task_id=task.id, context_id=task.context_id))
    assert task.status.state == TaskState.completed, task
    assert [text(m) for m in task.history] == ["ask", "which?", "that", "you want that"], task.history

    task, _ = await send(client, say("hi"), history_length=1)
    assert [text(m) for m in task.history] == ["ANSWER hi"], task.history

    task, _ = await send(client, say("hold"), blocking=False)
    assert task.status.state in (TaskState.submitted, TaskState.working), task
    assert (await client.get_task(TaskQueryParams(id=task.id))).id == task.id
    task = await client.cancel_task(TaskIdParams(id=task.id))
    assert task.status.state == TaskState.canceled, task
    for refused in (
        client.get_task(TaskQueryParams(id="none")),
        client.cancel_task(TaskIdParams(id="none")),
    ):
        try:
            raise AssertionError(await refused)
        except A2AClientError as e:
            assert "not found" in str(e).lower() or "404" in str(e), e


async def streamed(client):
    task, updates = await send(client, say("stream"))
    assert task.status.state == TaskState.completed, task
    assert text(task.artifacts[0]) == "one two three", task
    if updates != [None]:  # a fast agent's stream is the task alone
        assert updates[-1].final, updates
        assert [u for u in updates if u and u.kind == "status-update" and u.final] == updates[-1:], updates

    task, updates = await send(client, say("ask"))
    assert task.status.state == TaskState.input_required and (updates == [None] or updates[-1].final), updates
    task, updates = await send(client, say("that", task_id=task.id, context_id=task.context_id))
    assert task.status.state == TaskState.completed and (updates == [None] or updates[-1].final), updates

    # A stream is left, and followed again until somebody cancels the task.
    async for task, _ in client.send_message(say("hold")):
        break
    last = None
    async for followed, update in client.resubscribe(TaskIdParams(id=task.id)):
        assert followed.id == task.id, followed
        if update is None:
            await client.cancel_task(TaskIdParams(id=task.id))
        last = update
    assert last.final and last.status.state == TaskState.canceled, last


async def main():
    async with httpx.AsyncClient(headers=CREDENTIAL, timeout=60) as http:
        card = await A2ACardResolver(http, URL, agent_card_path="/.well-known/agent.json").get_agent_card()
        assert card.url == URL and card.protocol_version == "0.3.0", card
        for transport in (TransportProtocol.jsonrpc, TransportProtocol.http_json):
            for streaming, check in ((False, plain), (True, streamed)):
                client = ClientFactory(
                    ClientConfig(
                        httpx_client=http,
                        streaming=streaming,
                        supported_transports=[transport],
                        use_client_preference=True,
                    )
                ).create(card)
                await check(client)
        assert (await client.get_card()).name == card.name


asyncio.run(main())
