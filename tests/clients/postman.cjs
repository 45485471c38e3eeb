// Imports the OpenAPI document as Postman does, and sends requests of the collection with newman.
//
//   CRIER_KEY=svc_live_… node postman.cjs DOCUMENT API_URL GUIDE
const assert = require('node:assert/strict');
const fs = require('node:fs');
const newman = require('newman');
const { convertV2 } = require('openapi-to-postmanv2');
const { assertDocumented, operations } = require('./operations.cjs');

const [document, api, guide] = process.argv.slice(2);
const SCRIPT = `if (pm.request.method !== 'GET') {
    pm.request.headers.upsert({ key: 'Idempotency-Key', value: pm.variables.replaceIn('{{$guid}}') });
}`;

function requests(items) {
    return items.flatMap((item) => (item.item ? requests(item.item) : [item]));
}

const options = { folderStrategy: 'Tags', parametersResolution: 'Example' };
convertV2({ type: 'string', data: fs.readFileSync(document, 'utf8') }, options, (error, result) => {
    assert(!error && result.result, error ?? result.reason);
    const collection = result.output[0].data;
    assert.equal(collection.auth.type, 'bearer');
    assert.equal(collection.auth.bearer[0].value, '{{bearerToken}}');
    assert.deepEqual(collection.variable.map((variable) => variable.key), ['baseUrl']);
    const imported = requests(collection.item);
    const expected = operations(document);
    assert.equal(imported.length, expected.length);
    for (const { name, method, body, needsKey } of expected) {
        const item = imported.find((one) => one.name === name && one.request.method === method);
        assert(item, `${method} ${name}`);
        if (body) assert.deepEqual(JSON.parse(item.request.body.raw), body, name);
        assert.equal(item.request.header.some((header) => header.key === 'Idempotency-Key'), needsKey, name);
    }
    console.log(`  ok      Postman: ${imported.length} requests with their examples and the API key`);

    assertDocumented(guide, SCRIPT);
    collection.event = [{ listen: 'prerequest', script: { type: 'text/javascript', exec: SCRIPT.split('\n') } }];
    const find = (name) => ({ ...imported.find((item) => item.name === name), response: [] });
    const connect = find('Connect an account with credentials');
    // Other bodies than the example, as a person would send them, with the key of the example.
    const create = (content) => {
        const item = structuredClone(find('Create a post'));
        item.request.body.raw = JSON.stringify({ content });
        return item;
    };
    collection.item = [find("List the brands of the key's user"), connect, create('One'), create('Two')];
    const envVar = [{ key: 'baseUrl', value: api }, { key: 'bearerToken', value: process.env.CRIER_KEY }];
    newman.run({ collection, envVar }, (failure, summary) => {
        assert(!failure, failure);
        const codes = summary.run.executions.map((execution) => execution.response?.code);
        assert.deepEqual(codes, [200, 201, 201, 201]);
        console.log('  ok      Postman: requests succeed');
    });
});
