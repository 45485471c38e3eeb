// Uses docs/examples/clients/crier.ts with a real Crier, and with prepared responses.
//
//   CRIER_URL=http://… CRIER_KEY=svc_live_… node scenario.js
//
// CRIER_URL is that of cutting_proxy.py.
import assert from 'node:assert/strict';

import { Crier, CrierError, type Settings, SignatureError, verifyWebhook, WaitTimeoutError } from './crier.js';

const url = process.env['CRIER_URL'] ?? '';
const key = process.env['CRIER_KEY'] ?? '';

/** A PNG file of one pixel. */
const DOT =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

let passed = 0;
async function check(name: string, run: () => Promise<void>): Promise<void> {
    await run();
    passed += 1;
    console.log(`  ok      TypeScript: ${name}`);
}

/** Returns the error of a request that must fail. */
async function errorOf(request: Promise<unknown>): Promise<CrierError> {
    const error = await request.then(() => undefined, (reason: unknown) => reason);
    assert(error instanceof CrierError, String(error));
    return error;
}

// --- A real Crier --------------------------------------------------------------------------------------------------

const pauses: number[] = [];
const crier = new Crier(url, key, { sleep: async (pause) => void pauses.push(pause) });
const label = `typescript ${Date.now()}`;
const handle = { platform: 'sandbox', credentials: { handle: 'typescript' } };
const { data: [account] } = await crier.post('/brands/1/social-accounts', handle);

await check('a post whose response is lost is created once', async () => {
    pauses.length = 0;
    const body = { content: 'Draft', labels: [label] };
    const response = await crier.send('POST', '/brands/1/posts', { body });
    assert.equal(pauses.length, 1);
    assert.equal(response.headers.get('Idempotent-Replayed'), 'true');
    const { data: post } = await response.json();
    const found = await crier.get('/brands/1/posts', { query: { label } });
    assert.deepEqual(found.data.map((one: { id: number }) => one.id), [post.id]);
    assert.equal((await crier.get(response.headers.get('Location')!)).data.id, post.id);
});

await check('all pages are listed, and no record twice', async () => {
    for (let number = 1; number <= 4; number++) {
        await crier.post('/brands/1/posts', { content: `Draft ${number}`, labels: [label] });
    }
    const found: string[] = [];
    for await (const post of crier.list('/brands/1/posts', { label, per_page: 2, sort: undefined })) {
        // The second page begins with the last record of the first.
        if (found.length === 0) await crier.post('/brands/1/posts', { content: 'In between', labels: [label] });
        found.push(post.content);
    }
    assert.deepEqual(found, ['Draft 4', 'Draft 3', 'Draft 2', 'Draft 1', 'Draft']);
    const labels: unknown[] = [];
    for await (const one of crier.list('/brands/1/labels')) labels.push(one);
    assert(labels.length > 0, 'a list without pages');
});

await check('errors have a code, fields and a request ID', async () => {
    pauses.length = 0;
    const post = { content: 'x', schedule_type: 'now', accounts: [999_999] };
    const rejected = await errorOf(crier.post('/brands/1/posts', post));
    assert.equal(rejected.code, 'validation_failed');
    assert.equal(rejected.status, 422);
    assert.match(rejected.message, /accounts\.0/);
    assert.equal(rejected.fields['accounts.0']?.length, 1);
    assert.match(rejected.requestId ?? '', /^req_/);
    assert.equal((await errorOf(crier.get('/brands/1/posts/999999'))).code, 'not_found');
    assert.equal((await errorOf(new Crier(url, 'svc_live_x').get('/brands'))).code, 'unauthorized');
    // Only the connection that the proxy cuts is retried.
    assert.equal(pauses.length, 1);
});

await check('a post, and the file of a report, are waited for', async () => {
    const patient = new Crier(`${url}/`, key);
    const post = { content: 'Hello from TypeScript', schedule_type: 'now', accounts: [account.id] };
    const { data: created } = await patient.post('/brands/1/posts', post);
    const status = await patient.waitForPost(1, created.id, { pause: 20 });
    assert.equal(status.status, 'published');
    const body = { name: 'Posts', widgets: [{ type: 'posts_table' }] };
    const { data: report } = await patient.post('/brands/1/reports', body);
    const { data: delivery } = await patient.post(`/brands/1/reports/${report.id}/export`, { format: 'csv' });
    const ready = await patient.waitForReport(1, delivery.id, { pause: 20 });
    assert.equal(ready.status, 'sent');
    const file = await patient.send('GET', ready.download_url);
    assert.match(file.headers.get('Content-Type') ?? '', /^text\/csv/);
    assert((await file.arrayBuffer()).byteLength > 0);
    await patient.put(`/brands/1/reports/${report.id}`, { name: 'All posts' });
    assert.equal(await patient.delete(`/brands/1/reports/${report.id}`), undefined);
});

await check('a file is uploaded as a form', async () => {
    const form = new FormData();
    form.set('file', new Blob([Buffer.from(DOT, 'base64')]), 'dot.png');
    const { data: asset } = await crier.post('/brands/1/media', form);
    assert.equal(asset.mime_type, 'image/png');
});

// --- Prepared responses --------------------------------------------------------------------------------------------

/** Returns a client that gets these responses, the requests that it sends, and the seconds that it waits. */
function prepared(responses: (Response | Error)[], settings: Settings = {}) {
    const requests: Request[] = [];
    const waited: number[] = [];
    let time = Date.parse('2026-11-28T10:00:00Z');
    const client = new Crier('https://crier.example', 'svc_live_1', {
        fetch: async (request) => {
            requests.push(request);
            const response = responses.shift() ?? new Error('no more responses');
            if (response instanceof Error) throw response;
            return response;
        },
        sleep: async (pause) => {
            waited.push(pause / 1_000);
            time += pause;
        },
        now: () => time,
        random: () => 0,
        ...settings,
    });
    return { client, requests, waited };
}
function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
    return Response.json(body, { status, headers });
}
const failure = (status: number, code: string, headers: Record<string, string> = {}): Response =>
    json(status, { error: { type: 'x', code, message: `It is ${code}.`, request_id: 'req_1' } }, headers);

await check('retries wait for Retry-After and keep the key', async () => {
    const { client, requests, waited } = prepared([
        failure(503, 'service_unavailable', { 'Retry-After': '7' }),
        failure(409, 'idempotency_in_progress', { 'Retry-After': '1' }),
        failure(429, 'rate_limited', { 'Retry-After': 'Sat, 28 Nov 2026 10:00:40 GMT' }),
        json(201, { data: { id: 1 } }),
    ]);
    assert.deepEqual(await client.post('/brands/1/posts', { content: 'x' }), { data: { id: 1 } });
    assert.deepEqual(waited, [7, 1, 32]);
    const keys = new Set(requests.map((request) => request.headers.get('Idempotency-Key')));
    assert.equal(keys.size, 1);
    assert.match([...keys][0] ?? '', /^[!-~]{16,255}$/);
    assert.equal(requests[3]?.headers.get('Authorization'), 'Bearer svc_live_1');
    assert.equal(await requests[3]?.text(), '{"content":"x"}');
    await client.post('/brands', {}).catch(() => undefined);
    assert(!keys.has(requests[4]?.headers.get('Idempotency-Key') ?? null), 'another request has another key');
});

await check('attempts are limited', async () => {
    const refused = [1, 2, 3, 4, 5].map(() => new TypeError('fetch failed'));
    const { client, requests, waited } = prepared(refused);
    const error = await errorOf(client.get('/brands'));
    assert.equal(error.code, 'no_response');
    assert.equal(error.status, 0);
    assert.equal(requests.length, 4);
    assert.equal(requests[0]?.headers.get('Idempotency-Key'), null);
    assert.deepEqual(waited, [0.25, 0.5, 1]);
    const cut = new ReadableStream({ start: (controller) => controller.error(new TypeError('terminated')) });
    const half = new Response(cut, { headers: { 'Content-Type': 'application/json' } });
    assert.deepEqual(await prepared([half, json(200, { data: [] })]).client.get('/brands'), { data: [] });
    const proxy = prepared([1, 2].map(() => new Response('<html>', { status: 502 })), { attempts: 2, random: () => 1 });
    assert.equal((await errorOf(proxy.client.get('/brands'))).code, 'http_502');
    assert.deepEqual(proxy.waited, [0.5]);
});

await check('other errors and long pauses are not retried', async () => {
    for (const response of [
        failure(409, 'idempotency_key_reused'),
        failure(422, 'validation_failed'),
        failure(402, 'limit_reached'),
        failure(429, 'rate_limited', { 'Retry-After': '3600' }),
        new Response(null, { status: 302, headers: { Location: 'https://other.example' } }),
    ]) {
        const { client, requests } = prepared([response]);
        assert.equal((await errorOf(client.post('/brands', {}))).status, response.status);
        assert.equal(requests.length, 1);
        assert.equal(requests[0]?.redirect, 'manual');
    }
});

await check('the API key is not sent to other servers', async () => {
    const { client, requests } = prepared([]);
    for (const other of ['https://other.example/api/public/v1/brands', 'https://crier.example.org/api/public/v1/']) {
        await assert.rejects(client.fetch(other), TypeError);
    }
    assert.equal(requests.length, 0);
});

await check('waiting ends with the work', async () => {
    const states = (...names: string[]) => names.map((status) => json(200, { data: { status } }));
    const post = prepared(states('scheduled', 'publishing', 'partially_published'));
    assert.equal((await post.client.waitForPost(1, 2)).status, 'partially_published');
    assert.equal(post.requests[0]?.url, 'https://crier.example/api/public/v1/brands/1/posts/2/status');
    const report = prepared(states('pending', 'processing', 'failed'));
    assert.equal((await report.client.waitForReport(1, 3)).status, 'failed');
    assert.equal(report.requests[0]?.url, 'https://crier.example/api/public/v1/brands/1/reports/deliveries/3');
});

await check('waiting ends at the deadline', async () => {
    const responses = Array.from({ length: 50 }, () => json(200, { data: { status: 'processing' } }));
    const { client, waited } = prepared(responses);
    await assert.rejects(client.waitFor('/brands/1/media/jobs/1', undefined, { timeout: 60_000 }), WaitTimeoutError);
    assert.deepEqual(waited.slice(0, 3), [1, 1.5, 2.25]);
    assert(waited.reduce((sum, pause) => sum + pause, 0) <= 60);
});

// --- Webhooks ------------------------------------------------------------------------------------------------------

await check('signatures are verified', async () => {
    // The signature in docs/webhooks.md.
    const body = '{"event":"brand.created","data":{"brand_id":17,"name":"Acme Bakery"}}';
    const secret = 'whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN';
    const v1 = '11fc7ed425ca79b127a95413f68ee1582fd66f6a45aa2322cee11415ad0423b5';
    const [now, wrong] = [1_700_000_000, '0'.repeat(64)];
    for (const header of [`t=${now},v1=${v1}`, `t=${now},v1=${wrong},v1=${v1}`, `t=${now},v0=x,v1=${v1}`]) {
        const event = await verifyWebhook(body, header, ['whsec_new', secret], { now: now + 299 });
        assert.equal(event.data.brand_id, 17);
    }
    const bytes = new TextEncoder().encode(body);
    assert.equal((await verifyWebhook(bytes, `t=${now},v1=${v1}`, secret, { now: now - 299 })).event, 'brand.created');
    const rejects = (text: string, header: string | undefined, used: string, at: number) =>
        assert.rejects(verifyWebhook(text, header, used, { now: at }), SignatureError, header ?? 'no header');
    await rejects(`${body} `, `t=${now},v1=${v1}`, secret, now);
    await rejects(body, `t=${now},v1=${v1}`, 'whsec_other', now);
    await rejects(body, `t=${now},v1=${v1}`, secret, now + 301);
    await rejects(body, `t=${now},v1=${v1}`, secret, now - 301);
    await rejects(body, `t=${now - 1},v1=${v1}`, secret, now);
    const headers = [undefined, '', 'nonsense', 't=', `t=${now}`, `v1=${v1}`, `t=x,v1=${v1}`, `t=${now},v1=`, ',=,='];
    headers.push(`t=${now},v1=${v1.slice(1)}`, `t=${now},t=${now},v1=${v1}`);
    for (const header of headers) await rejects(body, header, secret, now);
});

console.log(`TypeScript: ${passed} checks passed.`);
