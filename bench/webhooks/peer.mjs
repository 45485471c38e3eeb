// A typical webhook sender in Node: an HTTP API that adds a job for each endpoint to a BullMQ queue, and a worker that
// signs and sends each. Called by scripts/bench-webhooks; REDIS_URL is a server whose data may be deleted.
//
//   node peer.mjs COMMAND webhooks…     runs this command with `--peer` and the address of this server, then exits
//
// The command is crier-bench, whose clients and endpoints also measure Crier. bench/src/webhooks/service.rs describes
// what they expect of a peer.
//
// Settings, from https://docs.bullmq.io: `concurrency` (guide/workers/concurrency) is that of Crier's worker;
// `removeOnComplete` (guide/queues/auto-removal-of-jobs) is the cheapest way to complete a job; `addBulk`
// (guide/queues/adding-bulks) enqueues the jobs of one message in one call; `attempts` with backoff is essential for a
// sender. undici's `Agent` keeps connections open, one per concurrent delivery to a host, as by default. Signature and
// timeout are the same as Crier's. Not implemented: accounts, plans, the guard against private addresses, the record of
// deliveries and attempts, idempotency, fairness between endpoints. Redis stores nothing on disk here, so accepted
// messages are lost with its process.

import { spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { Agent, request } from 'undici'

const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version
const NAME = 'crier-bench-webhooks'
const SECRET = 'whsec_0123456789012345678901234567890123456789'
const CONCURRENCY = 64
const connect = () => new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null })

const connection = connect()
const info = await connection.info('server')
const queue = new Queue(NAME, {
  connection,
  defaultJobOptions: {
    removeOnComplete: true,
    removeOnFail: true,
    attempts: 8,
    backoff: { type: 'exponential', delay: 5_000 },
  },
})
await queue.obliterate({ force: true })

const dispatcher = new Agent({ headersTimeout: 25_000, bodyTimeout: 25_000 })
const worker = new Worker(
  NAME,
  async (job) => {
    const { url, event, body } = job.data
    const timestamp = Math.floor(Date.now() / 1_000)
    const signature = createHmac('sha256', SECRET).update(`${timestamp}.${body}`).digest('hex')
    const answer = await request(url, {
      dispatcher,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': 'Peer-Webhook/1.0',
        'x-webhook-event': event,
        'x-webhook-delivery-id': job.id,
        'x-webhook-timestamp': String(timestamp),
        'x-webhook-signature': `t=${timestamp},v1=${signature}`,
      },
      body,
    })
    await answer.body.dump()
    if (answer.statusCode >= 300) throw new Error(`the endpoint answered ${answer.statusCode}`)
  },
  { connection: connect(), concurrency: CONCURRENCY },
)
worker.on('error', (error) => console.error(error))
await worker.waitUntilReady()

let endpoints = []
let brands = 0

const routes = {
  'GET /': () => [
    200,
    {
      version: `BullMQ ${version('bullmq')}, undici ${version('undici')}, Node ${process.versions.node}`,
      database: `Redis ${/redis_version:(\S+)/.exec(info)?.[1]}, nothing on disk`,
    },
  ],
  'PUT /endpoints': (urls) => {
    endpoints = urls
    return [200, {}]
  },
  'POST /api/public/v1/brands': async ({ name }) => {
    const event = 'brand.created'
    const id = ++brands
    const body = JSON.stringify({ event, data: { brand_id: id, name } })
    await queue.addBulk(endpoints.map((url) => ({ name: event, data: { url, event, body } })))
    return [201, { data: { id, name } }]
  },
}

async function read(incoming) {
  let text = ''
  for await (const chunk of incoming.setEncoding('utf8')) text += chunk
  return text ? JSON.parse(text) : null
}

const server = createServer({ keepAliveTimeout: 90_000 }, async (incoming, answer) => {
  try {
    const route = routes[`${incoming.method} ${incoming.url}`]
    const [status, body] = route ? await route(await read(incoming)) : [404, { error: 'there is no such path' }]
    answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  } catch (error) {
    console.error(error)
    answer.writeHead(500).end()
  }
})
server.listen(0, '127.0.0.1', () => {
  const [command, ...args] = process.argv.slice(2)
  const measured = spawn(command, [...args, '--peer', `127.0.0.1:${server.address().port}`], { stdio: 'inherit' })
  measured.on('error', (error) => {
    console.error(error)
    process.exit(1)
  })
  measured.on('exit', (status) => process.exit(status ?? 1))
})
