import type { INodeProperties } from 'n8n-workflow';
import { brandPath, limitFields, listAll } from '../shared/fields';

export const accountProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['account'] } },
		default: 'getAll',
		options: [
			{
				name: 'Get Many',
				value: 'getAll',
				action: 'Get many accounts',
				description: 'List the social accounts of a brand',
				routing: listAll(`${brandPath}/social-accounts`),
			},
		],
	},
	...limitFields('account'),
];
