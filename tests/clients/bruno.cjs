// Imports the OpenAPI document with the command line of Bruno, and sends requests of the collection.
//
//   CRIER_KEY=svc_live_… node bruno.cjs DOCUMENT API_URL GUIDE DIRECTORY
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { assertDocumented, operations } = require('./operations.cjs');

const [document, api, guide, directory] = process.argv.slice(2);
const SCRIPT = "if (req.getMethod() !== 'GET') req.setHeader('Idempotency-Key', bru.interpolate('{{$guid}}'));";

const bru = (cwd, ...args) => {
    const command = path.resolve('node_modules/.bin/bru');
    try {
        return execFileSync(command, args, { cwd, encoding: 'utf8' });
    } catch (error) {
        throw new Error(`bru ${args[0]} failed: ${error.stdout}${error.stderr}`);
    }
};

const collection = path.join(directory, 'bruno', 'crier');
fs.mkdirSync(path.dirname(collection));
const place = ['--output', path.dirname(collection), '--collection-name', 'crier', '--collection-format', 'bru'];
bru(directory, 'import', 'openapi', '--source', document, ...place);

const files = fs.readdirSync(collection, { recursive: true }).filter((file) => file.endsWith('.bru'));
const texts = files.map((file) => fs.readFileSync(path.join(collection, file), 'utf8'));
const root = fs.readFileSync(path.join(collection, 'collection.bru'), 'utf8');
assert.match(root, /mode: bearer[^]*token: \{\{token\}\}/);
const expected = operations(document);
for (const { name, method, body, needsKey } of expected) {
    const pattern = new RegExp(`^meta \\{\n  name: (.*)\n[^]*?\n${method.toLowerCase()} \\{\n`);
    const text = texts.find((one) => one.match(pattern)?.[1] === name);
    assert(text, `${method} ${name}`);
    assert.match(text, /\n {2}auth: inherit\n/, name);
    const [request] = text.split('\nexample {');
    if (body) {
        const found = /\nbody:json \{\n([^]*?)\n\}\n/.exec(request);
        assert(found, `${name} has a body`);
        assert.deepEqual(JSON.parse(found[1]), body, name);
    }
    assert.equal(request.includes('\n  Idempotency-Key: '), needsKey, name);
}
console.log(`  ok      Bruno: ${expected.length} requests with their examples and the API key`);

assertDocumented(guide, SCRIPT);
fs.appendFileSync(path.join(collection, 'collection.bru'), `\nscript:pre-request {\n  ${SCRIPT}\n}\n`);
const post = path.join(collection, 'Posts', 'Create a post.bru');
const original = fs.readFileSync(post, 'utf8');
const ending = original.split('\nexample {')[0].replace(/\nbody:json \{\n[^]*?\n\}\n/, '\nBODY\n');
assert(ending.includes('\nBODY\n'));
const names = ['One', 'Two'].map((name) => {
    const body = `\nbody:json {\n  { "content": "${name}" }\n}\n`;
    fs.writeFileSync(path.join(collection, 'Posts', `${name}.bru`), ending.replace('\nBODY\n', body));
    return `Posts/${name}.bru`;
});
const values = ['--env-var', `baseUrl=${api}`, '--env-var', `token=${process.env.CRIER_KEY}`];
const results = path.join(directory, 'bruno.json');
bru(collection, 'run', 'Brands/Get a brand.bru', ...names, '--env', 'Environment 1', ...values, '--output', results);
const statuses = JSON.parse(fs.readFileSync(results, 'utf8'))[0].results.map((result) => result.response.status);
assert.deepEqual(statuses, [200, 201, 201]);
console.log('  ok      Bruno: requests succeed');
