// BullMQ. Called by scripts/bench-jobs; REDIS_URL is a server whose data may be deleted.
//
// Settings, from https://docs.bullmq.io: `concurrency` (guide/workers/concurrency) is the measured variable;
// `removeOnComplete` (guide/queues/auto-removal-of-jobs) is the cheapest way to complete a job; `addBulk`
// (guide/queues/adding-bulks) fills backlogs, `add` enqueues one job per call; `maxRetriesPerRequest: null` is required
// for workers (guide/going-to-production). No metrics, no events, no rate limit. Redis stores nothing on disk here; the
// BullMQ documentation recommends an AOF, which would be somewhat slower.

import { createRequire } from 'node:module'
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { measure } from './measure.mjs'

const { version } = createRequire(import.meta.url)('bullmq/package.json')
const NAME = 'crier-bench'
const CHUNK = 1_000
const url = process.env.REDIS_URL
const connect = () => new Redis(url, { maxRetriesPerRequest: null })
const connection = connect()
const queue = new Queue(NAME, { connection, defaultJobOptions: { removeOnComplete: true, removeOnFail: true } })
const info = await connection.info('server')

await measure({
  name: 'BullMQ',
  version,
  database: `Redis ${/redis_version:(\S+)/.exec(info)?.[1]}, nothing on disk`,

  fresh: () => queue.obliterate({ force: true }),

  enqueue: (i) => queue.add('noop', { i }),

  async backlog(jobs, due) {
    for (let first = 0; first < jobs; first += CHUNK) {
      const chunk = Array.from({ length: Math.min(CHUNK, jobs - first) }, (_, i) => ({
        name: 'noop',
        data: { i: first + i },
        opts: due ? { delay: Math.max(0, due - Date.now()) } : {},
      }))
      await queue.addBulk(chunk)
    }
  },

  async start(slots, onStart) {
    const own = connect()
    let done = 0
    const worker = new Worker(NAME, async (job) => onStart(job.data.i), { connection: own, concurrency: slots })
    // Emitted after Redis has confirmed that the job is completed.
    worker.on('completed', () => done++)
    await worker.waitUntilReady()
    return {
      async settled(jobs) {
        while (done < jobs) await new Promise((next) => setTimeout(next, 2))
      },
      async stop() {
        await worker.close()
        own.disconnect()
      },
    }
  },

  async close() {
    await queue.obliterate({ force: true })
    await queue.close()
    connection.disconnect()
  },
})
