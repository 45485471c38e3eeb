// Uses docs/examples/clients/crier.ts together with a client that openapi-ts generated into `generated`.
//
//   CRIER_URL=http://… CRIER_KEY=svc_live_… node generated.js
import assert from 'node:assert/strict';

import { Crier, verifyWebhook } from './crier.js';
import { createClient } from './generated/client/index.js';
import { createPost, downloadReportDelivery, getPostStatus } from './generated/sdk.gen.js';
import type { NewPost, NewReport, Post, PostDetail, Report, ReportDelivery, Webhooks } from './generated/types.gen.js';

const [url, apiKey] = [process.env['CRIER_URL'] ?? '', process.env['CRIER_KEY'] ?? ''];
const crier = new Crier(url, apiKey, { sleep: async () => undefined });

// The types with the requests of crier.ts.
const post: NewPost = { content: 'Draft' };
const created = await crier.post<{ data: PostDetail }>('/brands/1/posts', post);
const targets: PostDetail['targets'] = created.data.targets;
assert.deepEqual(targets, []);
let listed: Post | undefined;
for await (const one of crier.list<Post>('/brands/1/posts', { per_page: 5 })) listed ??= one;
assert.equal(listed?.id, created.data.id);

// The functions with the retries of crier.ts. The proxy cuts the connection of the first request.
const client = createClient({ baseUrl: crier.baseUrl, fetch: crier.fetch });
const key = crypto.randomUUID();
const made = await createPost({ client, path: { brand: 1 }, headers: { 'Idempotency-Key': key }, body: post });
assert.equal(made.data?.data.status, 'draft', JSON.stringify(made.error));
assert.equal(made.response?.headers.get('Idempotent-Replayed'), 'true');
const status = await getPostStatus({ client, path: { brand: 1, post: made.data.data.id } });
assert.equal(status.data?.data.status, 'draft');
const missing = await getPostStatus({ client, path: { brand: 1, post: 999_999 } });
assert.equal(missing.error?.error.code, 'not_found');

// Files are read as `blob`. Waiting needs the default `sleep`.
const patient = new Crier(url, apiKey);
const report: NewReport = { name: 'Posts', widgets: [{ type: 'posts_table' }] };
const { data: { id } } = await crier.post<{ data: Report }>('/brands/1/reports', report);
const path = `/brands/1/reports/${id}/export`;
const { data: delivery } = await crier.post<{ data: ReportDelivery }>(path, { format: 'csv' });
await patient.waitForReport(1, delivery.id, { pause: 20 });
const file = await downloadReportDelivery({ client, path: { brand: 1, delivery: delivery.id }, parseAs: 'blob' });
assert.equal(file.response?.status, 200);
assert((file.data as unknown as Blob).size > 0);

// Events have types.
type Event = Webhooks['body'];
export async function receive(body: Uint8Array<ArrayBuffer>, signature: string | null): Promise<string> {
    const event = await verifyWebhook<Event>(body, signature, 'whsec_…');
    return event.event === 'post.failed' ? event.data.error.message : event.event;
}
console.log('  ok      TypeScript: the generated client');
