// An older A2A client as legacy-tasks.md describes it: plain http, no dependencies, naive in every way named there.
//
//   node client.mjs BASE_URL [--token T] discover | submit JSON | status ID | cancel ID | stream ID [EVENTS]
//
// prints one line of JSON per answer or event, and {"error": text} when the client throws. `stream` ends with the
// response, or after EVENTS events.
import http from 'node:http';
import https from 'node:https';

const MAX_BYTES = 10 * 1024 * 1024;

export class LegacyClient {
  constructor(baseUrl, { token } = {}) {
    this.base = new URL(baseUrl);
    this.token = token;
  }

  discover() { return this.call('GET', '/.well-known/agent.json'); }
  submitTask(submission) { return this.call('POST', '/tasks', submission); }
  getTaskStatus(id) { return this.call('GET', `/tasks/${encodeURIComponent(id)}`); }
  cancelTask(id) { return this.call('POST', `/tasks/${encodeURIComponent(id)}/cancel`); }

  request(method, path, headers = {}) {
    const transport = this.base.protocol === 'https:' ? https : http;
    const prefix = this.base.pathname.replace(/\/$/, '');
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    return transport.request({ hostname: this.base.hostname, port: this.base.port, method, path: prefix + path, headers });
  }

  call(method, path, body) {
    return new Promise((resolve, reject) => {
      const payload = body === undefined ? undefined : JSON.stringify(body);
      const headers = payload === undefined
        ? (method === 'POST' ? { 'Content-Length': 0 } : {})
        : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(payload) };
      const request = this.request(method, path, headers);
      request.on('response', (response) => {
        const chunks = [];
        let size = 0;
        response.on('data', (chunk) => {
          size += chunk.length;
          if (size > MAX_BYTES) { request.destroy(); reject(new Error('Response too large')); }
          chunks.push(chunk);
        });
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          if (response.statusCode >= 400) reject(new Error(`HTTP ${response.statusCode}: ${text.slice(0, 200)}`));
          else if (response.statusCode >= 300) resolve('');
          else { try { resolve(JSON.parse(text)); } catch (error) { reject(error); } }
        });
        response.on('error', reject);
      });
      request.on('error', reject);
      request.end(payload);
    });
  }

  streamTask(id, onEvent) {
    return new Promise((resolve, reject) => {
      const request = this.request('GET', `/tasks/${encodeURIComponent(id)}/stream`, { Accept: 'text/event-stream' });
      request.on('response', (response) => {
        if (response.statusCode !== 200) {
          response.resume();
          reject(new Error(`Stream failed: ${response.statusCode}`));
          return;
        }
        let buffer = '';
        response.on('data', (chunk) => {
          buffer += chunk.toString(); // per chunk: a character split between two of them is garbled
          const blocks = buffer.split('\n\n');
          buffer = blocks.pop();
          for (const block of blocks) {
            let event = 'message', data = '';
            for (const line of block.split('\n')) {
              if (line.startsWith('event: ')) event = line.slice(7);
              if (line.startsWith('data: ')) data = line.slice(6); // of several the last
            }
            if (data && onEvent(event, JSON.parse(data)) === false) { request.destroy(); resolve(); }
          }
        });
        response.on('end', resolve);
        response.on('error', reject);
      });
      request.on('error', reject);
      request.end();
    });
  }
}

const show = (value) => process.stdout.write(JSON.stringify(value) + '\n');

async function main([base, ...rest]) {
  const token = rest[0] === '--token' ? rest.splice(0, 2)[1] : undefined;
  const [command, argument, count] = rest;
  const client = new LegacyClient(base, { token });
  switch (command) {
    case 'discover': return show(await client.discover());
    case 'submit': return show(await client.submitTask(JSON.parse(argument)));
    case 'status': return show(await client.getTaskStatus(argument));
    case 'cancel': return show(await client.cancelTask(argument));
    case 'stream': {
      let left = Number(count ?? Infinity);
      return client.streamTask(argument, (event, data) => { show({ event, data }); return --left > 0; });
    }
    default: throw new Error(`unknown command ${command}`);
  }
}

main(process.argv.slice(2)).catch((error) => show({ error: error.message }));
