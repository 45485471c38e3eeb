// A page served from memory by Node's own HTTP server, one process per core (cluster): the upper bound for a page in
// Node, without a router, cache invalidation, request ids or counting. Called by scripts/bench-pages.
//
//   node peer.mjs PAGE COMMAND pages…     runs this command with `--peer` and the address of this server, then exits
//
// PAGE is the file that `crier-bench pages --page-to` wrote, with the same headers and compressed bytes. The command is
// crier-bench, whose clients also measure Crier. bench/src/service.rs describes what they expect of a peer.

import cluster from 'node:cluster'
import { readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { availableParallelism } from 'node:os'
import { spawn } from 'node:child_process'

const [file, command, ...args] = process.argv.slice(2)

/** Returns the CPU time of the cluster's processes in ns. */
function worked() {
  const spent = (pid) =>
    readdirSync(`/proc/${pid}/task`).map((task) => BigInt(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]))
  const children = readFileSync(`/proc/${process.ppid}/task/${process.ppid}/children`, 'utf8').trim().split(' ')
  // One of the children is the client; count only Node processes.
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
  // Between two measurements, clients are idle for longer than Node's default of five seconds.
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
