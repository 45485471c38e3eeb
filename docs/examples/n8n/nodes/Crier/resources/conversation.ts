import type { INodeProperties } from 'n8n-workflow';
import {
	accountOptions,
	brandPath,
	get,
	id,
	idField,
	inBody,
	inQuery,
	limitFields,
	listAll,
	write,
} from '../shared/fields';

const oneConversation = `${brandPath}/conversations/${id('conversationId')}`;
const reply = { resource: ['conversation'], operation: ['reply'] };

export const conversationProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['conversation'] } },
		default: 'getAll',
		options: [
			{
				name: 'Get',
				value: 'get',
				action: 'Get a conversation',
				description: 'Get a conversation with its messages',
				routing: get(oneConversation),
			},
			{
				name: 'Get Many',
				value: 'getAll',
				action: 'Get many conversations',
				description: "List the conversations in a brand's inbox",
				routing: listAll(`${brandPath}/conversations`),
			},
			{
				name: 'Mark as Read',
				value: 'markAsRead',
				action: 'Mark a conversation as read',
				routing: write('POST', `${oneConversation}/read`),
			},
			{
				name: 'Reply',
				value: 'reply',
				action: 'Reply to a conversation',
				description: 'Send a reply. Crier Trigger reports when it is sent or fails.',
				routing: write('POST', `${oneConversation}/reply`),
			},
		],
	},
	idField('Conversation ID', 'conversationId', 'conversation', ['get', 'markAsRead', 'reply']),
	{
		displayName: 'Text',
		name: 'body',
		type: 'string',
		typeOptions: { rows: 3 },
		default: '',
		required: true,
		displayOptions: { show: reply },
		routing: inBody('body'),
	},
	{
		displayName: 'Resolve',
		name: 'resolve',
		type: 'boolean',
		default: false,
		description: 'Whether the conversation becomes resolved',
		displayOptions: { show: reply },
		routing: inBody('resolve'),
	},

	...limitFields('conversation'),
	{
		displayName: 'Filters',
		name: 'filters',
		type: 'collection',
		placeholder: 'Add Filter',
		default: {},
		displayOptions: { show: { resource: ['conversation'], operation: ['getAll'] } },
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
				displayName: 'Search',
				name: 'search',
				type: 'string',
				default: '',
				description: 'Only conversations that contain these words',
				routing: inQuery('search'),
			},
			{
				displayName: 'Status',
				name: 'status',
				type: 'options',
				default: 'open',
				options: [
					{ name: 'Assigned', value: 'assigned' },
					{ name: 'Open', value: 'open' },
					{ name: 'Resolved', value: 'resolved' },
					{ name: 'Snoozed', value: 'snoozed' },
					{ name: 'Spam', value: 'spam' },
				],
				routing: inQuery('status'),
			},
			{
				displayName: 'Tag',
				name: 'tag',
				type: 'string',
				default: '',
				routing: inQuery('tag'),
			},
			{
				displayName: 'Type',
				name: 'type',
				type: 'options',
				default: 'comment',
				options: [
					{ name: 'Comment', value: 'comment' },
					{ name: 'Direct Message', value: 'dm' },
					{ name: 'Mention', value: 'mention' },
				],
				routing: inQuery('type'),
			},
			{
				displayName: 'Unread',
				name: 'unread',
				type: 'boolean',
				default: true,
				description: 'Whether to list only conversations with unread messages. If off, only conversations without them.',
				routing: inQuery('unread'),
			},
		],
	},
];
