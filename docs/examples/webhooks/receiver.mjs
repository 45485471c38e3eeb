// WEBHOOK_SECRET=whsec_… node receiver.mjs
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const SECRET = process.env.WEBHOOK_SECRET;
if (!SECRET) throw new Error('WEBHOOK_SECRET is not set');
const TOLERANCE = 5 * 60; // seconds

function verify(header, body) {
  const fields = header.split(',').map((field) => field.split('='));
  const values = (name) => fields.filter((field) => field[0] === name).map((field) => field[1] ?? '');
  const [time, ...others] = values('t');
  if (!/^[0-9]+$/.test(time) || others.length > 0) return false;
  const expected = Buffer.from(createHmac('sha256', SECRET).update(`${time}.`).update(body).digest('hex'));
  const signatures = values('v1').map((value) => Buffer.from(value));
  return signatures.some((one) => one.length === expected.length && timingSafeEqual(one, expected))
    && Math.abs(Date.now() / 1000 - Number(time)) <= TOLERANCE;
}

// In your service, this is a table, written in the transaction that stores the work: data in memory is lost if the
// process ends after its 204.
const seen = new Set();

function work(delivery, body) {
  if (seen.has(delivery)) return; // INSERT … ON CONFLICT DO NOTHING
  seen.add(delivery);
  const { event, data } = JSON.parse(body);
  console.log(event, data);
}

createServer(async (request, response) => {
  const respond = (status) => response.writeHead(status, { 'Content-Length': 0 }).end();
  if (request.method !== 'POST') return respond(405);
  const chunks = [];
  let size = 0;
  try {
    for await (const chunk of request) {
      if ((size += chunk.length) > 1 << 20) return respond(413);
      chunks.push(chunk);
    }
  } catch {
    return; // the sender closed the connection
  }
  const body = Buffer.concat(chunks); // the unmodified bytes: verify them before parsing
  if (!verify(request.headers['x-webhook-signature'] ?? '', body)) return respond(400);
  respond(204); // immediately; the work follows
  setImmediate(work, request.headers['x-webhook-delivery-id'], body);
}).listen(Number(process.env.PORT ?? 9999), '127.0.0.1');
