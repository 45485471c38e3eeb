import type {
	IAuthenticateGeneric,
	Icon,
	ICredentialTestRequest,
	ICredentialType,
	INodeProperties,
} from 'n8n-workflow';

export class CrierApi implements ICredentialType {
	name = 'crierApi';

	displayName = 'Crier API';

	icon: Icon = { light: 'file:../icons/crier.svg', dark: 'file:../icons/crier.dark.svg' };

	documentationUrl = 'https://crier.example/docs/examples/n8n#credential';

	properties: INodeProperties[] = [
		{
			displayName: 'Base URL',
			name: 'baseUrl',
			type: 'string',
			default: '',
			required: true,
			placeholder: 'https://crier.example.com',
			description: 'The URL of Crier as n8n reaches it, without a path',
		},
		{
			displayName: 'API Key',
			name: 'apiKey',
			type: 'string',
			typeOptions: { password: true },
			default: '',
			required: true,
			description: 'A live key (svc_live_…). For Crier Trigger, it also needs the scopes webhooks:read and webhooks:write.',
		},
	];

	authenticate: IAuthenticateGeneric = {
		type: 'generic',
		properties: {
			headers: {
				Authorization: '=Bearer {{$credentials.apiKey}}',
			},
		},
	};

	test: ICredentialTestRequest = {
		request: {
			baseURL: '={{$credentials.baseUrl.replace(/\\/+$/, "")}}/api/public/v1',
			url: '/brands',
			disableFollowRedirect: true,
		},
	};
}
