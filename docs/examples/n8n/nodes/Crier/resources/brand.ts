import type { INodeProperties } from 'n8n-workflow';
import { get } from '../shared/fields';

export const brandProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['brand'] } },
		default: 'getAll',
		options: [
			{
				name: 'Get Many',
				value: 'getAll',
				action: 'Get many brands',
				description: 'List the brands of the API key',
				routing: get('/brands'),
			},
		],
	},
];
