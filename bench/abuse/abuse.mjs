// Attacks by two hostile tenants, and their effect on a third tenant. Run by scripts/abuse.
//
// The attackers run in a separate process, so that they do not delay the third tenant's timers and memory, and at the
// lowest priority. Real attackers use the CPUs of other machines, so their work must not delay the server.
// Each attack is a loop with a pause, ends after the given time, and uses only 127.0.0.1.

import { execFileSync, fork } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import http from 'node:http'
import http2 from 'node:http2'
import net from 'node:net'
import { fileURLToPath } from 'node:url'

const [annLive, annTest, bobLive, bobTest, eveLive, , fayLive, fayTest] = process.argv.slice(2)
/** The maximum memory of a process, in MiB. */
const MEMORY_MIB = 400
const base = process.env.API
const seconds = Number(process.env.SECONDS_BESIDE)
const port = Number(new URL(base).port)
const isAttacker = Boolean(process.send)

let serial = 0
const unique = () => `abuse-${process.pid}-${(serial += 1)}`
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
let running = true
const answers = {}

// --- Requests ---------------------------------------------------------------------------------------------------------

const agents = new Map()
function agentOf(tenant) {
    if (!agents.has(tenant)) agents.set(tenant, new http.Agent({ keepAlive: true, maxSockets: 8 }))
    return agents.get(tenant)
}

/** Sends a request; returns the status, the JSON body and the headers, or `{status: 0}` if the connection failed. */
function request(key, method, path, body, headers = {}) {
    return new Promise((done) => {
        const text = typeof body === 'string' || Buffer.isBuffer(body) ? body : body && JSON.stringify(body)
        const url = path.startsWith('/sandbox') ? base + path : `${base}/api/public/v1${path}`
        const request = http.request(url, {
            method,
            agent: agentOf(key),
            headers: {
                ...(key && { authorization: `Bearer ${key}` }),
                ...(text && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
                'idempotency-key': unique(),
                ...headers,
            },
        })
        request.on('error', () => done({ status: 0, json: null }))
        request.on('response', (response) => {
            const parts = []
            response.on('data', (part) => parts.push(part))
            response.on('error', () => done({ status: 0, json: null }))
            response.on('end', () => {
                let json = null
                try {
                    json = JSON.parse(Buffer.concat(parts).toString())
                } catch {}
                done({ status: response.statusCode, json, headers: response.headers })
            })
        })
        request.end(text)
    })
}

async function must(key, method, path, body, headers) {
    const { status, json } = await request(key, method, path, body, headers)
    if (status < 200 || status > 299) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(json)}`)
    return json.data
}

// --- Local servers that Crier calls ----------------------------------------------------------------------------------

const receipts = new Map()
const hostile = 'x\u0000y'.repeat(1_000_000)
const malformed = { id: 1, link: `javascript:${hostile}`, slug: hostile, title: hostile }
const rubbishPost = isAttacker && Buffer.from(JSON.stringify(malformed))
const feed = `<rss><channel><title>t</title><item><a ${'a '.repeat(320_000)}`

/** The third tenant's webhook endpoint, WordPress sites that hang or return malformed responses, and a feed. */
const servers = http.createServer((incoming, response) => {
    const parts = []
    incoming.on('data', (part) => parts.push(part))
    incoming.on('end', () => {
        const at = performance.now()
        const [, kind, ...rest] = incoming.url.split('?')[0].split('/')
        const path = rest.join('/')
        const json = (value) => {
            response.setHeader('content-type', 'application/json')
            response.end(JSON.stringify(value))
        }
        if (kind === 'hook') {
            const event = JSON.parse(Buffer.concat(parts).toString())
            const id = event.data.post_id
            receipts.set(id, [...(receipts.get(id) ?? []), { at, event: event.event }])
            response.end()
        } else if (kind === 'feed') {
            response.setHeader('content-type', 'application/rss+xml')
            response.end(feed)
        } else if (path.endsWith('users/me')) {
            json({ id: 1, name: 'n', capabilities: { publish_posts: true } })
        } else if (incoming.method === 'POST' && path.endsWith('wp/v2/posts')) {
            // A hanging site never responds; a rubbish site returns data that no database accepts.
            if (kind.startsWith('rubbish')) {
                response.setHeader('content-type', 'application/json')
                response.end(rubbishPost)
            }
        } else if (path.includes('wp/v2/posts')) {
            json([])
        } else {
            response.setHeader('link', `<http://127.0.0.1:${servers.address().port}/${kind}/wp-json/>; rel="https://api.w.org/"`)
            json({ name: kind })
        }
    })
})
await new Promise((done) => servers.listen(0, '127.0.0.1', done))
const outside = `http://127.0.0.1:${servers.address().port}`

// --- Attacks ----------------------------------------------------------------------------------------------------------

/** Repeats `attack` with a pause and counts its results. */
async function repeat(name, pause, attack) {
    while (running) {
        const status = await attack().catch(() => 'error')
        answers[name] ??= {}
        answers[name][status] = (answers[name][status] ?? 0) + 1
        await sleep(pause)
    }
}

function bodies(test, brand) {
    const objects = `{"content":"x","overrides":[${Array(300_000).fill('{}').join(',')}]}`
    const keys = `{${Array.from({ length: 80_000 }, (_, n) => `"k${n}":1`).join(',')}}`
    const ids = `{"content":"x","accounts":[${Array.from({ length: 140_000 }, (_, n) => n + 1).join(',')}]}`
    const deep = `{"content":${'['.repeat(100_000)}`
    const all = [objects, keys, ids, deep]
    let n = 0
    return repeat('1 bodies of 1 MB', 400, async () => {
        const path = `/brands/${brand}/posts/validate`
        return (await request(test, 'POST', path, all[(n += 1) % all.length])).status
    })
}

/** Idle connections, reopened when they are closed. */
function idle(count) {
    const open = new Set()
    return repeat('2 idle connections', 100, async () => {
        for (let n = 0; n < 250 && open.size < count && running; n += 1) {
            const socket = net.connect(port, '127.0.0.1')
            open.add(socket)
            socket.on('error', () => {})
            socket.on('close', () => open.delete(socket))
        }
        if (!running) open.forEach((socket) => socket.destroy())
        return 'rounds'
    }).finally(() => open.forEach((socket) => socket.destroy()))
}

/** Sends the head and the first bytes of a request, and then very few. Returns the status. */
function sendSlowly(head, first) {
    return new Promise((done) => {
        const socket = net.connect(port, '127.0.0.1')
        const drip = setInterval(() => (running ? socket.write('x'.repeat(100)) : socket.destroy()), 1_000)
        let answer = ''
        socket.on('data', (data) => (answer ||= statusOf(data)))
        socket.on('error', () => {})
        socket.on('close', () => {
            clearInterval(drip)
            done(answer || 'closed')
        })
        socket.write(head)
        socket.write(first)
    })
}

/** Returns the status of a response from its first bytes. */
const statusOf = (bytes) => bytes.toString('latin1', 9, 12)

/** Uploads that announce a large body and send it very slowly. */
function stalledUploads(live, brand) {
    const upload = () => {
        const head =
            `POST /api/public/v1/brands/${brand}/media HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${live}\r\n` +
            `idempotency-key: ${unique()}\r\ncontent-type: multipart/form-data; boundary=b\r\n` +
            `content-length: 20000000\r\n\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="a.png"\r\n\r\n`
        return sendSlowly(head, 'x'.repeat(500_000))
    }
    return Promise.all(Array.from({ length: 8 }, () => repeat('3 stalled uploads', 500, upload)))
}

/** Resumable uploads of videos. Each request brings more than a piece, then stalls, and the next one continues. */
function slowResumableUploads(live, brand) {
    const size = 900_000_000
    const first = Buffer.alloc(2_500_000, 'x')
    const version = { 'tus-resumable': '1.0.0' }
    const one = () => {
        let path = ''
        return repeat('13 slow resumable uploads', 500, async () => {
            if (!path) {
                const headers = { ...version, 'upload-length': String(size) }
                const made = await request(live, 'POST', `/brands/${brand}/media/uploads`, undefined, headers)
                if (made.status === 201) path = made.headers.location.replace('/api/public/v1', '')
                return `created ${made.status}`
            }
            const found = await request(live, 'HEAD', path, undefined, version)
            if (found.status === 404) path = ''
            if (found.status !== 200) return `found ${found.status}`
            const offset = Number(found.headers['upload-offset'])
            const head =
                `PATCH /api/public/v1${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${live}\r\n` +
                `tus-resumable: 1.0.0\r\ncontent-type: application/offset+octet-stream\r\nupload-offset: ${offset}\r\n` +
                `content-length: ${size - offset}\r\n\r\n`
            return sendSlowly(head, first)
        })
    }
    return Promise.all(Array.from({ length: 10 }, one))
}

function comments(handle, post) {
    const form = `name=n&body=${'x'.repeat(1_900)}`
    return repeat('4 comments', 20, async () => {
        const path = `/sandbox/${handle}/posts/${post}/comments`
        return (await request('', 'POST', path, form, { 'content-type': 'application/x-www-form-urlencoded' })).status
    })
}

function plans(live, brand) {
    const items = Array.from({ length: 15 }, (_, n) => ({ title: `t${n}`, content: 'x'.repeat(60_000) }))
    const path = `/brands/${brand}/content-plans`
    let n = 0
    return repeat('5 content plans', 200, async () => {
        n += 1
        return (await request(live, n % 2 ? 'POST' : 'GET', path, n % 2 ? { name: `p${n}`, items } : undefined)).status
    })
}

function feeds(live, brand) {
    let n = 0
    const path = `/brands/${brand}/feeds`
    return repeat('6 feeds', 1_000, async () => {
        return (await request(live, 'POST', path, { url: `${outside}/feed/${(n += 1)}` })).status
    })
}

async function sites(live, brand, at, kind, count) {
    const accounts = []
    for (let n = 0; n < count; n += 1) {
        const credentials = { site_url: `${at}/${kind}${n}`, username: 'ada', application_password: 'abcd' }
        const made = await must(live, 'POST', `/brands/${brand}/social-accounts`, { platform: 'wordpress', credentials })
        accounts.push(made[0].id)
    }
    return accounts
}

function publishes(name, pause, live, brand, accounts) {
    return repeat(name, pause, async () => {
        const body = { content: `c ${unique()}`, schedule_type: 'now', accounts }
        return (await request(live, 'POST', `/brands/${brand}/posts`, body)).status
    })
}

/** Streams of HTTP/2 that are opened and never read. A server that does not speak it closes the connection. */
function streams(path) {
    return repeat('9 streams of HTTP/2', 500, () => {
        return new Promise((done) => {
            const session = http2.connect(base, { settings: { initialWindowSize: 0 } })
            const end = (result) => {
                clearTimeout(timer)
                session.destroy()
                done(result)
            }
            const timer = setTimeout(() => end('open'), 10_000)
            session.on('error', () => end('closed'))
            session.on('close', () => end('closed'))
            for (let n = 0; n < 180; n += 1) session.request({ ':path': path }).on('error', () => {})
        })
    })
}

/** Requests for large responses, by clients that do not read them. */
function unread(name, count, head) {
    const request = () =>
        new Promise((done) => {
            const socket = net.connect(port, '127.0.0.1')
            const timer = setTimeout(() => socket.destroy(), 20_000)
            socket.on('error', () => {})
            socket.on('close', () => {
                clearTimeout(timer)
                done('closed')
            })
            const stopped = setInterval(() => running || socket.destroy(), 500)
            socket.on('close', () => clearInterval(stopped))
            // Without a listener for data, the response is never read.
            socket.write(head)
        })
    return Promise.all(Array.from({ length: count }, () => repeat(name, 200, request)))
}

/** Requests for a video, by clients that read a little of it per second, so that no connection is idle. */
function slowReaders(count, path) {
    const read = () =>
        new Promise((done) => {
            const socket = net.connect(port, '127.0.0.1')
            let answer = ''
            const timer = setTimeout(() => socket.destroy(), 30_000)
            const next = setInterval(() => (running ? socket.resume() : socket.destroy()), 1_000)
            socket.on('error', () => {})
            socket.on('data', (data) => {
                answer ||= statusOf(data)
                socket.pause()
            })
            socket.on('close', () => {
                clearTimeout(timer)
                clearInterval(next)
                done(answer || 'closed')
            })
            socket.write(get(path))
        })
    return Promise.all(Array.from({ length: count }, () => repeat('14 slow readers of a video', 200, read)))
}

const get = (path, key) => `GET ${path} HTTP/1.1\r\nhost: x\r\n${key ? `authorization: Bearer ${key}\r\n` : ''}\r\n`

/** Drafts of a tenant on the plan free, each of which is six times as long in JSON. */
function drafts(live, brand) {
    const content = '\u0001'.repeat(65_535)
    return repeat('11 drafts', 50, async () => (await request(live, 'POST', `/brands/${brand}/posts`, { content })).status)
}

/** Wrong keys and sign-in links through a proxy that is not trusted: all clients behind it have one address. */
function wrongKeys() {
    const headers = { 'x-forwarded-for': '198.51.100.7' }
    return repeat('12 wrong keys', 20, async () => {
        return (await request(`svc_live_${'0'.repeat(32)}`, 'GET', '/brands', undefined, headers)).status
    })
}

/** Returns an MP4 file of this size with one track of H.264, whose frames are zeros. */
function mp4(size) {
    const words = (...numbers) => Buffer.concat(numbers.map((number) => Buffer.from(number.toString(16).padStart(8, '0'), 'hex')))
    const box = (kind, ...content) => {
        const body = Buffer.concat(content)
        return Buffer.concat([words(body.length + 8), Buffer.from(kind), body])
    }
    const [one, milliseconds, frames, zeros] = [0x10000, 20_000, 600, (count) => Buffer.alloc(count)]
    const matrix = words(one, 0, 0, 0, one, 0, 0, 0, 0x40000000)
    const type = box('ftyp', Buffer.from('isom'), words(512), Buffer.from('isomiso2avc1mp41'))
    const codec = Buffer.from('0142c01effe1000a6742c01ed900a047fec801000468ce3c80', 'hex')
    const index = (offset, frameSize) => {
        const entry = box(
            'avc1', words(0, 1), zeros(16), words((720 << 16) | 1280, 0x480000, 0x480000, 0), Buffer.from([0, 1]), zeros(32),
            Buffer.from([0, 24, 255, 255]), box('avcC', codec),
        )
        const tables = box(
            'stbl', box('stsd', words(0, 1), entry), box('stts', words(0, 1, frames, Math.trunc(milliseconds / frames))),
            box('stsc', words(0, 1, 1, frames, 1)), box('stsz', words(0, frameSize, frames)), box('stco', words(0, 1, offset)),
        )
        const reference = box('dinf', box('dref', words(0, 1), box('url ', words(1))))
        const media = box(
            'mdia', box('mdhd', words(0, 0, 0, 1_000, milliseconds, 0x55c40000)),
            box('hdlr', words(0, 0), Buffer.from('vide'), zeros(12), Buffer.from('video\0')),
            box('minf', box('vmhd', words(1, 0, 0)), reference, tables),
        )
        const track = box('tkhd', words(3, 0, 0, 1, 0, milliseconds, 0, 0, 0, 0), matrix, words(720 << 16, 1280 << 16))
        const movie = box('mvhd', words(0, 0, 0, 1_000, milliseconds, one, 0x1000000, 0, 0), matrix, zeros(24), words(2))
        return box('moov', movie, box('trak', track, media))
    }
    // The numbers in the index do not change its size.
    const start = type.length + index(0, 0).length + 8
    const data = size - start
    return Buffer.concat([type, index(start, Math.trunc(data / frames)), words(data + 8), Buffer.from('mdat'), zeros(data)])
}

// --- The third tenant -------------------------------------------------------------------------------------------------

/** Posts and reads for `forSeconds`; returns request times, and times from a post's request to its webhook. */
async function measure(brand, account, forSeconds) {
    const [requests, published, posts] = [[], [], []]
    const until = performance.now() + forSeconds * 1_000
    const one = async () => {
        const began = performance.now()
        const body = { content: `mine ${unique()}`, schedule_type: 'now', accounts: [account] }
        const { status, json } = await request(eveLive, 'POST', `/brands/${brand}/posts`, body)
        requests.push(performance.now() - began)
        if (status !== 201) return posts.push({ failed: `POST: ${status} ${JSON.stringify(json)}` })
        posts.push({ id: json.data.id, began })
        const read = performance.now()
        const listed = await request(eveLive, 'GET', `/brands/${brand}/posts?per_page=5`)
        requests.push(performance.now() - read)
        if (listed.status !== 200) posts.push({ failed: `GET: ${listed.status}` })
    }
    const under = []
    while (performance.now() < until) {
        under.push(one())
        await sleep(100)
    }
    await Promise.all(under)
    const deadline = performance.now() + 60_000
    while (performance.now() < deadline && posts.some((post) => post.id && !receipts.has(post.id))) await sleep(100)
    const problems = posts.filter((post) => post.failed).map((post) => post.failed)
    for (const { id, began } of posts.filter((post) => post.id)) {
        const events = receipts.get(id) ?? []
        if (events.length !== 1 || events[0].event !== 'post.published') problems.push(`post ${id}: ${JSON.stringify(events)}`)
        else published.push(events[0].at - began)
    }
    return { requests, published, problems, posts: posts.length }
}

const quantile = (all, q) => [...all].sort((a, b) => a - b)[Math.min(all.length - 1, Math.floor(all.length * q))] ?? NaN
const facts = ({ requests, published, posts }) => ({
    posts,
    request_p50_ms: quantile(requests, 0.5),
    request_p99_ms: quantile(requests, 0.99),
    published_p50_ms: quantile(published, 0.5),
    published_p99_ms: quantile(published, 0.99),
})

/** Returns the peak memory of each process, in MiB. */
const memory = () =>
    process.env.PIDS.split(' ').map((pid) => {
        try {
            return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024
        } catch {
            return NaN
        }
    })

/** Signs the third tenant in with a link, through the same address as the attackers; returns the status. */
async function signIn() {
    const printed = execFileSync(process.env.CRIER, ['login', '--user', 'eve@example.com'], { encoding: 'utf8' })
    const path = /\/sign-in\/[\w-]+/.exec(printed)[0]
    const response = await fetch(base + path, { method: 'POST', redirect: 'manual', headers: { origin: base } })
    return response.status
}

// --- The run ----------------------------------------------------------------------------------------------------------

if (isAttacker) {
    process.on('disconnect', () => process.exit())
    process.on('message', async (order) => {
        if (order === 'stop') {
            running = false
            return
        }
        const { ann, bob, fay, hanging, rubbish, video } = order
        const posts = `/api/public/v1/brands/${fay}/posts?per_page=100`
        const attacks = {
            1: () => [bodies(annTest, ann), bodies(bobTest, bob)],
            2: () => [idle(5_000)],
            3: () => [stalledUploads(annLive, ann), stalledUploads(bobLive, bob)],
            4: () => [comments('ann', 1)],
            5: () => [plans(bobLive, bob)],
            6: () => [feeds(annLive, ann)],
            7: () => [publishes('7 rubbish answers', 500, bobLive, bob, rubbish)],
            8: () => [publishes('8 hanging sites', 500, annLive, ann, hanging)],
            9: () => [streams('/sandbox/ann')],
            10: () => [
                unread('10 unread pages', 60, get('/sandbox/ann')),
                unread('10 unread lists', 55, get(posts, fayTest)),
                unread('10 unread lists', 30, get(posts, fayLive)),
            ],
            11: () => [drafts(fayLive, fay)],
            12: () => [wrongKeys()],
            13: () => [slowResumableUploads(annLive, ann), slowResumableUploads(bobLive, bob)],
            14: () => [slowReaders(60, video), unread('14 unread videos', 60, get(video))],
        }
        const chosen = process.env.ONLY ? process.env.ONLY.split(',') : Object.keys(attacks)
        await Promise.all(chosen.flatMap((number) => attacks[number]()))
        process.send(answers, () => process.disconnect())
    })
    process.send(outside)
    // Runs until the parent disconnects.
    await new Promise(() => {})
}

// `nice`, because `os.setPriority` does not affect the existing threads of Node.
const options = { execPath: 'nice', execArgv: ['-n', '19', process.execPath] }
const attackers = fork(fileURLToPath(import.meta.url), process.argv.slice(2), options)
attackers.once('exit', (code) => code !== 0 && process.exit(1))
const next = () => new Promise((done) => attackers.once('message', done))
const sitesAt = await next()

const brandOf = async (key) => (await must(key, 'POST', '/brands', { name: 'Brand' })).id
const sandbox = async (key, brand, handle) =>
    (await must(key, 'POST', `/brands/${brand}/social-accounts`, { platform: 'sandbox', credentials: { handle } }))[0].id
const [ann, bob, eve, fay] = [await brandOf(annLive), await brandOf(bobLive), await brandOf(eveLive), await brandOf(fayLive)]
const mine = await sandbox(eveLive, eve, 'eve')
const theirs = await sandbox(annLive, ann, 'ann')
await must(eveLive, 'POST', '/webhooks', { url: `${outside}/hook`, events: ['post.published', 'post.failed'] })
await must(annLive, 'POST', `/brands/${ann}/posts`, { content: 'c', schedule_type: 'now', accounts: [theirs] })
const hanging = await sites(annLive, ann, sitesAt, 'hanging', 50)
const rubbish = await sites(bobLive, bob, sitesAt, 'rubbish', 2)
const form = 'content-disposition: form-data; name='
const upload = Buffer.concat([
    Buffer.from(`--b\r\n${form}"asset_type"\r\n\r\nvideo\r\n--b\r\n${form}"file"; filename="a.mp4"\r\n\r\n`),
    mp4(32 << 20),
    Buffer.from('\r\n--b--\r\n'),
])
const multipart = { 'content-type': 'multipart/form-data; boundary=b' }
const video = new URL((await must(annLive, 'POST', `/brands/${ann}/media`, upload, multipart)).url).pathname

await measure(eve, mine, 5)
// As long as during the attacks, because single writes of the disk decide the p99 of few requests.
const alone = await measure(eve, mine, seconds)
attackers.send({ ann, bob, fay, hanging, rubbish, video })
await sleep(3_000)
const beside = await measure(eve, mine, seconds)
const signedIn = await signIn()
const held = memory()
const ended = next()
attackers.send('stop')
Object.assign(answers, await Promise.race([ended, sleep(45_000).then(() => ({ 'the attackers': 'did not end' }))]))

const log = statSync(process.env.LOG).size
const [quiet, loud] = [facts(alone), facts(beside)]
const ratios = { request: loud.request_p99_ms / quiet.request_p99_ms, published: loud.published_p99_ms / quiet.published_p99_ms }
const problems = [...alone.problems, ...beside.problems]
if (ratios.request > 2) problems.push(`the p99 of requests is ${ratios.request.toFixed(2)} times that alone`)
if (ratios.published > 2) problems.push(`the p99 of publishing is ${ratios.published.toFixed(2)} times that alone`)
if (signedIn !== 303) problems.push(`a sign-in beside the attacks: ${signedIn}`)
for (const mib of held) if (mib > MEMORY_MIB) problems.push(`a process needed ${mib.toFixed(0)} MiB`)
if (log > 1_000_000) problems.push(`the log has ${log} bytes`)
const result = { alone: quiet, beside: loud, p99_ratios: ratios, log_bytes: log, memory_mib: held, answers, problems }
if (process.env.JSON) console.log(JSON.stringify(result, null, 2))
else {
    const ms = (value) => value.toFixed(1).padStart(10)
    console.log(`the third tenant, ms          p50 alone    beside  p99 alone    beside  p99 ratio`)
    for (const name of ['request', 'published']) {
        const [p50, p99] = [`${name}_p50_ms`, `${name}_p99_ms`]
        console.log(`${name.padEnd(28)} ${ms(quiet[p50])}${ms(loud[p50])} ${ms(quiet[p99])}${ms(loud[p99])}  ${ratios[name].toFixed(2)}`)
    }
    console.log(`posts ${quiet.posts} alone, ${loud.posts} beside; log ${log} bytes; memory ${held.map((mib) => mib.toFixed(0)).join(', ')} MiB`)
    console.log('answers to the attacks:', JSON.stringify(answers))
    problems.slice(0, 20).forEach((problem) => console.log('PROBLEM:', problem))
}
process.exit(problems.length ? 1 : 0)
