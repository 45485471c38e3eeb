// The measurements of `crier-bench jobs`, for another queue.
//
// A peer is an object of functions. Each does the same as Crier in the same measurement, with the peer's best
// documented settings:
//
//   name, version, database   labels for the table
//   fresh()                   empties the queue
//   enqueue(i)                enqueues one job, which is stored when the promise resolves
//   backlog(n, due?)          enqueues n jobs as fast as possible, scheduled for a Date if one is given
//   start(slots, onStart)     starts a worker with this concurrency, which calls onStart(i) when job i starts;
//                             returns { settled(n), stop() }: `settled` waits until n jobs are stored as completed
//   close()
//
// The figures have the same names as in `crier-bench jobs --json`.

import { setTimeout as sleep } from 'node:timers/promises'

const AT_ONCE = [1, 10, 100]
const BACKLOG = 20_000
const SHORTEST = 2_000
const WANTED = 3_000

const figures = []
const note = (measurement, figure, value, unit) => figures.push({ measurement, figure, value, unit })
const rate = (measurement, figure, count, ms) => note(measurement, figure, Math.round((count / ms) * 1e4) / 10, 'jobs/s')
const time = (measurement, figure, ms) => note(measurement, figure, Math.round(ms * 1e4) / 1e4, 'ms')

function spread(measurement, of, times) {
  const sorted = Float64Array.from(times).sort()
  const at = (percent) => sorted[Math.max(1, Math.ceil((sorted.length * percent) / 100)) - 1]
  time(measurement, `${of}, p50`, at(50))
  time(measurement, `${of}, p99`, at(99))
  time(measurement, `${of}, max`, at(100))
}

/** Starts a worker. Also returns `begun(n)`, which waits until n jobs have started, and `at`, their start times. */
async function work(peer, slots) {
  const at = []
  let count = 0
  let wanted = Infinity
  let reached
  const worker = await peer.start(slots, (i) => {
    if (at[i] !== undefined) return
    at[i] = performance.now()
    if (++count >= wanted) reached()
  })
  const begun = (n) =>
    new Promise((resolve) => {
      if (count >= n) return resolve()
      wanted = n
      reached = resolve
    })
  return { ...worker, at, begun }
}

async function enqueue(peer, clients, most) {
  const began = performance.now()
  let next = 0
  let count = 0
  const client = async () => {
    while (performance.now() - began < WANTED && next < most) {
      await peer.enqueue(next++)
      count++
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return count
}

async function throughput(peer, jobs) {
  for (const clients of AT_ONCE) {
    await peer.fresh()
    const began = performance.now()
    const count = await enqueue(peer, clients, jobs ?? Infinity)
    rate('throughput', `enqueue, ${clients} at once`, count, performance.now() - began)
  }
  for (const slots of AT_ONCE) {
    let count = jobs ?? (slots < 100 ? 200 * slots : BACKLOG)
    for (;;) {
      await peer.fresh()
      await peer.backlog(count)
      const began = performance.now()
      const worker = await work(peer, slots)
      await worker.begun(count)
      await worker.settled(count)
      const took = performance.now() - began
      await worker.stop()
      if (took >= SHORTEST || count >= BACKLOG || jobs) {
        rate('throughput', `process, ${slots} at once`, count, took)
        break
      }
      count = Math.min(BACKLOG, Math.max(count, Math.round((count * WANTED) / took)))
    }
  }
  await peer.fresh()
  const worker = await work(peer, 100)
  const began = performance.now()
  const count = await enqueue(peer, 100, jobs ?? BACKLOG)
  await worker.begun(count)
  await worker.settled(count)
  rate('throughput', 'enqueue and process, 100 at once', count, performance.now() - began)
  await worker.stop()
}

async function pickup(peer, jobs = 2_000) {
  await peer.fresh()
  const worker = await work(peer, 64)
  const fromCall = []
  const fromCommit = []
  for (let i = 0; i < jobs; i++) {
    await sleep(5 + Math.random() * 15)
    const called = performance.now()
    await peer.enqueue(i)
    const committed = performance.now()
    await worker.begun(i + 1)
    fromCall.push(worker.at[i] - called)
    fromCommit.push(Math.max(0, worker.at[i] - committed))
  }
  await worker.stop()
  spread('pickup', 'commit to start', fromCommit)
  spread('pickup', 'call to start', fromCall)
}

async function lateness(peer, jobs = 10_000) {
  await peer.fresh()
  const worker = await work(peer, 64)
  const due = Date.now() + 2_000 + jobs / 2
  await peer.backlog(jobs, new Date(due))
  if (Date.now() > due) throw new Error(`${jobs} jobs could not be written before they were due`)
  // On the clock of performance.now().
  const zero = due - Date.now() + performance.now()
  await worker.begun(jobs)
  spread('lateness', `${jobs} jobs for one moment`, worker.at.map((at) => Math.max(0, at - zero)))
  await worker.stop()
}

const memory = () => process.memoryUsage().rss

async function memoryHeld(peer, jobs = 100_000) {
  await peer.fresh()
  let worker = await work(peer, 64)
  await sleep(2_000)
  note('memory', 'idle', memory(), 'bytes')
  await worker.stop()
  await peer.backlog(jobs)
  note('memory', `${jobs} jobs pending`, memory(), 'bytes')
  let peak = memory()
  const look = () => (peak = Math.max(peak, memory()))
  const looking = setInterval(look, 20)
  worker = await work(peer, 64)
  await worker.begun(jobs)
  clearInterval(looking)
  look()
  await worker.stop()
  note('memory', 'while they run, peak', peak, 'bytes')
}

/** Measures the peer and prints its figures like `crier-bench jobs --json`. `--jobs N`: small counts, for a trial. */
export async function measure(peer) {
  const given = process.argv.indexOf('--jobs')
  const jobs = given > 0 ? Number(process.argv[given + 1]) : undefined
  note('machine', 'version', `${peer.name} ${peer.version}, Node ${process.versions.node}`, '')
  note('machine', 'database', peer.database, '')
  // The same order as in crier-bench: memory first, while the process has used little.
  for (const measurement of [memoryHeld, throughput, pickup, lateness]) {
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${peer.name}: ${measurement.name}`)
    await measurement(peer, jobs)
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
  await peer.close()
  console.log(JSON.stringify(figures))
}
