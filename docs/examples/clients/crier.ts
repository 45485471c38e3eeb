// A client of Crier: idempotency keys, retries, pages, waiting, errors and webhook signatures. It has no dependencies,
// and works with or without generated types. docs/clients.md explains it.
//
//   const crier = new Crier('https://crier.example', key);
//   const post = { content: 'Hello', schedule_type: 'now', accounts: [1] };
//   const { data } = await crier.post('/brands/1/posts', post);
//   await crier.waitForPost(1, data.id);

const PREFIX = '/api/public/v1';

export interface Settings {
    /** Sends one request. Default: the global `fetch`. */
    fetch?: (request: Request) => Promise<Response>;
    /** Waits for this number of milliseconds. */
    sleep?: (milliseconds: number) => Promise<void>;
    /** Returns the current time, in milliseconds. */
    now?: () => number;
    /** Returns a number from 0 to 1, for the length of pauses. */
    random?: () => number;
    /** The maximum number of attempts per request. Default: 4. */
    attempts?: number;
    /** The time limit of each attempt and of reading its response, in milliseconds. Default: 60,000. */
    timeout?: number;
    /** The longest pause, in milliseconds. If `Retry-After` is longer, there is no retry. Default: 60,000. */
    longestPause?: number;
}

/** The options of a request. */
export interface Options {
    /** Query parameters. Undefined ones are omitted. */
    query?: Record<string, string | number | boolean | undefined>;
    /** The body: `FormData` is sent as a form, anything else as JSON. */
    body?: unknown;
    /** Default: a new key for each write, which is the same for all attempts. */
    idempotencyKey?: string;
    headers?: Record<string, string>;
    signal?: AbortSignal;
}

/** An error response, or a request that got no response (`status` is 0 and `code` is `no_response`). */
export class CrierError extends Error {
    override name = 'CrierError';
    readonly status: number;
    /** The stable code, as in docs/errors.md. `http_502` or similar if the response is not from Crier. */
    readonly code: string;
    /** The problems of each field, by field path. */
    readonly fields: Record<string, string[]>;
    /** Include it when you report a problem. */
    readonly requestId: string | undefined;

    constructor(status: number, code: string, message: string, fields = {}, requestId?: string, cause?: unknown) {
        super(message, { cause });
        this.status = status;
        this.code = code;
        this.fields = fields;
        this.requestId = requestId;
    }
}

/** The post, report or import did not finish in time. It may still finish later. */
export class WaitTimeoutError extends Error {
    override name = 'WaitTimeoutError';
}

/** The signature of a webhook delivery is missing, wrong or too old. Respond with 400. */
export class SignatureError extends Error {
    override name = 'SignatureError';
}

export interface Page<T> {
    data: T[];
    links?: { next: string | null };
}

export interface Wait {
    /** The time limit, in milliseconds. Default: 5 minutes. */
    timeout?: number;
    /** The first pause, in milliseconds. Later ones are longer, up to 10 seconds. Default: 1,000. */
    pause?: number;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the caller knows the type, or uses generated ones
type Json = any;

export class Crier {
    /** The URL of the API. */
    readonly baseUrl: string;
    readonly #key: string;
    readonly #settings: Required<Settings>;

    /** Takes the public URL of Crier, for example `https://crier.example`, and an API key. */
    constructor(url: string, key: string, settings: Settings = {}) {
        this.baseUrl = url.replace(/\/+$/, '') + PREFIX;
        this.#key = key;
        this.#settings = {
            fetch: (request) => fetch(request),
            sleep: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
            now: Date.now,
            random: Math.random,
            attempts: 4,
            timeout: 60_000,
            longestPause: 60_000,
            ...settings,
        };
    }

    get<T = Json>(path: string, options?: Options): Promise<T> {
        return this.request<T>('GET', path, options);
    }

    post<T = Json>(path: string, body?: unknown, options?: Options): Promise<T> {
        return this.request<T>('POST', path, { ...options, body });
    }

    put<T = Json>(path: string, body?: unknown, options?: Options): Promise<T> {
        return this.request<T>('PUT', path, { ...options, body });
    }

    delete<T = Json>(path: string, options?: Options): Promise<T> {
        return this.request<T>('DELETE', path, options);
    }

    /** Returns the JSON of the response; undefined if it has no body. Throws a `CrierError` for an error response. */
    async request<T = Json>(method: string, path: string, options: Options = {}): Promise<T> {
        const response = await this.send(method, path, options);
        const text = await response.text();
        return (text === '' ? undefined : JSON.parse(text)) as T;
    }

    /** Returns the response, for its headers or to download a file. Throws a `CrierError` for an error response. */
    async send(method: string, path: string, options: Options = {}): Promise<Response> {
        const headers = new Headers(options.headers);
        if (options.idempotencyKey !== undefined) headers.set('Idempotency-Key', options.idempotencyKey);
        const init: RequestInit = { method, headers };
        if (options.body instanceof FormData) {
            init.body = options.body;
        } else if (options.body !== undefined) {
            init.body = JSON.stringify(options.body);
            headers.set('Content-Type', 'application/json');
        }
        if (options.signal) init.signal = options.signal;
        const response = await this.fetch(this.#url(path, options.query), init);
        if (!response.ok) throw await errorOf(response);
        return response;
    }

    /**
     * A `fetch` with the API key, an idempotency key for each write, and retries. It returns error responses. Clients
     * that openapi-ts generates can use it.
     */
    readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
        const request = new Request(input, init);
        // The API key must not be sent to any other server.
        if (!request.url.startsWith(`${new URL(this.baseUrl).href}/`)) {
            throw new TypeError(`${request.url} is not a URL of ${this.baseUrl}`);
        }
        if (!request.headers.has('Authorization')) request.headers.set('Authorization', `Bearer ${this.#key}`);
        if (request.method !== 'GET' && request.method !== 'HEAD' && !request.headers.has('Idempotency-Key')) {
            request.headers.set('Idempotency-Key', crypto.randomUUID());
        }
        const { attempts, longestPause, random, sleep, timeout } = this.#settings;
        for (let attempt = 1; ; attempt++) {
            let pause = Math.min(longestPause, 500 * 2 ** (attempt - 1)) * (0.5 + random() / 2);
            try {
                const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeout)]);
                const sent = new Request(request.clone(), { signal, redirect: 'manual' });
                const response = await complete(await this.#settings.fetch(sent));
                const after = this.#retryAfter(response);
                // A conflict is temporary only if it has a `Retry-After`: `idempotency_in_progress`.
                const isTemporary = after !== undefined || response.status === 429 || response.status >= 500;
                if (response.ok || !isTemporary || attempt >= attempts || (after ?? 0) > longestPause) return response;
                if (after !== undefined) pause = after + random() * 250;
                await response.body?.cancel();
            } catch (error) {
                if (request.signal.aborted) throw error;
                if (attempt >= attempts) {
                    const message = `${request.method} ${request.url} got no response in ${attempt} attempts`;
                    throw new CrierError(0, 'no_response', message, {}, undefined, error);
                }
            }
            await sleep(pause);
        }
    };

    /** Iterates over the records of a list, page by page. Yields a record once, even if it moves to a later page. */
    async *list<T = Json>(path: string, query: Options['query'] = {}): AsyncGenerator<T, void, undefined> {
        const seen = new Set<unknown>();
        let next: Options['query'] | undefined = query;
        while (next !== undefined) {
            const page: Page<T> = await this.get<Page<T>>(path, { query: next });
            for (const record of page.data) {
                const id = (record as { id?: unknown }).id;
                if (id !== undefined && seen.has(id)) continue;
                seen.add(id);
                yield record;
            }
            // Only the query is used: the URL contains Crier's public name, which may differ from the one used here.
            const link = page.links?.next;
            next = link ? Object.fromEntries(new URL(link).searchParams) : undefined;
        }
    }

    /**
     * Returns the status of a post when it is neither scheduled nor being published. Check its `status`, because it may
     * be `failed` or `partially_published`.
     */
    waitForPost<T = Json>(brand: number, post: number, wait?: Wait): Promise<T> {
        return this.waitFor<T>(`/brands/${brand}/posts/${post}/status`, ['scheduled', 'publishing'], wait);
    }

    /** Returns the delivery of a report when its file is ready (`sent`) or could not be created (`failed`). */
    waitForReport<T = Json>(brand: number, delivery: number, wait?: Wait): Promise<T> {
        return this.waitFor<T>(`/brands/${brand}/reports/deliveries/${delivery}`, undefined, wait);
    }

    /** Returns the record of this path, for example a `poll_url`, when its `status` is none of these. */
    async waitFor<T = Json>(path: string, unfinished = ['pending', 'processing'], wait: Wait = {}): Promise<T> {
        const { now, sleep } = this.#settings;
        const deadline = now() + (wait.timeout ?? 300_000);
        for (let pause = wait.pause ?? 1_000; ; pause = Math.min(10_000, pause * 1.5)) {
            const { data } = await this.get<{ data: T & { status: string } }>(path);
            if (!unfinished.includes(data.status)) return data;
            if (now() + pause > deadline) throw new WaitTimeoutError(`${path} is still ${data.status}`);
            await sleep(pause);
        }
    }

    /** `Location`, `poll_url` and `download_url` begin with the prefix of the API. Paths in the reference do not. */
    #url(path: string, query: Options['query'] = {}): string {
        const url = new URL(this.baseUrl + (path.startsWith(`${PREFIX}/`) ? path.slice(PREFIX.length) : path));
        for (const [name, value] of Object.entries(query)) {
            if (value !== undefined) url.searchParams.set(name, String(value));
        }
        return url.href;
    }

    /** Returns the time of `Retry-After`, in milliseconds from now. A proxy may send a date. */
    #retryAfter(response: Response): number | undefined {
        const value = response.headers.get('Retry-After');
        if (value === null) return undefined;
        const milliseconds = /^\d+$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - this.#settings.now();
        return Number.isNaN(milliseconds) ? undefined : Math.max(0, milliseconds);
    }
}

/** Reads JSON immediately, so that a connection that breaks meanwhile causes a retry. Files are not read here. */
async function complete(response: Response): Promise<Response> {
    const isJson = response.headers.get('Content-Type')?.startsWith('application/json');
    return isJson ? new Response(await response.text(), response) : response;
}

async function errorOf(response: Response): Promise<CrierError> {
    const requestId = response.headers.get('X-Request-Id') ?? undefined;
    try {
        const { error } = (await response.json()) as Json;
        return new CrierError(response.status, error.code, error.message, error.fields, error.request_id ?? requestId);
    } catch {
        return new CrierError(response.status, `http_${response.status}`, `HTTP ${response.status}`, {}, requestId);
    }
}

/**
 * Returns the event of a webhook delivery if its signature is valid, and throws a `SignatureError` otherwise. `body`
 * must be the unmodified bytes of the request. `secrets` may have several values while a secret is rotated.
 */
export async function verifyWebhook<T = Json>(
    body: Uint8Array<ArrayBuffer> | string,
    signature: string | null | undefined,
    secrets: string | string[],
    { tolerance = 300, now = Date.now() / 1_000 } = {},
): Promise<T> {
    const fields = (signature ?? '').split(',').map((field) => field.split('='));
    const [time, ...others] = fields.filter(([name]) => name === 't').map(([, value]) => value ?? '');
    if (time === undefined || others.length > 0 || !/^\d{1,12}$/.test(time)) {
        throw new SignatureError('The signature header is missing or malformed.');
    }
    if (Math.abs(now - Number(time)) > tolerance) {
        throw new SignatureError('The time of the signature is too far from the current time. Check the clock.');
    }
    const encoder = new TextEncoder();
    const content = typeof body === 'string' ? encoder.encode(body) : body;
    const signed = new Uint8Array([...encoder.encode(`${time}.`), ...content]);
    const signatures = fields
        .filter(([name, value]) => name === 'v1' && /^[0-9a-f]{64}$/.test(value ?? ''))
        .map(([, value]) => Uint8Array.from(value!.match(/../g)!, (byte) => parseInt(byte, 16)));
    for (const secret of [secrets].flat()) {
        const algorithm = { name: 'HMAC', hash: 'SHA-256' };
        const key = await crypto.subtle.importKey('raw', encoder.encode(secret), algorithm, false, ['verify']);
        for (const one of signatures) {
            // `verify` compares in constant time.
            const matches = await crypto.subtle.verify('HMAC', key, one, signed);
            if (matches) return JSON.parse(new TextDecoder().decode(content)) as T;
        }
    }
    throw new SignatureError('The signature does not match.');
}
