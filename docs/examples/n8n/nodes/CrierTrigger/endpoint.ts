import { randomUUID } from 'crypto';
import type {
	IDataObject,
	IHookFunctions,
	IHttpRequestMethods,
	ILoadOptionsFunctions,
	IN8nHttpFullResponse,
} from 'n8n-workflow';
import { apiError } from '../Crier/shared/errors';

/** A webhook endpoint in Crier that this node created. */
export interface Endpoint {
	id: number;
	secret: string;
}

/** Sends a request. Returns the `data` of the response, or undefined if it is 404 or has none. */
export async function call(
	this: IHookFunctions | ILoadOptionsFunctions,
	method: IHttpRequestMethods,
	path: string,
	body?: IDataObject,
): Promise<IDataObject | IDataObject[] | undefined> {
	const { baseUrl } = await this.getCredentials<{ baseUrl: string }>('crierApi');
	const response = (await this.helpers.httpRequestWithAuthentication.call(this, 'crierApi', {
		method,
		url: `${baseUrl.replace(/\/+$/, '')}/api/public/v1${path}`,
		headers: {
			Accept: 'application/json',
			'Content-Type': 'application/json',
			...(method !== 'GET' && { 'Idempotency-Key': randomUUID() }),
		},
		...(body && { body }),
		returnFullResponse: true,
		ignoreHttpStatusErrors: true,
		disableFollowRedirect: true,
	})) as IN8nHttpFullResponse;
	if (response.statusCode === 404) {
		return undefined;
	}
	if (response.statusCode < 200 || response.statusCode >= 300) {
		throw apiError(this.getNode(), response);
	}
	return (response.body as IDataObject | undefined)?.data as IDataObject | undefined;
}

/**
 * Returns the endpoints of this node by their URL. The test URL of the editor and the URL of the active workflow each have
 * one, and must not replace each other.
 */
export function endpoints(data: IDataObject): Record<string, Endpoint> {
	return { ...(data.endpoints as unknown as Record<string, Endpoint> | undefined) };
}

/** Stores the endpoint of a URL, or forgets it. */
export function setEndpoint(data: IDataObject, url: string, endpoint?: Endpoint): void {
	const all = endpoints(data);
	delete all[url];
	data.endpoints = { ...all, ...(endpoint && { [url]: endpoint }) } as unknown as IDataObject;
}

/** Returns whether the endpoint in Crier exists, after updating it if it differs from what the node needs. */
export async function keep(
	this: IHookFunctions,
	id: number,
	url: string,
	events: string[],
): Promise<boolean> {
	const found = (await call.call(this, 'GET', `/webhooks/${id}`)) as IDataObject | undefined;
	if (!found) {
		return false;
	}
	const subscribed = [...((found.events ?? []) as string[])].sort();
	if (
		found.url !== url ||
		found.is_active !== true ||
		JSON.stringify(subscribed) !== JSON.stringify([...events].sort())
	) {
		const updated = await call.call(this, 'PUT', `/webhooks/${id}`, { url, events, is_active: true });
		return updated !== undefined;
	}
	return true;
}

/** Creates the endpoint. One with the same URL is from an earlier, interrupted activation: it gets a new secret. */
export async function create(
	this: IHookFunctions,
	url: string,
	events: string[],
): Promise<Endpoint> {
	const all = ((await call.call(this, 'GET', '/webhooks')) ?? []) as IDataObject[];
	const existing = all.find((one) => one.url === url);
	if (existing && (await keep.call(this, existing.id as number, url, events))) {
		const rotated = (await call.call(this, 'POST', `/webhooks/${existing.id}/rotate-secret`)) as
			| IDataObject
			| undefined;
		if (rotated) {
			return { id: rotated.id as number, secret: rotated.secret as string };
		}
	}
	const workflow = this.getWorkflow();
	const created = (await call.call(this, 'POST', '/webhooks', {
		url,
		events,
		description: `n8n: ${workflow.name ?? workflow.id ?? ''}`.slice(0, 255),
	})) as IDataObject;
	return { id: created.id as number, secret: created.secret as string };
}
