import type { INodeProperties } from 'n8n-workflow';
import { brandPath, get, id, idField, inBody, write } from '../shared/fields';

const show = { resource: ['media'], operation: ['import'] };

export const mediaProperties: INodeProperties[] = [
	{
		displayName: 'Operation',
		name: 'operation',
		type: 'options',
		noDataExpression: true,
		displayOptions: { show: { resource: ['media'] } },
		default: 'import',
		options: [
			{
				name: 'Get',
				value: 'get',
				action: 'Get an image or a video',
				routing: get(`${brandPath}/media/${id('mediaId')}`),
			},
			{
				name: 'Get Import',
				value: 'getImport',
				action: 'Get an import',
				description: 'Get the status of an import, and its image or video',
				routing: get(`${brandPath}/jobs/${id('importId')}`),
			},
			{
				name: 'Import From URL',
				value: 'import',
				action: 'Import an image or a video from a URL',
				description: 'Start an import. Crier Trigger reports when it is completed or fails.',
				routing: write('POST', `${brandPath}/media/from-url`),
			},
		],
	},
	idField('Media ID', 'mediaId', 'media', ['get']),
	idField('Import ID', 'importId', 'media', ['getImport']),
	{
		displayName: 'URL',
		name: 'url',
		type: 'string',
		default: '',
		required: true,
		placeholder: 'https://example.com/bread.jpg',
		description: 'A public http or https URL',
		displayOptions: { show },
		routing: inBody('url'),
	},
	{
		displayName: 'Type',
		name: 'assetType',
		type: 'options',
		default: 'image',
		options: [
			{ name: 'Icon', value: 'icon' },
			{ name: 'Image', value: 'image' },
			{ name: 'Logo', value: 'logo' },
			{ name: 'Video', value: 'video' },
		],
		displayOptions: { show },
		routing: inBody('asset_type'),
	},
	{
		displayName: 'Additional Fields',
		name: 'additionalFields',
		type: 'collection',
		placeholder: 'Add Field',
		default: {},
		displayOptions: { show },
		options: [
			{
				displayName: 'Alt Text',
				name: 'altText',
				type: 'string',
				default: '',
				description: 'A description of the image or video for people who cannot see it',
				routing: inBody('alt_text'),
			},
		],
	},
];
