/**
 * Drives the official JavaScript client (@a2a-js/sdk 1.x) for the tests in tests/interop.
 *
 * Started by tests/interop/programs.py inside a folder that holds nothing but the official SDK. Reads one JSON command a line from
 * standard input and carries all of them out concurrently; see programs.py for the protocol.
 */
import { createInterface } from 'node:readline';
import {
  AgentCard,
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  ListTasksResponse,
  SendMessageRequest,
  SendMessageResponse,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
} from '@a2a-js/sdk';
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';

const clients = new Map();
const calls = new Map();

const emit = (id, fields) => process.stdout.write(JSON.stringify({ id, ...fields }) + '\n');

function authenticatingFetch(token) {
  return createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => ({ Authorization: `Bearer ${token}` }),
    shouldRetryWithHeaders: async () => undefined,
  });
}

function clientFor({ url, token, binding }) {
  const key = JSON.stringify([url, token, binding]);
  if (!clients.has(key)) {
    const fetchImpl = authenticatingFetch(token);
    const transport = binding === 'JSONRPC' ? JsonRpcTransportFactory : RestTransportFactory;
    const factory = new ClientFactory({
      transports: [new transport({ fetchImpl })],
      cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
    });
    clients.set(key, factory.createFromUrl(url.replace(/\/*$/, '/'), '.well-known/agent-card.json'));
  }
  return clients.get(key);
}

/** The client unwraps the answer to a message; put the wrapper back, so that all programs print the same. */
function wrapped(result) {
  const kind = 'messageId' in result ? 'message' : 'task';
  return SendMessageResponse.toJSON({ payload: { $case: kind, value: result } });
}

async function* results(command, signal) {
  const { op, request } = command;
  if (op === 'card') {
    const resolver = new DefaultAgentCardResolver({ fetchImpl: authenticatingFetch(command.token) });
    const card = await resolver.resolve(command.url.replace(/\/*$/, '/'), '.well-known/agent-card.json');
    yield AgentCard.toJSON(AgentCard.fromJSON(card)); // the resolver gives the JSON that came, unknown fields and all
    return;
  }
  const client = await clientFor(command);
  const options = { signal };
  switch (op) {
    case 'send':
      yield wrapped(await client.sendMessage(SendMessageRequest.fromJSON(request), options));
      return;
    case 'stream':
      for await (const item of client.sendMessageStream(SendMessageRequest.fromJSON(request), options)) {
        yield StreamResponse.toJSON(item);
      }
      return;
    case 'subscribe':
      for await (const item of client.resubscribeTask(SubscribeToTaskRequest.fromJSON(request), options)) {
        yield StreamResponse.toJSON(item);
      }
      return;
    case 'get':
      yield Task.toJSON(await client.getTask(GetTaskRequest.fromJSON(request), options));
      return;
    case 'list':
      yield ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON(request), options));
      return;
    case 'cancel':
      yield Task.toJSON(await client.cancelTask(CancelTaskRequest.fromJSON(request), options));
      return;
    default:
      throw new Error(`unknown op ${op}`);
  }
}

async function carryOut(command) {
  const abort = new AbortController();
  calls.set(command.id, abort);
  try {
    for await (const item of results(command, abort.signal)) {
      emit(command.id, { item });
    }
    emit(command.id, { end: true });
  } catch (error) {
    if (abort.signal.aborted) {
      emit(command.id, { end: true, stopped: true });
    } else {
      const { name, reason = 'UNKNOWN', message } = error;
      emit(command.id, { error: { type: name, reason, message: `${message} ${error.cause ?? ''}`.trim() } });
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.op === 'stop') {
    calls.get(command.target).abort();
  } else {
    void carryOut(command);
  }
}
process.exit(0);
