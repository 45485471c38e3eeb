import { createHash, randomUUID } from 'crypto';
import type { IExecuteSingleFunctions, IHttpRequestOptions } from 'n8n-workflow';

/**
 * Sends the same `Idempotency-Key` when n8n retries an item ("Retry On Fail"), so that Crier does nothing twice.
 * The digest separates what may have the same execution ID and item index with the same API key: other installations of
 * n8n, other nodes of the workflow, and other runs of this node in a loop or as a tool.
 */
export async function addIdempotencyKey(
	this: IExecuteSingleFunctions,
	request: IHttpRequestOptions,
): Promise<IHttpRequestOptions> {
	const execution = this.getExecutionId();
	const run = this.evaluateExpression('{{ $runIndex }}', this.getItemIndex());
	const origin = [this.getInstanceId(), this.getWorkflow().id, this.getNode().id, run];
	const digest = createHash('sha256').update(JSON.stringify(origin)).digest('hex').slice(0, 32);
	const key = execution ? `n8n-${execution}-${this.getItemIndex()}-${digest}` : randomUUID();
	return { ...request, headers: { ...request.headers, 'Idempotency-Key': key } };
}
