// pg-boss. Called by scripts/bench-jobs: DATABASE_URL is a database of its own, in which it makes its schema.
//
// Settings, from https://pgboss.io/api: `batchSize` (workers) is how many are fetched, run and completed together, which is
// its fastest way to run so many at once; `burstWhenBatchFull` fetches on without a pause while there is a backlog;
// `pollingIntervalSeconds` and `notifyPollingIntervalSeconds` of 0.5 are the shortest that it permits; `notify` (queues) with
// `useListenNotify` (constructor) wakes idle workers at once. Where one job runs at a time, `work` would wait for its polling interval between any two
// (a batch of one is never "full"), so there it is a loop of `fetch` and `complete` (jobs). `insert` (jobs) fills backlogs,
// one job a call is `send`. `supervise` and `schedule` off: no maintenance and no cron beside the measurement.

import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { PgBoss } from 'pg-boss'
import { measure } from './measure.mjs'

const { version } = createRequire(import.meta.url)('pg-boss/package.json')
const NAME = 'crier-bench'
const CHUNK = 1_000
const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL,
  // As many as a process of Crier has.
  max: 20,
  supervise: false,
  schedule: false,
  useListenNotify: true,
})
boss.on('error', (error) => console.error(error))
await boss.start()
const query = async (sql) => (await boss.getDb().executeSql(sql)).rows[0]
const server = await query("SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync")

/** Gives what stops it. */
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
