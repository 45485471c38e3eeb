import type { INodeProperties } from 'n8n-workflow';
import { brandPath, day, get, id, idField, inBody, write } from '../shared/fields';

const oneReport = `${brandPath}/reports/${id('reportId')}`;
const create = { resource: ['report'], operation: ['create'] };
const startExport = { resource: ['report'], operation: ['export'] };

export const reportProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['report'] } },
		default: 'create',
		options: [
			{
				name: 'Create',
				value: 'create',
				action: 'Create a report',
				description: 'Create a report. Export it to get a file.',
				routing: write('POST', `${brandPath}/reports`),
			},
			{
				name: 'Export',
				value: 'export',
				action: 'Export a report',
				description: 'Start an export. Crier Trigger reports when the file is ready or the export fails.',
				routing: write('POST', `${oneReport}/export`),
			},
			{
				name: 'Get',
				value: 'get',
				action: 'Get a report',
				routing: get(oneReport),
			},
			{
				name: 'Get Export',
				value: 'getExport',
				action: 'Get an export',
				description: 'Get the status of an export, and the URL of its file',
				routing: get(`${brandPath}/reports/deliveries/${id('exportId')}`),
			},
		],
	},
	idField('Report ID', 'reportId', 'report', ['export', 'get']),
	idField('Export ID', 'exportId', 'report', ['getExport']),
	{
		displayName: 'Name',
		name: 'name',
		type: 'string',
		default: '',
		required: true,
		displayOptions: { show: create },
		routing: inBody('name'),
	},
	{
		displayName: 'Widgets',
		name: 'widgets',
		type: 'multiOptions',
		default: ['summary'],
		required: true,
		description: 'The content of the report, in the order of this list. It cannot be changed later.',
		options: [
			{ name: 'Accounts', value: 'accounts_table' },
			{ name: 'Engagement Over Time', value: 'engagement_over_time' },
			{ name: 'Followers Over Time', value: 'followers_over_time' },
			{ name: 'Posts', value: 'posts_table' },
			{ name: 'Posts Over Time', value: 'posts_over_time' },
			{ name: 'Summary', value: 'summary' },
			{ name: 'Top Posts', value: 'top_posts' },
		],
		displayOptions: { show: create },
		routing: inBody('widgets', '={{ [$value].flat().map((type) => ({ type })) }}'),
	},
	{
		displayName: 'Format',
		name: 'format',
		type: 'options',
		default: 'pdf',
		options: [
			{ name: 'CSV', value: 'csv' },
			{ name: 'Excel', value: 'xlsx' },
			{ name: 'JSON', value: 'json' },
			{ name: 'PDF', value: 'pdf' },
			{ name: 'PowerPoint', value: 'pptx' },
		],
		displayOptions: { show: startExport },
		routing: inBody('format'),
	},
	{
		displayName: 'Additional Fields',
		name: 'additionalFields',
		type: 'collection',
		placeholder: 'Add Field',
		default: {},
		displayOptions: { show: startExport },
		options: [
			{
				displayName: 'First Day',
				name: 'start',
				type: 'dateTime',
				default: '',
				description: 'Default: 29 days before the last day',
				routing: inBody('start', day),
			},
			{
				displayName: 'Last Day',
				name: 'end',
				type: 'dateTime',
				default: '',
				description: "Default: today in the brand's time zone",
				routing: inBody('end', day),
			},
		],
	},
];
