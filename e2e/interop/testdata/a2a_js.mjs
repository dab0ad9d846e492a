// The official JavaScript SDK of A2A 1.0 against an agent of the hub, over JSON-RPC,
// HTTP+JSON and gRPC.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { randomUUID } from 'node:crypto';
import { SendMessageRequest, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const { AGENT_URL, AGENT_TOKEN } = process.env;
const options = { serviceParameters: { Authorization: `Bearer ${AGENT_TOKEN}` } };
const transports = {
  JSONRPC: new JsonRpcTransportFactory(),
  'HTTP+JSON': new RestTransportFactory(),
  GRPC: new GrpcTransportFactory(),
};

const request = (text, message = {}, configuration = {}) =>
  SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...message },
    configuration,
  });
const textOf = (parts) => parts.map((p) => p.content.value).join('');
const answer = (task) => task.artifacts.map((a) => textOf(a.parts)).join('');

async function refused(call) {
  await assert.rejects(call, (e) => !(e instanceof assert.AssertionError));
}

// The receiver of notifications.
const got = [];
let arrived = () => {};
const receiver = createServer((req, res) => {
  let body = '';
  req.on('data', (chunk) => (body += chunk));
  req.on('end', () => {
    got.push({ headers: req.headers, body: JSON.parse(body) });
    res.writeHead(204).end();
    arrived();
  });
}).listen(0, '127.0.0.1');
await once(receiver, 'listening');
const receiverURL = `http://127.0.0.1:${receiver.address().port}/`;

async function plain(client) {
  let task = await client.sendMessage(request('hi'), options);
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(answer(task), 'ANSWER hi');

  task = await client.sendMessage(request('ask'), options);
  assert.equal(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  assert.equal(textOf(task.status.message.parts), 'which?');
  task = await client.sendMessage(request('that', { taskId: task.id, contextId: task.contextId }), options);
  assert.equal(answer(task), 'you want that');

  task = await client.sendMessage(request('hold', {}, { returnImmediately: true }), options);
  assert.equal((await client.getTask({ id: task.id, tenant: '' }, options)).id, task.id);
  const page = await client.listTasks(
    { tenant: '', contextId: task.contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: '' }, options);
  assert.deepEqual(page.tasks.map((t) => t.id), [task.id]);
  task = await client.cancelTask({ id: task.id, tenant: '' }, options);
  assert.equal(task.status.state, TaskState.TASK_STATE_CANCELED);
  await refused(client.getTask({ id: 'none', tenant: '' }, options));
}

async function streamed(client) {
  const events = [];
  for await (const e of client.sendMessageStream(request('stream'), options)) events.push(e.payload);
  assert.equal(events[0].$case, 'task');
  const chunks = events.filter((e) => e.$case === 'artifactUpdate').map((e) => textOf(e.value.artifact.parts));
  assert.equal(answer(events[0].value) + chunks.join(''), 'one two three');
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED);

  // A connection is dropped mid-stream; the task is followed again until somebody
  // cancels it.
  let task;
  for await (const e of client.sendMessageStream(request('hold'), options)) {
    task = e.payload.value;
    break;
  }
  let last;
  for await (const e of client.resubscribeTask({ id: task.id, tenant: '' }, options)) {
    if (e.payload.$case === 'task') {
      assert.equal(e.payload.value.id, task.id);
      await client.cancelTask({ id: task.id, tenant: '' }, options);
    }
    last = e.payload;
  }
  assert.equal(last.value.status.state, TaskState.TASK_STATE_CANCELED);

  // Of a task that is not there, and of one that has ended.
  const followed = async (id) => {
    for await (const e of client.resubscribeTask({ id, tenant: '' }, options)) assert.fail(JSON.stringify(e));
  };
  await assert.rejects(followed('none'), /no such task/);
  await assert.rejects(followed(task.id), /has ended/);
}

async function notified(client) {
  got.length = 0;
  const token = `tok-${randomUUID()}`;
  const credentials = `cred-${randomUUID()}`;
  const push = { id: 'mine', url: receiverURL, token, authentication: { scheme: 'Bearer', credentials } };
  const task = await client.sendMessage(request('ask', {}, { taskPushNotificationConfig: push }), options);
  const kept = await client.getTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: 'mine' }, options);
  assert.equal(kept.url, receiverURL);
  assert.ok(!kept.token && !kept.authentication?.credentials);
  const other = await client.createTaskPushNotificationConfig(
    { tenant: '', id: '', taskId: task.id, url: `${receiverURL}other`, token: '', authentication: undefined }, options);
  const listed = await client.listTaskPushNotificationConfig(
    { tenant: '', taskId: task.id, pageSize: 0, pageToken: '' }, options);
  assert.deepEqual(listed.configs.map((c) => c.id).sort(), ['mine', other.id].sort());
  await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: other.id }, options);
  await client.sendMessage(request('that', { taskId: task.id, contextId: task.contextId }), options);

  const ended = () => got.some((n) => n.body.statusUpdate?.status.state === 'TASK_STATE_COMPLETED');
  while (!ended()) await new Promise((resolve) => (arrived = resolve));
  for (const { headers } of got) {
    assert.equal(headers['content-type'], 'application/a2a+json');
    assert.equal(headers.authorization, `Bearer ${credentials}`);
    assert.equal(headers['x-a2a-notification-token'], token);
    assert.equal(headers['a2a-notification-token'], token);
    assert.ok(headers['webhook-signature'] && headers['webhook-id']);
  }
}

for (const [name, transport] of Object.entries(transports)) {
  const factory = new ClientFactory({ transports: [transport], preferredTransports: [name] });
  for (const check of [plain, streamed, notified]) {
    try {
      await check(await factory.createFromUrl(`${AGENT_URL}/`, '.well-known/agent-card.json'));
    } catch (e) {
      throw new Error(`${check.name} over ${name}: ${e.message}`, { cause: e });
    }
  }
}
process.exit(0); // gRPC keeps its connection
