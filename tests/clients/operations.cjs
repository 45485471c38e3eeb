// The operations of the OpenAPI document, as the tests of the importers expect them.
const fs = require('node:fs');

/** Returns the summary, method and example body of each operation. */
exports.operations = (file) => {
    const document = JSON.parse(fs.readFileSync(file, 'utf8'));
    return Object.values(document.paths).flatMap((path) =>
        Object.entries(path).map(([method, operation]) => ({
            name: operation.summary,
            method: method.toUpperCase(),
            body: operation.requestBody?.content['application/json']?.example,
            needsKey: operation.parameters.some((parameter) => parameter.$ref?.endsWith('/IdempotencyKey')),
        })),
    );
};

/** Fails if docs/clients.md does not contain this text. */
exports.assertDocumented = (guide, text) => {
    if (!fs.readFileSync(guide, 'utf8').includes(text)) throw new Error(`docs/clients.md lacks: ${text}`);
};
