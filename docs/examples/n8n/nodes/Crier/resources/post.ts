import type { INodeProperties } from 'n8n-workflow';
import {
	accountOptions,
	brandPath,
	get,
	id,
	idField,
	ids,
	inBody,
	inQuery,
	limitFields,
	listAll,
	remove,
	texts,
	write,
} from '../shared/fields';

const onePost = `${brandPath}/posts/${id('postId')}`;
const newPost = { resource: ['post'], operation: ['create', 'validate'] };

const scheduleTypes = [
	{ name: 'At a Time', value: 'scheduled', description: 'Publish the post at a time' },
	{ name: 'Draft', value: 'draft', description: 'Do not publish the post' },
	{
		name: 'Next Free Slot',
		value: 'queue',
		description: "Publish the post at the next free slot of the brand's queue",
	},
	{ name: 'Now', value: 'now', description: 'Publish the post immediately' },
];

const scheduledAt: INodeProperties = {
	displayName: 'Scheduled At',
	name: 'scheduledAt',
	type: 'dateTime',
	default: '',
	description:
		"The time when the post is published. A time without an offset is in the brand's time zone.",
	routing: inBody('scheduled_at'),
};

const accounts: INodeProperties = {
	displayName: 'Account Names or IDs',
	name: 'accounts',
	type: 'multiOptions',
	default: [],
	description:
		'Choose from the list, or specify IDs using an <a href="https://docs.n8n.io/code/expressions/">expression</a>',
	typeOptions: accountOptions,
	routing: inBody('accounts', ids),
};

const firstComment: INodeProperties = {
	displayName: 'First Comment',
	name: 'firstComment',
	type: 'string',
	typeOptions: { rows: 2 },
	default: '',
	description: 'The comment to publish under the post, on platforms where Crier can comment',
	routing: inBody('first_comment.content'),
};

const labels: INodeProperties = {
	displayName: 'Labels',
	name: 'labels',
	type: 'string',
	default: '',
	placeholder: 'launch, summer',
	description: 'At most 10 labels, separated by commas. They do not affect what is published.',
	routing: inBody('labels', texts),
};

const mediaIds: INodeProperties = {
	displayName: 'Media IDs',
	name: 'mediaIds',
	type: 'string',
	default: '',
	placeholder: '12, 13',
	description: 'The IDs of images and videos of the brand, separated by commas',
	routing: inBody('media', ids),
};

const overrides: INodeProperties = {
	displayName: 'Overrides (JSON)',
	name: 'overrides',
	type: 'json',
	default: '[]',
	placeholder: '[{"account_id": 7, "content": "Text for this account"}]',
	description: 'Text, media and options for single accounts, as in the API',
	routing: inBody('overrides', '={{ typeof $value === "string" ? JSON.parse($value) : $value }}'),
};

const thread: INodeProperties = {
	displayName: 'Thread',
	name: 'thread',
	type: 'fixedCollection',
	typeOptions: { multipleValues: true },
	default: {},
	placeholder: 'Add Part',
	description: 'The parts that follow the post in its thread',
	options: [
		{
			displayName: 'Parts',
			name: 'parts',
			values: [
				{
					displayName: 'Text',
					name: 'content',
					type: 'string',
					typeOptions: { rows: 2 },
					default: '',
				},
			],
		},
	],
	routing: inBody(
		'thread',
		'={{ ($value.parts ?? []).map((part) => ({ content: part.content })) }}',
	),
};

export const postProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['post'] } },
		default: 'create',
		options: [
			{
				name: 'Create',
				value: 'create',
				action: 'Create a post',
				description: 'Create a draft, or schedule, queue or publish a post',
				routing: write('POST', `${brandPath}/posts`),
			},
			{
				name: 'Delete',
				value: 'delete',
				action: 'Delete a post',
				description: 'Delete a post from Crier. It stays on the platforms where it was published.',
				routing: remove(onePost),
			},
			{
				name: 'Get',
				value: 'get',
				action: 'Get a post',
				description: 'Get a post and its status on each account',
				routing: get(onePost),
			},
			{
				name: 'Get Many',
				value: 'getAll',
				action: 'Get many posts',
				description: 'List the posts of a brand',
				routing: listAll(`${brandPath}/posts`),
			},
			{
				name: 'Publish Now',
				value: 'publish',
				action: 'Publish a post now',
				description: 'Publish a post immediately, or retry the accounts where it failed',
				routing: write('PUT', onePost, { schedule_type: 'now' }),
			},
			{
				name: 'Update',
				value: 'update',
				action: 'Update a post',
				description: 'Update a post or its time',
				routing: write('PUT', onePost),
			},
			{
				name: 'Validate',
				value: 'validate',
				action: 'Validate a post',
				description: 'Check a post against the rules of its platforms, without creating it',
				routing: {
					request: { method: 'POST', url: `${brandPath}/posts/validate` },
					output: get('').output,
				},
			},
		],
	},
	idField('Post ID', 'postId', 'post', ['delete', 'get', 'publish', 'update']),

	{
		displayName: 'Text',
		name: 'content',
		type: 'string',
		typeOptions: { rows: 4 },
		default: '',
		description: 'The text of the post. Required unless there is media.',
		displayOptions: { show: newPost },
		routing: inBody('content'),
	},
	{
		displayName: 'When',
		name: 'scheduleType',
		type: 'options',
		default: 'draft',
		options: scheduleTypes,
		displayOptions: { show: newPost },
		routing: inBody('schedule_type'),
	},
	{
		...scheduledAt,
		required: true,
		displayOptions: { show: { ...newPost, scheduleType: ['scheduled'] } },
	},
	{ ...accounts, displayOptions: { show: newPost } },
	{
		displayName: 'Additional Fields',
		name: 'additionalFields',
		type: 'collection',
		placeholder: 'Add Field',
		default: {},
		displayOptions: { show: newPost },
		options: [firstComment, labels, mediaIds, overrides, thread],
	},

	{
		displayName: 'Update Fields',
		name: 'updateFields',
		type: 'collection',
		placeholder: 'Add Field',
		default: {},
		displayOptions: { show: { resource: ['post'], operation: ['update'] } },
		options: [
			accounts,
			firstComment,
			labels,
			mediaIds,
			overrides,
			scheduledAt,
			{
				displayName: 'Text',
				name: 'content',
				type: 'string',
				typeOptions: { rows: 4 },
				default: '',
				routing: inBody('content'),
			},
			thread,
			{
				displayName: 'When',
				name: 'scheduleType',
				type: 'options',
				default: 'draft',
				options: scheduleTypes,
				routing: inBody('schedule_type'),
			},
		],
	},

	...limitFields('post'),
	{
		displayName: 'Filters',
		name: 'filters',
		type: 'collection',
		placeholder: 'Add Filter',
		default: {},
		displayOptions: { show: { resource: ['post'], operation: ['getAll'] } },
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
				displayName: 'From',
				name: 'from',
				type: 'dateTime',
				default: '',
				description: 'Only posts at this time or later',
				routing: inQuery('from'),
			},
			{
				displayName: 'Label',
				name: 'label',
				type: 'string',
				default: '',
				routing: inQuery('label'),
			},
			{
				displayName: 'Search',
				name: 'search',
				type: 'string',
				default: '',
				description: 'Only posts whose text contains these words',
				routing: inQuery('search'),
			},
			{
				displayName: 'Sort',
				name: 'sort',
				type: 'options',
				default: '-id',
				options: [
					{ name: 'Last Published First', value: '-published_at' },
					{ name: 'Newest First', value: '-id' },
					{ name: 'Scheduled First', value: 'scheduled_at' },
				],
				routing: inQuery('sort'),
			},
			{
				displayName: 'Status',
				name: 'status',
				type: 'options',
				default: 'published',
				options: [
					{ name: 'Draft', value: 'draft' },
					{ name: 'Failed', value: 'failed' },
					{ name: 'Partially Published', value: 'partially_published' },
					{ name: 'Pending Approval', value: 'pending_approval' },
					{ name: 'Published', value: 'published' },
					{ name: 'Publishing', value: 'publishing' },
					{ name: 'Scheduled', value: 'scheduled' },
				],
				routing: inQuery('status'),
			},
			{
				displayName: 'To',
				name: 'to',
				type: 'dateTime',
				default: '',
				description: 'Only posts before this time',
				routing: inQuery('to'),
			},
		],
	},
];
