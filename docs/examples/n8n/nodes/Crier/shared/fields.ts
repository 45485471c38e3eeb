import type {
	IDataObject,
	ILoadOptions,
	INodeProperties,
	INodePropertyRouting,
} from 'n8n-workflow';
import { raiseError } from './errors';
import { addIdempotencyKey } from './idempotency';
import { allRecords } from './pages';

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** Returns an expression that lists the value of a parameter: an array, a number, or a text with commas. */
const list = (convert: string) =>
	`={{ [$value].flat().flatMap((one) => String(one).split(",")).map((one) => one.trim()).filter((one) => one !== "")${convert} }}`;

/** The IDs in a parameter. */
export const ids = list('.map((one) => Number(one))');

/** The texts in a parameter. */
export const texts = list('');

/** The day of a date or time in a parameter. */
export const day = '={{ String($value).slice(0, 10) }}';

/** Returns an ID in a path. Anything but a number becomes `NaN`, which is an ID that does not exist. */
export const id = (parameter: string) => `{{ Number($parameter.${parameter}) }}`;

/** The path of the brand. */
export const brandPath = `=/brands/${id('brand')}`;

const root: NonNullable<INodePropertyRouting['output']> = {
	postReceive: [raiseError, { type: 'rootProperty', properties: { property: 'data' } }],
};

/** Returns the routing of an operation that gets a record or an unpaginated list. */
export const get = (url: string): INodePropertyRouting => ({
	request: { method: 'GET', url },
	output: root,
});

/** Returns the routing of an operation that lists all pages. */
export const listAll = (url: string): INodePropertyRouting => ({
	request: { method: 'GET', url },
	send: { paginate: true },
	operations: { pagination: allRecords },
	output: { postReceive: [raiseError] },
});

/** Returns the routing of an operation that writes. */
export const write = (method: Method, url: string, body?: IDataObject): INodePropertyRouting => ({
	request: { method, url, ...(body && { body }) },
	send: { preSend: [addIdempotencyKey] },
	output: root,
});

/** Returns the routing of an operation that deletes a record. */
export const remove = (url: string): INodePropertyRouting => ({
	request: { method: 'DELETE', url },
	send: { preSend: [addIdempotencyKey] },
	output: {
		postReceive: [raiseError, { type: 'set', properties: { value: '={{ { "deleted": true } }}' } }],
	},
});

// n8n sends the routing of a list of options through its editor, as JSON. So it has no functions: it fails by status
// instead of `raiseError`, and uses the generic pagination.
const loadFrom = (url: string, name: string, routing: INodePropertyRouting = {}): ILoadOptions => ({
	routing: {
		...routing,
		request: { method: 'GET', url, ignoreHttpStatusErrors: false },
		output: {
			postReceive: [
				{ type: 'rootProperty', properties: { property: 'data' } },
				{ type: 'setKeyValue', properties: { name, value: '={{$responseItem.id}}' } },
				{ type: 'sort', properties: { key: 'name' } },
			],
		},
	},
});

/** The choice of a brand, for the resources of a brand. */
export const brandField: INodeProperties = {
	displayName: 'Brand Name or ID',
	name: 'brand',
	type: 'options',
	default: '',
	required: true,
	description:
		'Choose from the list, or specify an ID using an <a href="https://docs.n8n.io/code/expressions/">expression</a>',
	displayOptions: { hide: { resource: ['brand'] } },
	typeOptions: { loadOptions: loadFrom('/brands', '={{$responseItem.name}}') },
};

/** Loads the accounts of the chosen brand. */
export const accountOptions: INodeProperties['typeOptions'] = {
	loadOptionsDependsOn: ['brand'],
	loadOptions: loadFrom(
		`${brandPath}/social-accounts`,
		'={{$responseItem.name}} ({{$responseItem.platform}})',
		{
			send: { paginate: true },
			operations: {
				pagination: {
					type: 'generic',
					properties: {
						continue: '={{ !!$response.body.links.next }}',
						request: {
							qs: {
								page: '={{ ($response.body?.meta?.current_page ?? 0) + 1 }}',
								per_page: 100,
							},
						},
					},
				},
			},
		},
	),
};

/** Returns the "Return All" and "Limit" of an operation that lists. */
export const limitFields = (resource: string): INodeProperties[] => {
	const show = { resource: [resource], operation: ['getAll'] };
	return [
		{
			displayName: 'Return All',
			name: 'returnAll',
			type: 'boolean',
			default: false,
			description: 'Whether to return all results or only up to a given limit',
			displayOptions: { show },
		},
		{
			displayName: 'Limit',
			name: 'limit',
			type: 'number',
			default: 50,
			typeOptions: { minValue: 1 },
			description: 'Max number of results to return',
			displayOptions: { show: { ...show, returnAll: [false] } },
			routing: { output: { maxResults: '={{$value}}' } },
		},
	];
};

/** Returns the field with the ID of a record. */
export const idField = (
	displayName: string,
	name: string,
	resource: string,
	operation: string[],
): INodeProperties => ({
	displayName,
	name,
	type: 'number',
	default: 0,
	required: true,
	typeOptions: { minValue: 1 },
	displayOptions: { show: { resource: [resource], operation } },
});

/** Returns the routing of a parameter that is a field of the body. */
export const inBody = (property: string, value?: string): INodePropertyRouting => ({
	send: { type: 'body', property, ...(value && { value }) },
});

/** Returns the routing of a parameter that is a filter of a list. */
export const inQuery = (property: string, value?: string): INodePropertyRouting => ({
	send: { type: 'query', property, ...(value && { value }) },
});
