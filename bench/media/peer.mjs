// A media library as many people write it in Node: an HTTP server that spools the form's file to the disk with busboy, has
// sharp (libvips) turn it upright without its metadata and make a thumbnail, and keeps both in a directory. Called by
// scripts/bench-media.
//
//   node peer.mjs CRIER bench media…     with `--peer` and its address added, and as long as that runs
//
// So its clients are those of `crier bench media`, the same as for Crier itself; what they ask of a peer is told in
// src/commands/bench/service.rs.
//
// Settings, from https://sharp.pixelplumbing.com: `rotate()` without an angle turns by EXIF (api-operation/#rotate);
// `resize({ fit: 'inside', withoutEnlargement: true })` as Crier's thumbnails; output has no metadata unless it is asked for
// (api-output/#keepmetadata). Of a JPEG, libvips decodes for a thumbnail no more than an eighth, a quarter or a half of the
// resolution (shrink-on-load): it is faster by that, and does not look at the whole picture, which Crier does on purpose. The
// picture itself is kept as it came where it needs no turning. What it leaves out: accounts, plans, limits, the check that
// the picture is whole and nothing else besides, one file for the same bytes, the record, idempotency, fsync.

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
const MOST = 25 * 1024 * 1024

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
  const form = busboy({ headers: request.headers, limits: { fileSize: MOST, files: 1 } })
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
