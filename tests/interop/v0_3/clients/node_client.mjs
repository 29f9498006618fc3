/**
 * Drives the official JavaScript client of A2A 0.3 (@a2a-js/sdk 0.3.x) for the tests in tests/interop/v0_3.
 *
 * Started by tests/interop/programs.py inside a folder that holds nothing but the official SDK. Reads one JSON command a line from
 * standard input and carries all of them out concurrently; see programs.py for the protocol.
 */
import { createInterface } from 'node:readline';
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';

const CODES = {
  TaskNotFoundError: '-32001',
  TaskNotCancelableError: '-32002',
  PushNotificationNotSupportedError: '-32003',
  UnsupportedOperationError: '-32004',
};
const SERVICE_PARAMETERS = { 'X-A2A-Extensions': 'https://waystation.dev/ext/resume/v1' };

const clients = new Map();
const calls = new Map();

const emit = (id, fields) => process.stdout.write(JSON.stringify({ id, ...fields }) + '\n');

function clientFor({ url, token, binding }) {
  const key = JSON.stringify([url, token, binding]);
  if (!clients.has(key)) {
    const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
      headers: async () => ({ Authorization: `Bearer ${token}` }),
      shouldRetryWithHeaders: async () => undefined,
    });
    const transport = binding === 'JSONRPC' ? JsonRpcTransportFactory : RestTransportFactory;
    const factory = new ClientFactory({
      transports: [new transport({ fetchImpl })],
      cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
    });
    clients.set(key, factory.createFromUrl(url.replace(/\/*$/, '/'), '.well-known/agent-card.json'));
  }
  return clients.get(key);
}

const UNARY = {
  send: (client, request, options) => client.sendMessage(request, options),
  get: (client, request, options) => client.getTask(request, options),
  cancel: (client, request, options) => client.cancelTask(request, options),
  card: (client, _request, options) => client.getAgentCard(options),
  set_config: (client, request, options) => client.setTaskPushNotificationConfig(request, options),
  get_config: (client, request, options) => client.getTaskPushNotificationConfig(request, options),
  list_configs: (client, request, options) => client.listTaskPushNotificationConfig(request, options),
  delete_config: (client, request, options) => client.deleteTaskPushNotificationConfig(request, options),
};
const STREAMS = {
  stream: (client, request, options) => client.sendMessageStream(request, options),
  subscribe: (client, request, options) => client.resubscribeTask(request, options),
};

async function* results({ op, request, ...command }, signal) {
  const client = await clientFor(command);
  const options = { signal, serviceParameters: SERVICE_PARAMETERS };
  if (op in STREAMS) {
    yield* STREAMS[op](client, request, options);
  } else {
    yield (await UNARY[op](client, request, options)) ?? {};
  }
}

/** The class of the error, or the code that its text names where the client has no class for it. */
function codeOf(error) {
  const named = [error, error.cause].map((one) => one && CODES[one.constructor.name.replace('JSONRPC', '')]);
  return named.find(Boolean) ?? error.message?.match(/Code: (-?\d+)/)?.[1] ?? 'UNKNOWN';
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
      const type = error.constructor.name;
      emit(command.id, { error: { type, reason: codeOf(error), message: `${error.message} ${error.cause ?? ''}`.trim() } });
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
