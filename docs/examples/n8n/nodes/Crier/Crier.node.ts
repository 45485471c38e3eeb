import { NodeConnectionTypes, type INodeType, type INodeTypeDescription } from 'n8n-workflow';
import { accountProperties } from './resources/account';
import { analyticsProperties } from './resources/analytics';
import { brandProperties } from './resources/brand';
import { conversationProperties } from './resources/conversation';
import { mediaProperties } from './resources/media';
import { postProperties } from './resources/post';
import { reportProperties } from './resources/report';
import { brandField } from './shared/fields';

export class Crier implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Crier',
		name: 'crier',
		icon: { light: 'file:../../icons/crier.svg', dark: 'file:../../icons/crier.dark.svg' },
		group: ['output'],
		version: 1,
		subtitle: '={{$parameter["operation"] + ": " + $parameter["resource"]}}',
		description: 'Publish posts, reply to messages and get metrics with Crier',
		defaults: { name: 'Crier' },
		usableAsTool: true,
		inputs: [NodeConnectionTypes.Main],
		outputs: [NodeConnectionTypes.Main],
		credentials: [{ name: 'crierApi', required: true }],
		requestDefaults: {
			baseURL: '={{$credentials.baseUrl.replace(/\\/+$/, "")}}/api/public/v1',
			headers: { Accept: 'application/json', 'Content-Type': 'application/json' },
			// `raiseError` shows the fields of an error, and a redirect would take the API key to another server.
			ignoreHttpStatusErrors: true,
			disableFollowRedirect: true,
		},
		properties: [
			{
				displayName: 'Resource',
				name: 'resource',
				type: 'options',
				noDataExpression: true,
				default: 'post',
				options: [
					{ name: 'Account', value: 'account' },
					{ name: 'Analytic', value: 'analytics' },
					{ name: 'Brand', value: 'brand' },
					{ name: 'Conversation', value: 'conversation' },
					{ name: 'Media', value: 'media' },
					{ name: 'Post', value: 'post' },
					{ name: 'Report', value: 'report' },
				],
			},
			brandField,
			...accountProperties,
			...analyticsProperties,
			...brandProperties,
			...conversationProperties,
			...mediaProperties,
			...postProperties,
			...reportProperties,
		],
	};
}
