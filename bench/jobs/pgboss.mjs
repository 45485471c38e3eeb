// pg-boss. Called by scripts/bench-jobs; DATABASE_URL is a separate database, in which it creates its schema.
//
// Settings, from https://pgboss.io/api: `batchSize` (workers) is how many jobs are fetched, run and completed together,
// which is its fastest way to run that many at once; `burstWhenBatchFull` fetches without a pause while there is a
// backlog; `pollingIntervalSeconds` and `notifyPollingIntervalSeconds` of 0.5 are the permitted minimum; `notify`
// (queues) with `useListenNotify` (constructor) wakes idle workers immediately. With one job at a time, `work` would
// wait for its polling interval between two jobs (a batch of one is never "full"), so that case uses a loop of `fetch`
// and `complete` (jobs). `insert` (jobs) fills backlogs, `send` enqueues one job per call. `supervise` and `schedule`
// are off: no maintenance and no cron during the measurement.

import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { PgBoss } from 'pg-boss'
import { measure } from './measure.mjs'

const { version } = createRequire(import.meta.url)('pg-boss/package.json')
const NAME = 'crier-bench'
const CHUNK = 1_000
const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL,
  // The pool size of a Crier process.
  max: 20,
  supervise: false,
  schedule: false,
  useListenNotify: true,
})
boss.on('error', (error) => console.error(error))
await boss.start()
const query = async (sql) => (await boss.getDb().executeSql(sql)).rows[0]
const server = await query("SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync")

/** Starts a worker and returns a function that stops it. */
async function work(slots, onStart) {
  if (slots > 1) {
    const polling = { burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }
    const options = { batchSize: slots, ...polling }
    await boss.work(NAME, options, async (jobs) => jobs.forEach((job) => onStart(job.data.i)))
    return () => boss.offWork(NAME, { wait: true })
  }
  let stopped = false
  const loop = async () => {
    while (!stopped) {
      const [job] = await boss.fetch(NAME)
      if (!job) {
        await sleep(500)
        continue
      }
      onStart(job.data.i)
      await boss.complete(NAME, job.id)
    }
  }
  const ended = loop()
  return () => {
    stopped = true
    return ended
  }
}

await measure({
  name: 'pg-boss',
  version,
  database: `PostgreSQL ${server.version}, fsync ${server.fsync}`,

  async fresh() {
    if (await boss.getQueue(NAME)) await boss.deleteQueue(NAME)
    await boss.createQueue(NAME, { notify: true })
  },

  enqueue: (i) => boss.send(NAME, { i }),

  async backlog(jobs, due) {
    for (let first = 0; first < jobs; first += CHUNK) {
      const chunk = Array.from({ length: Math.min(CHUNK, jobs - first) }, (_, i) => ({
        data: { i: first + i },
        ...(due && { startAfter: due }),
      }))
      await boss.insert(NAME, chunk)
    }
  },

  async start(slots, onStart) {
    const stop = await work(slots, onStart)
    return {
      async settled() {
        for (;;) {
          const { left } = await query(
            `SELECT count(*)::int AS left FROM pgboss.job WHERE name = '${NAME}' AND state < 'completed'`,
          )
          if (left === 0) return
          await sleep(2)
        }
      },
      stop,
    }
  },

  close: () => boss.stop({ graceful: false }),
})
