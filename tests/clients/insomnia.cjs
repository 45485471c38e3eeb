// Imports the OpenAPI document with the importer of Insomnia that is in npm. It does not read examples.
//
//   node insomnia.cjs DOCUMENT
const assert = require('node:assert/strict');
const fs = require('node:fs');
const { convert } = require('insomnia-importers');
const { operations } = require('./operations.cjs');

const [document] = process.argv.slice(2);
convert(fs.readFileSync(document, 'utf8')).then(({ data: { resources } }) => {
    const imported = resources.filter((resource) => resource._type === 'request');
    const expected = operations(document);
    assert.equal(imported.length, expected.length);
    for (const { name, method, body, needsKey } of expected) {
        const request = imported.find((one) => one.name === name && one.method === method);
        assert(request, `${method} ${name}`);
        assert.equal(request.authentication.type, 'bearer', name);
        assert.equal(request.authentication.token, '{{bearerToken}}', name);
        assert.equal(request.headers.some((header) => header.name === 'Idempotency-Key'), needsKey, name);
        if (body) assert.equal(typeof JSON.parse(request.body.text), 'object', name);
    }
    const [environment] = resources.filter((resource) => resource.data?.bearerToken);
    assert.equal(environment.data.base_path, '/api/public/v1');
    console.log(`  ok      Insomnia: ${imported.length} requests with the API key`);
});
