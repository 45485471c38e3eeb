// Measures `tools/call list_posts` beside `GET /brands/{brand}/posts`, in turns: 200 of each one after another, then
// 1,000 of each from 20 connections. Both return 20 posts. Prints the times, and the memory of the processes after
// 1,000 more of each. Fails if a response is wrong.
import { readFileSync } from 'node:fs';
import http from 'node:http';

const { MCP_URL, API_URL, MCP_KEY, API_KEY, PIDS } = process.env;
const CONNECTIONS = 20;
const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS });

function request(url, options, body) {
    const began = performance.now();
    return new Promise((resolve, reject) => {
        const sent = http.request(url, { agent, ...options }, (response) => {
            const chunks = [];
            response.on('data', (chunk) => chunks.push(chunk));
            response.on('error', reject);
            response.on('end', () => {
                const text = Buffer.concat(chunks).toString();
                if (response.statusCode !== 200) reject(new Error(`${response.statusCode}: ${text.slice(0, 300)}`));
                else resolve({ time: performance.now() - began, text });
            });
        });
        sent.on('error', reject);
        sent.end(body);
    });
}

async function rest() {
    const headers = { authorization: `Bearer ${API_KEY}` };
    const { time, text } = await request(`${API_URL}/api/public/v1/brands/1/posts?per_page=20`, { headers });
    return { time, body: JSON.parse(text) };
}

const VERSION = '2026-07-28';
let id = 0;
async function mcp() {
    const _meta = {
        'io.modelcontextprotocol/protocolVersion': VERSION,
        'io.modelcontextprotocol/clientInfo': { name: 'scripts-mcp', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
    };
    const params = { name: 'list_posts', arguments: { brand_id: 1 }, _meta };
    const headers = {
        authorization: `Bearer ${MCP_KEY}`,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'mcp-protocol-version': VERSION,
        'mcp-method': 'tools/call',
        'mcp-name': 'list_posts',
    };
    id += 1;
    const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params });
    const { time, text } = await request(MCP_URL, { method: 'POST', headers }, body);
    const message = JSON.parse(text.startsWith('{') ? text : text.match(/^data: ?(\{.*)$/m)[1]);
    if (!message.result || message.result.isError) throw new Error(text.slice(0, 300));
    return { time, body: message.result.structuredContent };
}

const percentile = (times, share) => times.toSorted((a, b) => a - b)[Math.ceil(times.length * share) - 1];
const KINDS = { mcp, rest };

async function measure(name, rounds, round) {
    const times = { mcp: [], rest: [] };
    for (let turn = 0; turn < rounds; turn += 1) {
        // The other one is first in each second round.
        const order = turn % 2 ? ['mcp', 'rest'] : ['rest', 'mcp'];
        for (const kind of order) times[kind].push(...(await round(KINDS[kind])));
    }
    for (const share of [0.5, 0.99]) {
        const [a, b] = [percentile(times.mcp, share), percentile(times.rest, share)];
        const [shown, ratio] = [[a, b].map((time) => time.toFixed(2).padStart(8)), (a / b).toFixed(2)];
        const label = `${name}, p${share * 100}`.padEnd(26);
        console.log(`          ${label} MCP ${shown[0]} ms, GET ${shown[1]} ms, ratio ${ratio}`);
    }
}

function memory() {
    const status = (pid) => readFileSync(`/proc/${pid}/status`, 'utf8');
    const kib = (pid) => Number(status(pid).match(/^VmRSS:\s+(\d+)/m)[1]);
    return PIDS.split(' ').reduce((sum, pid) => sum + kib(pid), 0) / 1024;
}

const sequential = async (call) => [(await call()).time];
const concurrent = (calls) => async (call) => {
    const client = async () => {
        const times = [];
        for (let n = 0; n < calls; n += 1) times.push((await call()).time);
        return times;
    };
    return (await Promise.all(Array.from({ length: CONNECTIONS }, client))).flat();
};

try {
    for (let n = 0; n < 10; n += 1) {
        const [one, other] = [await mcp(), await rest()];
        if (JSON.stringify(one.body.data) !== JSON.stringify(other.body.data)) throw new Error('the two responses differ');
    }
    await measure('one after another', 200, sequential);
    await measure('20 at the same time', 5, concurrent(10));
    const used = [memory()];
    for (const kind of ['rest', 'mcp']) {
        await concurrent(50)(KINDS[kind]);
        used.push(memory());
    }
    const [before, get, call] = used.map((mib) => mib.toFixed(1));
    console.log(`          memory ${before} MiB, after 1,000 more GET ${get} MiB, after 1,000 more MCP ${call} MiB`);
    console.log('  ok      load: all responses are right');
} catch (error) {
    console.log(`  FAILED  load: ${error}`);
}
agent.destroy();
