import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { Crier } from '../dist/nodes/Crier/Crier.node.js';
import { raiseError } from '../dist/nodes/Crier/shared/errors.js';
import { addIdempotencyKey } from '../dist/nodes/Crier/shared/idempotency.js';
import { allRecords } from '../dist/nodes/Crier/shared/pages.js';
import { events } from '../dist/nodes/CrierTrigger/events.js';

const { properties } = new Crier().description;
const operations = properties
	.filter((property) => property.name === 'operation')
	.flatMap(({ displayOptions, options }) =>
		options.map((option) => ({ ...option, resource: displayOptions.show.resource[0] })),
	);

test('every write has an Idempotency-Key, and no read', () => {
	for (const { resource, value, routing } of operations) {
		const isWrite = routing.request.method !== 'GET' && value !== 'validate';
		assert.equal(routing.send?.preSend?.includes(addIdempotencyKey) ?? false, isWrite, `${resource} ${value}`);
		assert.equal(routing.output.postReceive[0], raiseError, `${resource} ${value}`);
	}
});

test('a list of options has no functions, which n8n would lose', () => {
	const lists = properties.flatMap((property) => [property, ...(property.options ?? [])])
		.map((property) => property.typeOptions?.loadOptions?.routing)
		.filter(Boolean);
	assert.ok(lists.length >= 5);
	for (const routing of lists) {
		assert.deepEqual(JSON.parse(JSON.stringify(routing)), routing);
	}
});

/** The parts of n8n that the steps of a request use. */
const item = ({ execution = '12', index = 0, run = 0, node = 'node-1' } = {}) => ({
	getExecutionId: () => execution,
	getItemIndex: () => index,
	getInstanceId: () => 'instance-1',
	getWorkflow: () => ({ id: 'workflow-1' }),
	getNode: () => ({ id: node, name: 'Crier', type: 'crier' }),
	evaluateExpression: (expression) => (expression === '{{ $runIndex }}' ? run : undefined),
});

test('the Idempotency-Key is the same for a retry, and another for each item, run, node and execution', async () => {
	const key = async (options) =>
		(await addIdempotencyKey.call(item(options), { url: '/', headers: { a: 'b' } })).headers['Idempotency-Key'];
	const first = await key();
	assert.match(first, /^n8n-12-0-[0-9a-f]{32}$/);
	assert.equal(await key(), first);
	const others = [{ index: 1 }, { run: 1 }, { node: 'node-2' }, { execution: '13' }];
	const keys = await Promise.all(others.map(key));
	assert.equal(new Set([first, ...keys]).size, 5);
});

test("an error has the API's message, fields, code and request", async () => {
	const error = {
		code: 'validation_failed',
		message: '`accounts.0` is not valid: Account 7 does not exist in this brand.',
		fields: { 'accounts.0': ['Account 7 does not exist in this brand.'], content: ['Too long.', 'Empty.'] },
		request_id: 'req_1',
	};
	const response = { statusCode: 422, headers: {}, body: { error } };
	await assert.rejects(raiseError.call(item({ index: 3 }), [], response), (raised) => {
		assert.equal(raised.message, error.message);
		assert.equal(raised.httpCode, '422');
		assert.equal(raised.context.itemIndex, 3);
		assert.equal(
			raised.description,
			'accounts.0: Account 7 does not exist in this brand.\ncontent: Too long. Empty.\n' +
				'Code: validation_failed\nRequest: req_1',
		);
		return true;
	});
});

test('a response that is not of Crier says what to check', async () => {
	for (const [response, message] of [
		[{ statusCode: 301, headers: { location: 'https://b.example/' } }, /redirects to https:\/\/b\.example\//],
		[{ statusCode: 502, headers: {}, body: '<html>' }, /status 502.*base URL/],
	]) {
		await assert.rejects(raiseError.call(item(), [], response), message);
	}
	assert.deepEqual(await raiseError.call(item(), ['kept'], { statusCode: 200, headers: {} }), ['kept']);
});

/** Lists records in pages of at most `size`, as Crier does. */
async function list(pages, options = {}) {
	const requested = [];
	const self = {
		async makeRoutingRequest({ options: { qs } }) {
			requested.push(qs);
			return [{ json: pages[requested.length - 1] }];
		},
	};
	const records = await allRecords.call(self, { options: { qs: { status: 'draft' } }, ...options });
	return { requested, ids: records.map(({ json }) => json.id) };
}
const page = (ids, next) => ({
	data: ids.map((id) => ({ id })),
	links: { next: next ? `http://internal.example/api/public/v1/brands/1/posts?status=draft&${next}` : null },
});

test('all pages are listed, and a record on two pages once', async () => {
	const { requested, ids } = await list([page([5, 4, 3], 'per_page=100&page=2'), page([3, 2], 'per_page=2&page=3'), page([1])]);
	assert.deepEqual(ids, [5, 4, 3, 2, 1]);
	assert.deepEqual(requested, [
		{ status: 'draft', page: 1, per_page: 100 },
		{ status: 'draft', page: 2, per_page: 100 },
		{ status: 'draft', page: 3, per_page: 2 },
	]);
});

test('a limit ends the list', async () => {
	const { requested, ids } = await list([page([5, 4], 'per_page=3&page=2'), page([3, 2], 'page=3')], { maxResults: 3 });
	assert.deepEqual(ids, [5, 4, 3]);
	assert.equal(requested[0].per_page, 3);
});

test('an empty page ends the list', async () => {
	assert.deepEqual((await list([page([], 'page=2')])).ids, []);
});

const SNAPSHOT = new URL(
	'../../../../api/endpoints/src/openapi/snapshots/crier_endpoints__openapi__tests__the_document_is_what_was_promised.snap',
	import.meta.url,
);

// Only in a checkout of Crier. The published package has no tests.
test('the nodes match the OpenAPI document', { skip: !existsSync(SNAPSHOT) }, () => {
	const api = JSON.parse(readFileSync(SNAPSHOT, 'utf8').split('---\n').slice(2).join('---\n'));
	const { schemas, parameters } = api.components;
	const resolve = (schema) => (schema.$ref ? schemas[schema.$ref.split('/').at(-1)] : schema);
	assert.deepEqual(events.map(({ value }) => value).sort(), [...schemas.EventName.enum].sort());

	/** The properties that the operation shows, with those in its collections. */
	const fieldsOf = (resource, operation) =>
		properties
			.filter(({ displayOptions: { show } = {} }) =>
				show && (!show.operation || show.operation.includes(operation)) && show.resource?.includes(resource))
			.flatMap((property) => [property, ...(property.type === 'collection' ? property.options : [])]);
	for (const { resource, value: operation, routing } of operations) {
		const name = `${resource} ${operation}`;
		const { method, url, body } = routing.request;
		const shape = (path) => path.replace(/^=/, '').replaceAll(/\{\{.*?\}\}|\{.*?\}/g, '{}');
		const path = Object.keys(api.paths).find((one) => shape(one) === shape(url));
		const documented = api.paths[path]?.[method.toLowerCase()];
		assert.ok(documented, `${name}: ${method} ${url}`);
		const request = documented.requestBody && resolve(documented.requestBody.content['application/json'].schema);
		const query = (documented.parameters ?? []).concat(api.paths[path].parameters ?? [])
			.map((one) => (one.$ref ? parameters[one.$ref.split('/').at(-1)] : one))
			.filter((one) => one.in === 'query');
		for (const field of Object.keys(body ?? {})) assert.ok(request.properties[field], `${name}: ${field}`);
		for (const { name: field, type, options, routing: { send } = {} } of fieldsOf(resource, operation)) {
			if (!send?.property) continue;
			const schema = send.type === 'body'
				? request?.properties[send.property.split('.')[0]]
				: query.find((one) => one.name === send.property)?.schema;
			assert.ok(schema, `${name}: ${field} is no ${send.type} field`);
			const choices = [schema, ...(schema.anyOf ?? [])].map(resolve).find((one) => one.enum)?.enum;
			if (type === 'options' && choices) {
				for (const { value } of options ?? []) assert.ok(choices.includes(value), `${name}: ${field} ${value}`);
			}
		}
	}
});
