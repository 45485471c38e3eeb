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
  const given = values('v1').map((value) => Buffer.from(value));
  return given.some((one) => one.length === expected.length && timingSafeEqual(one, expected))
    && Math.abs(Date.now() / 1000 - Number(time)) <= TOLERANCE;
}

// In your service it is a table, filled in the transaction that stores the work: what is only in memory is lost when the
// process ends after its 204.
const seen = new Set();

function work(delivery, body) {
  if (seen.has(delivery)) return; // INSERT … ON CONFLICT DO NOTHING
  seen.add(delivery);
  const { event, data } = JSON.parse(body);
  console.log(event, data);
}

createServer(async (request, response) => {
  const answer = (status) => response.writeHead(status, { 'Content-Length': 0 }).end();
  if (request.method !== 'POST') return answer(405);
  const chunks = [];
  let size = 0;
  try {
    for await (const chunk of request) {
      if ((size += chunk.length) > 1 << 20) return answer(413);
      chunks.push(chunk);
    }
  } catch {
    return; // the sender went away
  }
  const body = Buffer.concat(chunks); // the bytes as they came: verify first, parse then
  if (!verify(request.headers['x-webhook-signature'] ?? '', body)) return answer(400);
  answer(204); // at once; the work comes after
  setImmediate(work, request.headers['x-webhook-delivery-id'], body);
}).listen(Number(process.env.PORT ?? 9999), '127.0.0.1');
