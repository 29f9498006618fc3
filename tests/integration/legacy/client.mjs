// An older A2A client as legacy-tasks.md describes it: plain http, no dependencies, naive in every way named there.
import http from 'node:http';
import https from 'node:https';
import readline from 'node:readline';

const MAX_BYTES = 10 * 1024 * 1024;

class LegacyClient {
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
            if (data) onEvent(event, JSON.parse(data));
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

// The program: one line of JSON per call on stdin, {id, base, token?, method, argument?}; any number of calls at once.
// Lines on stdout: {id, answer}, {id, error} with the text that was thrown, {id, event, data} and {id, end: true} of a stream.
const show = (line) => process.stdout.write(JSON.stringify(line) + '\n');

async function run({ id, base, token, method, argument }) {
  try {
    const client = new LegacyClient(base, { token });
    if (method !== 'streamTask') return show({ id, answer: await client[method](argument) });
    await client.streamTask(argument, (event, data) => show({ id, event, data }));
    return show({ id, end: true });
  } catch (error) {
    return show({ id, error: error.message });
  }
}

readline.createInterface({ input: process.stdin, crlfDelay: Infinity }).on('line', (line) => run(JSON.parse(line)));
