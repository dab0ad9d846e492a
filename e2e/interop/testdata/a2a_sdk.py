"""The official Python SDK of A2A 1.0 against an agent of the hub, over JSON-RPC,
HTTP+JSON and gRPC."""

import asyncio
import http.server
import json
import os
import threading
import uuid

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientCallInterceptor, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.helpers import get_message_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError

URL = os.environ["AGENT_URL"]
TOKEN = os.environ["AGENT_TOKEN"]


class Credentials(ClientCallInterceptor):
    """Sends the credential with every call."""

    async def before(self, args):
        args.context = args.context or ClientCallContext()
        args.context.service_parameters = (args.context.service_parameters or {}) | {"Authorization": "Bearer " + TOKEN}

    async def after(self, args):
        pass


class Receiver(http.server.BaseHTTPRequestHandler):
    """Collects notifications."""

    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Receiver.got.append((self.headers, json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


def request(text, **more):
    configuration = more.pop("configuration", {})
    r = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER, **more))
    for name, value in configuration.items():
        if name == "push":
            r.configuration.task_push_notification_config.CopyFrom(value)
        else:
            setattr(r.configuration, name, value)
    return r


async def send(client, text, **more):
    """Everything that a send gives."""
    return [event async for event in client.send_message(request(text, **more))]


async def sent(client, text, **more):
    """The task that a send without a stream gives."""
    (event,) = await send(client, text, **more)
    return event.task


def answer(task):
    return "".join(p.text for a in task.artifacts for p in a.parts)


async def refused(call):
    try:
        result = await call
    except (A2AError, A2AClientError, grpc.RpcError) as e:
        return e
    raise AssertionError(result)


async def plain(client):
    task = await sent(client, "hi")
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
    assert answer(task) == "ANSWER hi", task

    task = await sent(client, "ask")
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task
    assert get_message_text(task.status.message) == "which?", task
    task = await sent(client, "that", task_id=task.id, context_id=task.context_id)
    assert answer(task) == "you want that", task

    task = await sent(client, "hold", configuration={"return_immediately": True})
    assert (await client.get_task(GetTaskRequest(id=task.id))).id == task.id
    page = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
    assert [t.id for t in page.tasks] == [task.id] and page.total_size == 1, page
    task = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert task.status.state == TaskState.TASK_STATE_CANCELED, task
    for call in (client.get_task(GetTaskRequest(id="none")), client.cancel_task(CancelTaskRequest(id=task.id + "x"))):
        assert "no such task" in repr(await refused(call))


async def streamed(client):
    events = await send(client, "stream")
    assert events[0].HasField("task") and not any(e.HasField("task") for e in events[1:]), events
    chunks = [p.text for e in events if e.HasField("artifact_update") for p in e.artifact_update.artifact.parts]
    assert answer(events[0].task) + "".join(chunks) == "one two three", events
    last = events[-1].task if len(events) == 1 else events[-1].status_update  # a fast agent's stream is the task alone
    assert last.status.state == TaskState.TASK_STATE_COMPLETED, events

    # A connection is dropped mid-stream; the task is followed again until somebody
    # cancels it.
    stream = client.send_message(request("hold"))
    async for event in stream:
        task = event.task
        break
    await stream.aclose()
    last = None
    async for event in client.subscribe(SubscribeToTaskRequest(id=task.id)):
        if event.HasField("task"):
            assert event.task.id == task.id, event
            await client.cancel_task(CancelTaskRequest(id=task.id))
        last = event
    assert last.status_update.status.state == TaskState.TASK_STATE_CANCELED, last

    async def followed(task_id):
        return [event async for event in client.subscribe(SubscribeToTaskRequest(id=task_id))]

    # Of a task that is not there, and of one that has ended.
    error = await refused(followed("none"))
    assert isinstance(error, TaskNotFoundError) and "no such task" in repr(error), error
    error = await refused(followed(task.id))
    assert isinstance(error, UnsupportedOperationError), error


async def notified(client, receiver):
    Receiver.got.clear()
    push = TaskPushNotificationConfig(id="mine", url=receiver, token="tok-" + uuid.uuid4().hex)
    push.authentication.scheme = "Bearer"
    push.authentication.credentials = "cred-" + uuid.uuid4().hex
    task = await sent(client, "ask", configuration={"push": push})
    kept = await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine"))
    assert kept.url == receiver and not kept.token and not kept.authentication.credentials, kept
    other = await client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task.id, url=receiver + "other"))
    assert other.id, other
    listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task.id))
    assert {c.id for c in listed.configs} == {"mine", other.id}, listed
    await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=other.id))
    await refused(client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task.id, id=other.id)))
    await sent(client, "that", task_id=task.id, context_id=task.context_id)

    def ended():
        return [b for _, b in Receiver.got if b.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED"]

    async with asyncio.timeout(30):
        while not ended():
            await asyncio.sleep(0.05)
    for headers, body in Receiver.got:
        assert headers["Content-Type"] == "application/a2a+json", headers
        assert headers["Authorization"] == "Bearer " + push.authentication.credentials, headers
        assert headers["X-A2A-Notification-Token"] == push.token == headers["A2A-Notification-Token"], headers
        assert headers["webhook-signature"] and headers["webhook-id"], headers
        assert len(body) == 1, body


async def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver = f"http://127.0.0.1:{server.server_port}/"
    async with httpx.AsyncClient(timeout=60) as http_client:
        card = await A2ACardResolver(http_client, URL).get_agent_card()
        assert {i.protocol_binding for i in card.supported_interfaces} >= {"JSONRPC", "HTTP+JSON", "GRPC"}, card
        for binding in ("JSONRPC", "HTTP+JSON", "GRPC"):
            for streaming, check in ((False, plain), (True, streamed), (False, lambda c: notified(c, receiver))):
                config = ClientConfig(
                    httpx_client=http_client,
                    grpc_channel_factory=grpc.aio.insecure_channel,
                    streaming=streaming,
                    supported_protocol_bindings=[binding],
                    use_client_preference=True,
                )
                try:
                    await check(ClientFactory(config).create(card, [Credentials()]))
                except BaseException as e:
                    e.add_note(f"over {binding}, streaming: {streaming}")
                    raise
    server.shutdown()


asyncio.run(main())
