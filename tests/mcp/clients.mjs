// Crier's MCP server with the official clients for JavaScript: @modelcontextprotocol/client, which negotiates the
// revision, and @modelcontextprotocol/sdk, which has only the older ones. scripts/mcp sets the environment.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { MCP_URL, KEY, MCP_PACKAGES } = process.env;
const packages = createRequire(`${MCP_PACKAGES}/package.json`);
// Both packages have a build for `require`, which is what the resolution from another directory finds.
const load = async (name) => await import(pathToFileURL(packages.resolve(name)));

async function check(name, run) {
    try {
        await run();
        console.log(`  ok      ${name}`);
    } catch (error) {
        console.log(`  FAILED  ${name}: ${`${error}`.replaceAll(/\s+/g, ' ').slice(0, 500)}`);
        console.error(error);
    }
}
function expectEqual(actual, expected, what) {
    if (actual === expected) return;
    throw new Error(`${what} is ${JSON.stringify(actual)}, expected ${JSON.stringify(expected)}`);
}
const expectSuccess = (result) => expectEqual(result.isError ?? false, false, `isError of ${JSON.stringify(result)}`);

// Lists, reads and writes. The clients validate results against the output schemas.
async function converse(name, client) {
    let brand;
    await check(`${name}: lists the tools`, async () => {
        const { tools } = await client.listTools();
        expectEqual(tools.some((tool) => tool.name === 'save_draft'), true, 'whether the list has save_draft');
    });
    await check(`${name}: calls a tool that reads`, async () => {
        const result = await client.callTool({ name: 'list_brands', arguments: {} });
        expectSuccess(result);
        brand = { brand_id: result.structuredContent.data[0].id };
    });
    await check(`${name}: calls a tool that writes`, async () => {
        const result = await client.callTool({ name: 'save_draft', arguments: { ...brand, content: name } });
        expectSuccess(result);
        expectEqual(result.structuredContent.data.status, 'draft', 'the status');
    });
    await check(`${name}: an error is a result with its paths`, async () => {
        const result = await client.callTool({ name: 'save_draft', arguments: { ...brand, content: 1 } });
        expectEqual(result.isError, true, 'isError');
        expectEqual(Object.keys(result.structuredContent.error.fields).join(), 'content', 'the list of paths');
    });
    return brand;
}

const requestInit = { headers: { Authorization: `Bearer ${KEY}` } };

{
    const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
    const name = 'javascript client';
    const options = { versionNegotiation: { mode: 'auto' }, capabilities: { elicitation: {} } };
    const client = new Client({ name: 'scripts-mcp', version: '1' }, options);
    let forms = 0;
    client.setRequestHandler('elicitation/create', async (request) => {
        forms += 1;
        const fields = Object.keys(request.params.requestedSchema.properties);
        return { action: 'accept', content: Object.fromEntries(fields.map((field) => [field, true])) };
    });
    await check(`${name}: connects with revision 2026-07-28`, async () => {
        await client.connect(new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit }));
        expectEqual(client.getNegotiatedProtocolVersion(), '2026-07-28', 'the revision');
    });
    const brand = await converse(name, client);
    await check(`${name}: publishes if the form is accepted`, async () => {
        const accounts = await client.callTool({ name: 'list_accounts', arguments: brand });
        const post = { content: `Form of ${name}`, accounts: [accounts.structuredContent.data[0].id] };
        const draft = await client.callTool({ name: 'save_draft', arguments: { ...brand, ...post } });
        const ids = { ...brand, post_id: draft.structuredContent.data.id };
        expectSuccess(await client.callTool({ name: 'publish_post', arguments: ids }));
        expectEqual(forms, 1, 'the number of forms');
    });
    await client.close();
}

{
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const name = 'javascript sdk';
    const client = new Client({ name: 'scripts-mcp', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit });
    await check(`${name}: connects with revision 2025-11-25`, async () => {
        await client.connect(transport);
        expectEqual(transport.protocolVersion, '2025-11-25', 'the revision');
        expectEqual(transport.sessionId, undefined, 'the session');
    });
    await converse(name, client);
    await client.close();
}
