// A typical media library in Node: an HTTP server that spools the form's file to disk with busboy, has sharp (libvips)
// rotate it without its metadata and create a thumbnail, and stores both in a directory. Called by scripts/bench-media.
//
//   node peer.mjs COMMAND media…     runs this command with `--peer` and the address of this server, then exits
//
// The command is crier-bench, whose clients also measure Crier. bench/src/service.rs describes what they expect of a
// peer.
//
// Settings, from https://sharp.pixelplumbing.com: `rotate()` without an angle rotates by EXIF (api-operation/#rotate);
// `resize({ fit: 'inside', withoutEnlargement: true })` matches Crier's thumbnails; output has no metadata unless
// requested (api-output/#keepmetadata). For a JPEG's thumbnail, libvips decodes at most an eighth, a quarter or a half
// of the resolution (shrink-on-load). This is faster, but does not check the whole image, as Crier does on purpose. An
// image that needs no rotation is stored unchanged. Not implemented: accounts, plans, limits, the check that the file
// is a complete image and nothing else, deduplication of identical files, database records,
// idempotency, fsync.

import { spawn } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { mkdtemp, rename, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { Transform } from 'node:stream'
import busboy from 'busboy'
import sharp from 'sharp'

const dir = await mkdtemp(join(tmpdir(), 'crier-bench-peer-'))
const MAX_BYTES = 25 * 1024 * 1024

const thumbnail = (picture) =>
  picture.rotate().resize({ width: 400, height: 400, fit: 'inside', withoutEnlargement: true }).jpeg({ quality: 82 })

async function receive(request) {
  const path = join(dir, randomUUID())
  const hash = createHash('sha256')
  const sum = new Transform({
    transform(chunk, _encoding, done) {
      hash.update(chunk)
      done(null, chunk)
    },
  })
  let saved
  const form = busboy({ headers: request.headers, limits: { fileSize: MAX_BYTES, files: 1 } })
  form.on('file', (_name, file) => {
    saved = pipeline(file, sum, createWriteStream(path))
  })
  await pipeline(request, form)
  await saved
  return { path, sha256: hash.digest('hex') }
}

async function upload(request) {
  const { path, sha256 } = await receive(request)
  const { format, width, height, orientation } = await sharp(path).metadata()
  const kept = join(dir, `${sha256}.${format}`)
  if ((orientation ?? 1) > 1) await sharp(path).rotate().toFile(kept)
  else await rename(path, kept)
  await thumbnail(sharp(kept)).toFile(join(dir, `${sha256}-thumb.jpg`))
  return [201, { data: { filename: sha256, mime_type: `image/${format}`, width, height } }]
}

async function body(request) {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}

const routes = {
  'GET /': () => [
    200,
    { version: `sharp ${sharp.versions.sharp}, libvips ${sharp.versions.vips}, Node ${process.versions.node}`, database: 'none' },
  ],
  'POST /thumbnail': async (request) => {
    await thumbnail(sharp(await body(request))).toBuffer()
    return [200, {}]
  },
  'POST /api/public/v1/brands/1/media': upload,
}

const server = createServer(async (request, response) => {
  let answer
  try {
    const route = routes[`${request.method} ${request.url}`]
    answer = route ? await route(request) : [404, { error: 'there is nothing here' }]
  } catch (error) {
    answer = [500, { error: String(error) }]
  }
  const [status, value] = answer
  const text = JSON.stringify(value)
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
  response.end(text)
})

server.listen(0, '127.0.0.1', () => {
  const [command, ...args] = process.argv.slice(2)
  const { port } = server.address()
  const child = spawn(command, [...args, '--peer', `127.0.0.1:${port}`], { stdio: 'inherit' })
  child.on('exit', async (code) => {
    await rm(dir, { recursive: true, force: true })
    process.exit(code ?? 1)
  })
})
