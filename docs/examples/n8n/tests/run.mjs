// Runs the nodes in a real n8n against a real Crier. Started by scripts/n8n, which explains the arguments.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const [dir, node, n8n, crier, key] = process.argv.slice(2);
const port = await new Promise((found) => {
	const server = createServer().listen(0, '127.0.0.1', () => {
		const { port } = server.address();
		server.close(() => found(port));
	});
});
const url = `http://127.0.0.1:${port}`;
const environment = {
	PATH: process.env.PATH,
	HOME: dir,
	N8N_USER_FOLDER: dir,
	N8N_PORT: String(port),
	N8N_LISTEN_ADDRESS: '127.0.0.1',
	WEBHOOK_URL: url,
	N8N_SECURE_COOKIE: 'false',
	N8N_DIAGNOSTICS_ENABLED: 'false',
	N8N_PERSONALIZATION_ENABLED: 'false',
	N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
	N8N_TEMPLATES_ENABLED: 'false',
	N8N_RUNNERS_ENABLED: 'false',
	N8N_LOG_LEVEL: 'info',
};

/** Runs a command of n8n and returns its output. The output is a file, because n8n exits before a pipe is empty. */
async function command(...words) {
	const output = openSync(`${dir}/output`, 'w');
	const child = spawn(node, [n8n, ...words], { env: environment, stdio: ['ignore', output, output], timeout: 120_000 });
	await once(child, 'exit');
	closeSync(output);
	return readFileSync(`${dir}/output`, 'utf8');
}

async function call(method, path, body) {
	const response = await fetch(`${crier}/api/public/v1${path}`, {
		method,
		headers: {
			Authorization: `Bearer ${key}`,
			'Content-Type': 'application/json',
			'Idempotency-Key': crypto.randomUUID(),
		},
		...(body && { body: JSON.stringify(body) }),
	});
	assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
	return (await response.json()).data;
}

/** Repeats the function until it returns a value that is not false, for at most 60 s. */
async function until(what, get) {
	for (let turn = 0; turn < 300; turn++) {
		const value = await get();
		if (value) return value;
		await sleep(200);
	}
	throw new Error(`${what}: not within 60 s`);
}

const drafts = (text) => call('GET', `/brands/1/posts?status=draft&search=${encodeURIComponent(text)}`);

async function check(name, run) {
	await run();
	console.log(`  ok      ${name}`);
}

// Loses the response to the first write.
const keys = [];
const proxy = createHttpServer(async (request, response) => {
	const chunks = [];
	for await (const chunk of request) chunks.push(chunk);
	const { host, connection, 'content-length': length, ...headers } = request.headers;
	const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
	const reply = await fetch(`${crier}${request.url}`, { method: request.method, headers, body });
	keys.push({ key: headers['idempotency-key'], isReplay: reply.headers.has('idempotent-replayed') });
	const bytes = Buffer.from(await reply.arrayBuffer());
	if (keys.length === 1) return request.socket.destroy();
	response.writeHead(reply.status, { 'Content-Type': reply.headers.get('content-type') }).end(bytes);
}).listen(0, '127.0.0.1');
await once(proxy, 'listening');

// --- Workflows ------------------------------------------------------------------------------------------------------------

const credentials = { crierApi: { id: 'crierCredential1', name: 'Crier' } };
const lossy = { crierApi: { id: 'crierCredential2', name: 'Crier by the proxy' } };
const action = (name, parameters, more = {}) => ({
	id: crypto.randomUUID(),
	name,
	type: 'n8n-nodes-crier.crier',
	typeVersion: 1,
	position: [300, 0],
	parameters: { brand: 1, ...parameters },
	credentials,
	...more,
});
const manual = {
	id: crypto.randomUUID(),
	name: 'Start',
	type: 'n8n-nodes-base.manualTrigger',
	typeVersion: 1,
	position: [0, 0],
	parameters: {},
};
const trigger = {
	id: crypto.randomUUID(),
	name: 'Start',
	type: 'n8n-nodes-crier.crierTrigger',
	typeVersion: 1,
	position: [0, 0],
	webhookId: crypto.randomUUID(),
	parameters: { events: ['post.published', 'post.failed'], brands: [1] },
	credentials,
};
function workflow(id, ...nodes) {
	const connections = {};
	for (let at = 1; at < nodes.length; at++) {
		connections[nodes[at - 1].name] = { main: [[{ node: nodes[at].name, type: 'main', index: 0 }]] };
	}
	return { id, name: id, nodes, connections, settings: {}, active: false };
}

const [account] = await call('POST', '/brands/1/social-accounts', {
	platform: 'sandbox',
	credentials: { handle: 'demo' },
});
const draft = { resource: 'post', operation: 'create', scheduleType: 'draft' };
writeFileSync(
	`${dir}/credentials.json`,
	JSON.stringify([
		{ ...credentials.crierApi, type: 'crierApi', data: { baseUrl: `${crier}/`, apiKey: key } },
		{
			...lossy.crierApi,
			type: 'crierApi',
			data: { baseUrl: `http://127.0.0.1:${proxy.address().port}`, apiKey: key },
		},
	]),
);
writeFileSync(
	`${dir}/workflows.json`,
	JSON.stringify([
		workflow(
			'drafts',
			manual,
			action('One', {
				...draft,
				content: 'From a workflow',
				accounts: [account.id],
				additionalFields: { labels: 'news, n8n', firstComment: 'First', thread: { parts: [{ content: 'Second' }] } },
			}),
			action('Two', { ...draft, content: '=Copy of {{ $json.id }}' }),
			action('Update', { resource: 'post', operation: 'update', postId: '={{ $json.id }}', updateFields: { content: 'Changed copy' } }),
			action('List', { resource: 'post', operation: 'getAll', returnAll: true, filters: { status: 'draft' } }),
		),
		workflow('delete', manual, action('Delete', { resource: 'post', operation: 'delete', postId: 2 })),
		workflow('mistake', manual, action('One', { ...draft, content: 'Mistake', accounts: [999] })),
		workflow(
			'retry',
			manual,
			action(
				'One',
				{ ...draft, content: 'Sent twice' },
				{ credentials: lossy, retryOnFail: true, maxTries: 3, waitBetweenTries: 100 },
			),
		),
		workflow('events', trigger, action('Note', { ...draft, content: '=Saw {{ $json.event }} of {{ $json.data.post_id }}' })),
	]),
);
await command('import:credentials', `--input=${dir}/credentials.json`);
await command('import:workflow', `--input=${dir}/workflows.json`);

// --- Actions --------------------------------------------------------------------------------------------------------------

await check('a workflow creates, updates and lists drafts', async () => {
	const output = await command('execute', '--id=drafts', '--rawOutput');
	const [found, ...others] = await drafts('workflow');
	assert.ok(found && others.length === 0, output);
	const post = await call('GET', `/brands/1/posts/${found.id}`);
	assert.deepEqual(post.accounts, [account.id]);
	assert.deepEqual([...post.labels].sort(), ['n8n', 'news']);
	assert.equal(post.thread[0].content, 'Second');
	assert.equal(post.first_comment.content, 'First');
	assert.equal((await drafts('Changed')).length, 1, output);
	const { data } = JSON.parse(output.slice(output.indexOf('{'), output.lastIndexOf('}') + 1));
	const listed = data.resultData.runData.List[0].data.main[0].map(({ json }) => json.content);
	assert.deepEqual(listed, ['Changed copy', 'From a workflow']);
});
await check('a workflow deletes a draft', async () => {
	const output = await command('execute', '--id=delete', '--rawOutput');
	assert.match(output, /"deleted":\s*true/);
	assert.equal((await drafts('Changed')).length, 0, output);
});
await check('an error shows the fields of the API', async () => {
	const output = await command('execute', '--id=mistake', '--rawOutput');
	assert.match(output, /accounts\.0/);
	assert.match(output, /validation_failed/);
	assert.equal((await drafts('Mistake')).length, 0);
});

await check('a retry after a lost response creates nothing twice', async () => {
	const output = await command('execute', '--id=retry', '--rawOutput');
	proxy.close();
	assert.equal((await drafts('twice')).length, 1, output);
	assert.equal(keys.length, 2, output);
	assert.equal(keys[0].key, keys[1].key);
	assert.deepEqual(keys.map((one) => one.isReplay), [false, true]);
});

// --- Trigger --------------------------------------------------------------------------------------------------------------

const published = await command('publish:workflow', '--id=events');
const log = openSync(`${dir}/n8n.log`, 'a');
const server = spawn(node, [n8n, 'start'], { env: environment, stdio: ['ignore', log, log] });
try {
	const webhook = await until(`n8n registers its webhook ${published}`, async () => {
		const [found] = await call('GET', '/webhooks');
		return found;
	});
	assert.deepEqual([...webhook.events].sort(), ['post.failed', 'post.published']);
	await until('n8n is ready', () => fetch(`${url}/healthz/readiness`).then((response) => response.ok, () => false));

	const saw = (text) => drafts(text).then((found) => (found.length > 0 ? found : false));
	const { id } = await call('POST', '/brands/1/posts', { content: 'Hello', schedule_type: 'now', accounts: [account.id] });
	await check('post.published starts the workflow', () => until('the draft of the event', () => saw(`published ${id}`)));

	await check('a repeated delivery does not', async () => {
		const deliveries = `/webhooks/${webhook.id}/deliveries`;
		const [delivery] = await call('GET', deliveries);
		await call('POST', `${deliveries}/${delivery.id}/retry`);
		const repeated = await until('the second attempt', async () => {
			const now = await call('GET', `${deliveries}/${delivery.id}`);
			return now.attempts === 2 && now;
		});
		assert.equal(repeated.response_code, 200);
		// The later event has started its workflow, so the repeated one would have too.
		const later = await call('POST', '/brands/1/posts', { content: '[fail]', schedule_type: 'now', accounts: [account.id] });
		await until('the draft of the later event', () => saw(`failed ${later.id}`));
		assert.equal((await saw(`published ${id}`)).length, 1);
	});
	await check('a request without a signature is rejected', async () => {
		const response = await fetch(webhook.url, {
			method: 'POST',
			headers: { 'Content-Type': 'application/json', 'X-Webhook-Delivery-Id': '99' },
			body: JSON.stringify({ event: 'post.published', data: { post_id: 4711, brand_id: 1 } }),
		});
		assert.equal(response.status, 400);
	});

	// --- What the editor does ---------------------------------------------------------------------------------------------

	const setup = await fetch(`${url}/rest/owner/setup`, {
		method: 'POST',
		headers: { 'Content-Type': 'application/json' },
		body: JSON.stringify({ email: 'owner@crier.example', firstName: 'O', lastName: 'O', password: 'Password-1' }),
	});
	assert.ok(setup.ok, await setup.text());
	const headers = { 'Content-Type': 'application/json', Cookie: setup.headers.get('set-cookie').split(';')[0] };
	const editor = async (path, body) => {
		const response = await fetch(`${url}/rest${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
		assert.ok(response.ok, `${path}: ${response.status} ${await response.clone().text()}`);
		return (await response.json()).data;
	};
	const types = await (await fetch(`${url}/types/nodes.json`, { headers })).json();
	const described = types.find(({ name }) => name === 'n8n-nodes-crier.crier').properties;
	const options = (property, path, type = 'crier', list = {}) =>
		editor('/dynamic-node-parameters/options', {
			path,
			nodeTypeAndVersion: { name: `n8n-nodes-crier.${type}`, version: 1 },
			currentNodeParameters: { resource: 'post', operation: 'create', brand: 1 },
			credentials,
			...(property ? { loadOptions: property.typeOptions.loadOptions } : list),
		});
	await check('the editor lists brands and accounts', async () => {
		const [brand] = await call('GET', '/brands');
		const brands = [{ name: brand.name, value: brand.id }];
		const field = (name) => described.find((one) => one.name === name && one.typeOptions?.loadOptions);
		assert.deepEqual(await options(field('brand'), 'parameters.brand'), brands);
		assert.deepEqual(await options(field('accounts'), 'parameters.accounts'), [
			{ name: `${account.name} (sandbox)`, value: account.id },
		]);
		assert.deepEqual(await options(undefined, 'parameters.brands', 'crierTrigger', { methodName: 'getBrands' }), brands);
	});
	await check('the node is offered as a tool', () =>
		assert.ok(types.some(({ name }) => name === 'n8n-nodes-crier.crierTool')));
	await check('deactivating the workflow deletes the webhook', async () => {
		await editor('/workflows/events/deactivate', {});
		await until('the webhook is deleted', async () => (await call('GET', '/webhooks')).length === 0);
	});
} finally {
	server.kill('SIGTERM');
	await Promise.race([once(server, 'exit'), sleep(20_000).then(() => server.kill('SIGKILL'))]);
}
