import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import test from 'node:test';
import { CrierTrigger } from '../dist/nodes/CrierTrigger/CrierTrigger.node.js';
import { takeDelivery } from '../dist/nodes/CrierTrigger/deliveries.js';

const SECRET = 'whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN';
const URL = 'https://n8n.example/webhook/1/webhook';
const trigger = new CrierTrigger();

let workflows = 0;
/** The parts of n8n that a trigger uses: parameters, static data, and a request or an API. */
function n8n({ parameters = {}, data = {}, url = URL, api } = {}) {
	const workflow = { id: `workflow-${++workflows}`, name: 'News' };
	return {
		data,
		getWorkflow: () => workflow,
		getNode: () => ({ id: 'node-1', name: 'Crier Trigger' }),
		getWorkflowStaticData: () => data,
		getNodeWebhookUrl: () => url,
		getNodeParameter: (name, fallback) => parameters[name] ?? fallback,
		getCredentials: async () => ({ baseUrl: 'https://crier.example/' }),
		helpers: {
			returnJsonArray: (items) => items.map((json) => ({ json })),
			async httpRequestWithAuthentication(credential, request) {
				assert.equal(credential, 'crierApi');
				assert.equal(request.disableFollowRedirect, true);
				return api(request);
			},
		},
	};
}

const EVENT = { event: 'post.published', data: { post_id: 1, brand_id: 17 } };
const SUBSCRIBED = { events: ['post.published'], brands: [] };

/** Delivers an event to the node. */
async function deliver(context, { id = '7', event = EVENT, secret = SECRET, headers = {}, body } = {}) {
	const raw = body ?? Buffer.from(JSON.stringify(event));
	const time = Math.floor(Date.now() / 1000);
	const mac = createHmac('sha256', secret).update(`${time}.`).update(raw).digest('hex');
	let status;
	const result = await trigger.webhook.call({
		...context,
		getHeaderData: () => ({
			'x-webhook-delivery-id': id,
			'x-webhook-event-id': '3',
			'x-webhook-signature': `t=${time},v1=${mac}`,
			...headers,
		}),
		getBodyData: () => event,
		getRequestObject: () => ({ rawBody: raw }),
		getResponseObject: () => ({ status: (code) => ({ json: () => (status = code) }) }),
	});
	return { started: result.workflowData?.[0], status, result };
}

const withSecret = (options) =>
	n8n({ parameters: SUBSCRIBED, data: { endpoints: { [URL]: { id: 5, secret: SECRET } } }, ...options });

test('an event starts the workflow', async () => {
	const { started } = await deliver(withSecret());
	assert.deepEqual(started, [{ json: { ...EVENT, deliveryId: '7', eventId: '3' } }]);
});

test('a repeated delivery is accepted but starts nothing', async () => {
	const context = withSecret();
	assert.ok((await deliver(context)).started);
	const { started, status, result } = await deliver(context);
	assert.equal(started, undefined);
	assert.equal(status, undefined);
	assert.equal(result.webhookResponse, 'OK');
	assert.ok((await deliver(context, { id: '8' })).started);
});

test('a repeated delivery starts nothing after a restart, which keeps only the static data', async () => {
	const first = withSecret();
	assert.ok((await deliver(first)).started);
	const second = withSecret({ data: JSON.parse(JSON.stringify(first.data)) });
	assert.equal((await deliver(second)).started, undefined);
});

test('a repeated delivery at the same moment starts nothing, although the static data is not stored yet', async () => {
	const context = withSecret();
	const before = JSON.parse(JSON.stringify(context.data));
	assert.ok((await deliver(context)).started);
	const other = { ...context, getWorkflowStaticData: () => before };
	assert.equal((await deliver(other)).started, undefined);
});

test('the stored delivery IDs are limited', () => {
	const data = {};
	for (let id = 1; id <= 600; id++) {
		assert.ok(takeDelivery(data, 'limited', String(id)));
	}
	assert.equal(data.deliveries.length, 500);
	assert.equal(data.deliveries.at(-1), '600');
});

test('a request without a valid signature gets 400 and starts nothing', async () => {
	for (const [why, context, options] of [
		['wrong secret', withSecret(), { secret: 'whsec_other' }],
		['no secret is stored', n8n({ parameters: SUBSCRIBED }), {}],
		['no signature', withSecret(), { headers: { 'x-webhook-signature': undefined } }],
		['no delivery ID', withSecret(), { headers: { 'x-webhook-delivery-id': undefined } }],
		['a body that is not raw', withSecret(), { body: JSON.stringify(EVENT) }],
	]) {
		const { started, status } = await deliver(context, options);
		assert.equal(started, undefined, why);
		assert.equal(status, 400, why);
	}
});

test('other events and brands start nothing', async () => {
	const context = withSecret({ parameters: { events: ['post.published'], brands: [17] } });
	assert.equal((await deliver(context, { id: '1', event: { ...EVENT, event: 'post.failed' } })).started, undefined);
	assert.equal((await deliver(context, { id: '2', event: { ...EVENT, data: { brand_id: 18 } } })).started, undefined);
	assert.ok((await deliver(context, { id: '3' })).started);
});

/** Webhook endpoints as Crier keeps them. */
function crier(webhooks = []) {
	const calls = [];
	const respond = (statusCode, data) => ({ statusCode, headers: {}, body: data && { data } });
	const api = ({ method, url, body, headers }) => {
		assert.equal('Idempotency-Key' in headers, method !== 'GET');
		const path = url.replace('https://crier.example/api/public/v1', '');
		calls.push(`${method} ${path}`);
		const [, , id, verb] = path.split('/');
		const one = webhooks.find((webhook) => String(webhook.id) === id);
		if (!id && method === 'GET') return respond(200, webhooks);
		if (!id) {
			const created = { id: 10 + webhooks.length, is_active: true, ...body };
			webhooks.push(created);
			return respond(201, { ...created, secret: SECRET });
		}
		if (!one) return { statusCode: 404, headers: {}, body: { error: { code: 'not_found' } } };
		if (verb === 'rotate-secret') return respond(200, { ...one, secret: 'whsec_rotated' });
		if (method === 'PUT') Object.assign(one, body);
		if (method === 'DELETE') webhooks.splice(webhooks.indexOf(one), 1);
		return method === 'DELETE' ? respond(204) : respond(200, one);
	};
	return { webhooks, calls, api };
}
const { checkExists, create, delete: remove } = trigger.webhookMethods.default;

test('the endpoint is created, found and deleted', async () => {
	const { webhooks, api } = crier();
	const context = n8n({ parameters: SUBSCRIBED, api });
	assert.equal(await checkExists.call(context), false);
	assert.equal(await create.call(context), true);
	assert.deepEqual(context.data.endpoints, { [URL]: { id: 10, secret: SECRET } });
	assert.equal(webhooks[0].description, 'n8n: News');
	assert.equal(await checkExists.call(context), true);
	assert.equal(await remove.call(context), true);
	assert.deepEqual([webhooks, context.data.endpoints], [[], {}]);
});

test('an endpoint that was deleted in Crier is created again', async () => {
	const { webhooks, api } = crier();
	const context = n8n({ parameters: SUBSCRIBED, api });
	await create.call(context);
	webhooks.length = 0;
	assert.equal(await checkExists.call(context), false);
	assert.deepEqual(context.data.endpoints, {});
	assert.equal(await remove.call(context), true);
});

test('an endpoint that Crier disabled, or with other events, is updated and keeps its secret', async () => {
	const { webhooks, api } = crier([{ id: 5, url: URL, events: ['post.failed'], is_active: false }]);
	const context = withSecret({ api });
	assert.equal(await checkExists.call(context), true);
	assert.deepEqual(webhooks, [{ id: 5, url: URL, events: ['post.published'], is_active: true }]);
	assert.equal(context.data.endpoints[URL].secret, SECRET);
});

test('an endpoint whose secret is unknown gets a new secret instead of a twin', async () => {
	const { webhooks, api } = crier([{ id: 5, url: URL, events: ['post.published'], is_active: true }]);
	const context = n8n({ parameters: SUBSCRIBED, api });
	assert.equal(await create.call(context), true);
	assert.deepEqual(context.data.endpoints, { [URL]: { id: 5, secret: 'whsec_rotated' } });
	assert.equal(webhooks.length, 1);
});

test('the test URL of the editor leaves the endpoint of the active workflow alone', async () => {
	const { webhooks, api } = crier();
	const active = n8n({ parameters: SUBSCRIBED, api });
	await create.call(active);
	const test = { ...active, getNodeWebhookUrl: () => URL.replace('webhook', 'webhook-test') };
	assert.equal(await checkExists.call(test), false);
	await create.call(test);
	await remove.call(test);
	assert.deepEqual(webhooks.map((one) => one.url), [URL]);
	assert.deepEqual(Object.keys(active.data.endpoints), [URL]);
});

test('an error of the API fails the activation with its message and fields', async () => {
	const fields = { url: ['Must be a public https URL.'] };
	const error = { code: 'invalid_webhook_url', message: 'The URL must be a public https URL.', fields };
	const api = ({ method }) =>
		method === 'GET'
			? { statusCode: 200, headers: {}, body: { data: [] } }
			: { statusCode: 422, headers: {}, body: { error } };
	await assert.rejects(create.call(n8n({ parameters: SUBSCRIBED, api })), (raised) => {
		assert.equal(raised.message, error.message);
		assert.match(raised.description, /url: Must be a public https URL\./);
		return true;
	});
});
