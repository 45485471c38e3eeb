import type { INodeProperties } from 'n8n-workflow';
import { accountOptions, brandPath, day, get, inQuery } from '../shared/fields';

export const analyticsProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['analytics'] } },
		default: 'getOverview',
		options: [
			{
				name: 'Get Overview',
				value: 'getOverview',
				action: 'Get an overview of the metrics',
				description: "Get the metrics of a brand's posts by day, and their totals",
				routing: get(`${brandPath}/analytics/posts`),
			},
		],
	},
	{
		displayName: 'Filters',
		name: 'filters',
		type: 'collection',
		placeholder: 'Add Filter',
		default: {},
		displayOptions: { show: { resource: ['analytics'] } },
		options: [
			{
				displayName: 'Account Name or ID',
				name: 'account',
				type: 'options',
				default: '',
				description:
					'Choose from the list, or specify an ID using an <a href="https://docs.n8n.io/code/expressions/">expression</a>',
				typeOptions: accountOptions,
				routing: inQuery('account_id'),
			},
			{
				displayName: 'First Day',
				name: 'start',
				type: 'dateTime',
				default: '',
				description: 'Default: 29 days before the last day',
				routing: inQuery('start', day),
			},
			{
				displayName: 'Last Day',
				name: 'end',
				type: 'dateTime',
				default: '',
				description: 'Default: today',
				routing: inQuery('end', day),
			},
		],
	},
];
