// A page answered from memory by Node's own HTTP server, one process for each core (cluster): the best that a page in Node can
// do, without a router, a cache that is kept true, a request's id, or anything counted. Called by scripts/bench-pages.
//
//   node peer.mjs PAGE CRIER bench pages…     with `--peer` and its address added, and as long as that runs
//
// PAGE is what `crier bench pages --page-to` wrote: the same headers and the same bytes, packed. The clients are those of `crier
// bench pages`; what they ask of a peer is told in src/commands/bench/service.rs.

import cluster from 'node:cluster'
import { readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { availableParallelism } from 'node:os'
import { spawn } from 'node:child_process'

const [file, command, ...args] = process.argv.slice(2)

/** How long processors have worked for the processes of the cluster. */
function worked() {
  const spent = (pid) =>
    readdirSync(`/proc/${pid}/task`).map((task) => BigInt(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]))
  const children = readFileSync(`/proc/${process.ppid}/task/${process.ppid}/children`, 'utf8').trim().split(' ')
  // One of them is the client.
  const workers = children.filter((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === readFileSync('/proc/self/comm', 'utf8').trim())
  return [process.ppid, ...workers].flatMap(spent).reduce((sum, ns) => sum + ns, 0n)
}

function serve() {
  const message = readFileSync(file)
  const end = message.indexOf('\n\n')
  const lines = message.subarray(0, end).toString().split('\n')
  const all = lines.map((line) => line.split(/: (.*)/s)).filter(([name]) => !['date', 'x-request-id'].includes(name))
  const [headers, body] = [Object.fromEntries(all), message.subarray(end + 2)]
  const { 'content-length': _length, 'content-encoding': _encoding, ...unchanged } = headers
  const about = { version: `Node ${process.versions.node}, cluster`, database: 'none' }
  // A client between two measurements is idle for longer than Node's five seconds.
  createServer({ keepAliveTimeout: 0 }, (request, response) => {
    if (request.url === '/@bench') {
      const known = request.headers['if-none-match'] === headers.etag
      response.writeHead(known ? 304 : 200, known ? unchanged : headers)
      return response.end(known ? undefined : body)
    }
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(request.url === '/cpu' ? `{"ns":${worked()}}` : JSON.stringify(about))
  }).listen(0, '127.0.0.1')
}

if (cluster.isPrimary) {
  let listening = 0
  for (let n = 0; n < availableParallelism(); n++) cluster.fork()
  cluster.on('listening', (_worker, { port }) => {
    if (++listening < availableParallelism()) return
    const child = spawn(command, [...args, '--peer', `127.0.0.1:${port}`], { stdio: 'inherit' })
    child.on('exit', (code) => {
      for (const worker of Object.values(cluster.workers)) worker.kill()
      process.exit(code ?? 1)
    })
  })
} else {
  serve()
}
