import type {
	DeclarativeRestApiSettings,
	IDataObject,
	IExecutePaginationFunctions,
	INodeExecutionData,
} from 'n8n-workflow';

const MAX_PER_PAGE = 100;

/**
 * Returns the records of all pages, or the first ones up to the limit. A record that moved to the next page because
 * another one was created in the meantime is returned once.
 */
export async function allRecords(
	this: IExecutePaginationFunctions,
	request: DeclarativeRestApiSettings.ResultOptions,
): Promise<INodeExecutionData[]> {
	const limit = request.maxResults === undefined ? Infinity : Number(request.maxResults);
	const records = new Map<unknown, INodeExecutionData>();
	let qs: IDataObject = { ...request.options.qs, page: 1, per_page: Math.min(limit, MAX_PER_PAGE) };
	for (;;) {
		const [item] = await this.makeRoutingRequest({
			...request,
			options: { ...request.options, qs },
		});
		const data = (item?.json.data ?? []) as IDataObject[];
		for (const record of data) {
			if (!records.has(record.id)) {
				records.set(record.id, { json: record });
			}
		}
		const next = nextPage((item?.json.links as IDataObject | undefined)?.next);
		if (records.size >= limit || data.length === 0 || !next) {
			return [...records.values()].slice(0, limit);
		}
		qs = { ...qs, ...next };
	}
}

/**
 * Returns the page of a URL in `links`. Only these two values are used, because the host of the URL is that of
 * `CRIER_PUBLIC_URL`, which n8n may not reach, and which does not get the API key. A large page has fewer records than
 * requested, and the next one continues with that number per page.
 */
function nextPage(url: unknown): IDataObject | undefined {
	if (typeof url !== 'string') {
		return undefined;
	}
	const query = new URLSearchParams(url.slice(url.indexOf('?') + 1));
	const page = Number(query.get('page'));
	const perPage = Number(query.get('per_page') ?? MAX_PER_PAGE);
	return page > 1 && perPage > 0 ? { page, per_page: perPage } : undefined;
}
