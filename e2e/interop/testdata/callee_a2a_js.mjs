// An agent that is made with the official JavaScript SDK of A2A 1.0: JSON-RPC at /rpc,
// HTTP+JSON at /rest. It says on its first line where it is.
import { randomUUID } from 'node:crypto';
import express from 'express';
import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';

const WORKING = 2, COMPLETED = 3, FAILED = 4, CANCELED = 5, INPUT_REQUIRED = 6;

const part = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });
const words = (message) => message.parts.map((p) => (p.content?.$case === 'text' ? p.content.value : '')).join('');

class Agent {
  held = new Map();

  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const said = words(userMessage);
    const message = (text) => ({
      messageId: randomUUID(), contextId, taskId, role: 2, parts: [part(text)], metadata: undefined, extensions: [], referenceTaskIds: [],
    });
    const status = (state, text) =>
      bus.publish({
        kind: 'statusUpdate',
        data: { taskId, contextId, status: { state, message: text ? message(text) : undefined, timestamp: new Date().toISOString() }, metadata: undefined },
      });
    const artifact = (id, text, append, lastChunk) =>
      bus.publish({
        kind: 'artifactUpdate',
        data: {
          taskId, contextId, append, lastChunk, metadata: undefined,
          artifact: { artifactId: id, name: '', description: '', parts: [part(text)], metadata: undefined, extensions: [] },
        },
      });
    const before = context.task?.history ?? [];
    bus.publish({
      kind: 'task',
      data: context.task ?? {
        id: taskId, contextId, status: { state: 1, message: undefined, timestamp: new Date().toISOString() },
        history: [userMessage], artifacts: [], metadata: undefined,
      },
    });
    if (said !== 'ask' && before.some((m) => words(m) === 'ask')) {
      artifact('out', 'you want ' + said, false, true);
      status(COMPLETED);
    } else if (said === 'ask') {
      status(INPUT_REQUIRED, 'which?');
    } else if (said === 'fail') {
      status(FAILED, 'no such file');
    } else if (said === 'hold') {
      status(WORKING, 'at it');
      await new Promise((done) => this.held.set(taskId, done));
      status(CANCELED);
    } else if (said === 'stream') {
      status(WORKING);
      ['one ', 'two ', 'three'].forEach((chunk, i) => artifact('out', chunk, i > 0, i === 2));
      status(COMPLETED);
    } else {
      artifact('out', 'ANSWER ' + said, false, true);
      status(COMPLETED);
    }
    bus.finished();
  }

  async cancelTask(taskId) {
    this.held.get(taskId)?.();
  }
}

const app = express();
const server = app.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const bindings = (process.env.BINDINGS ?? 'JSONRPC').split(',');
  const places = { JSONRPC: url + '/rpc', 'HTTP+JSON': url + '/rest' };
  const card = {
    name: 'JavaScript agent', description: 'Answers.', version: '1.0.0', provider: undefined, documentationUrl: '', iconUrl: '',
    capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
    securitySchemes: {}, securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], signatures: [],
    skills: [{ id: 'answer', name: 'Answer', description: 'Answers', tags: ['test'], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
    supportedInterfaces: bindings.map((b) => ({ url: places[b], protocolBinding: b, protocolVersion: '1.0', tenant: '' })),
  };
  const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: handler }));
  app.use('/rpc', jsonRpcHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
  app.use('/rest', restHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
  console.log(url);
});
