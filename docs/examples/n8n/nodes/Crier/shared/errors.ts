import {
	NodeApiError,
	type IDataObject,
	type IExecuteSingleFunctions,
	type IN8nHttpFullResponse,
	type INode,
	type INodeExecutionData,
} from 'n8n-workflow';

type Response = Pick<IN8nHttpFullResponse, 'statusCode' | 'headers' | 'body'>;

/** Returns the error to show for a response that is not 2xx: the API's message, and each field with its problems. */
export function apiError(node: INode, response: Response, itemIndex?: number): NodeApiError {
	const { statusCode, headers } = response;
	const body = isObject(response.body) ? response.body : {};
	const error = isObject(body.error) ? body.error : {};
	const lines: string[] = [];
	let message = typeof error.message === 'string' ? error.message : '';
	if (!message) {
		message =
			statusCode >= 300 && statusCode < 400
				? `The server redirects to ${headers.location}. Use the final URL as the base URL of the credential.`
				: `The server responded with status ${statusCode}, but not as Crier does. Check the base URL of the credential.`;
	}
	for (const [field, problems] of Object.entries(isObject(error.fields) ? error.fields : {})) {
		lines.push(`${field}: ${Array.isArray(problems) ? problems.join(' ') : String(problems)}`);
	}
	if (error.code) {
		lines.push(`Code: ${error.code}`);
	}
	if (headers['retry-after']) {
		lines.push(`Retry after ${headers['retry-after']} seconds.`);
	}
	if (error.request_id) {
		lines.push(`Request: ${error.request_id}`);
	}
	return new NodeApiError(
		node,
		{ code: String(error.code ?? ''), statusCode },
		{ message, description: lines.join('\n'), httpCode: String(statusCode), itemIndex },
	);
}

/** Fails the item unless the response is 2xx. The first step after each request. */
export async function raiseError(
	this: IExecuteSingleFunctions,
	items: INodeExecutionData[],
	response: IN8nHttpFullResponse,
): Promise<INodeExecutionData[]> {
	if (response.statusCode >= 200 && response.statusCode < 300) {
		return items;
	}
	throw apiError(this.getNode(), response, this.getItemIndex());
}

function isObject(value: unknown): value is IDataObject {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}
