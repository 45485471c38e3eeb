import {
	NodeConnectionTypes,
	NodeOperationError,
	type IDataObject,
	type IHookFunctions,
	type ILoadOptionsFunctions,
	type INodePropertyOptions,
	type INodeType,
	type INodeTypeDescription,
	type IWebhookFunctions,
	type IWebhookResponseData,
} from 'n8n-workflow';
import { takeDelivery } from './deliveries';
import { call, create, endpoints, keep, setEndpoint } from './endpoint';
import { events } from './events';
import { isSigned } from './signature';

export class CrierTrigger implements INodeType {
	description: INodeTypeDescription = {
		displayName: 'Crier Trigger',
		name: 'crierTrigger',
		icon: { light: 'file:../../icons/crier.svg', dark: 'file:../../icons/crier.dark.svg' },
		group: ['trigger'],
		version: 1,
		subtitle: '={{ [$parameter["events"]].flat().join(", ") }}',
		description: 'Starts the workflow when something happens in Crier',
		defaults: { name: 'Crier Trigger' },
		inputs: [],
		outputs: [NodeConnectionTypes.Main],
		credentials: [{ name: 'crierApi', required: true }],
		webhooks: [
			{ name: 'default', httpMethod: 'POST', responseMode: 'onReceived', path: 'webhook' },
		],
		properties: [
			{
				displayName: 'Events',
				name: 'events',
				type: 'multiOptions',
				default: ['post.published'],
				required: true,
				options: events,
			},
			{
				displayName: 'Brand Names or IDs',
				name: 'brands',
				type: 'multiOptions',
				default: [],
				description:
					'The brands whose events start the workflow. If empty, all brands of the API key. Choose from the list, or specify IDs using an <a href="https://docs.n8n.io/code/expressions/">expression</a>.',
				typeOptions: { loadOptionsMethod: 'getBrands' },
			},
		],
	};

	methods = {
		loadOptions: {
			async getBrands(this: ILoadOptionsFunctions): Promise<INodePropertyOptions[]> {
				const brands = ((await call.call(this, 'GET', '/brands')) ?? []) as IDataObject[];
				return brands.map((brand) => ({ name: String(brand.name), value: brand.id as number }));
			},
		},
	};

	webhookMethods = {
		default: {
			async checkExists(this: IHookFunctions): Promise<boolean> {
				const data = this.getWorkflowStaticData('node');
				const url = webhookUrl(this);
				const endpoint = endpoints(data)[url];
				if (!endpoint) {
					return false;
				}
				if (await keep.call(this, endpoint.id, url, chosenEvents(this))) {
					return true;
				}
				setEndpoint(data, url);
				return false;
			},
			async create(this: IHookFunctions): Promise<boolean> {
				const url = webhookUrl(this);
				const endpoint = await create.call(this, url, chosenEvents(this));
				setEndpoint(this.getWorkflowStaticData('node'), url, endpoint);
				return true;
			},
			async delete(this: IHookFunctions): Promise<boolean> {
				const data = this.getWorkflowStaticData('node');
				const url = webhookUrl(this);
				const endpoint = endpoints(data)[url];
				if (endpoint) {
					await call.call(this, 'DELETE', `/webhooks/${endpoint.id}`);
					setEndpoint(data, url);
				}
				return true;
			},
		},
	};

	async webhook(this: IWebhookFunctions): Promise<IWebhookResponseData> {
		const data = this.getWorkflowStaticData('node');
		const headers = this.getHeaderData();
		const secrets = Object.values(endpoints(data)).map((endpoint) => endpoint.secret);
		// The signature is over the unmodified bytes, which the parsed body does not have.
		const body = (this.getRequestObject() as unknown as { rawBody?: unknown }).rawBody;
		const id = headers['x-webhook-delivery-id'];
		if (
			!Buffer.isBuffer(body) ||
			!isSigned(secrets, headers['x-webhook-signature'], body) ||
			typeof id !== 'string'
		) {
			this.getResponseObject().status(400).json({ message: 'The signature is not valid' });
			return { noWebhookResponse: true };
		}
		const event = this.getBodyData();
		const eventData = (event.data ?? {}) as IDataObject;
		const brands = [this.getNodeParameter('brands', []) as number | number[]].flat().map(Number);
		const isWanted =
			chosenEvents(this).includes(String(event.event)) &&
			(brands.length === 0 || brands.includes(Number(eventData.brand_id)));
		if (!isWanted || !takeDelivery(data, `${this.getWorkflow().id}:${this.getNode().id}`, id)) {
			return { webhookResponse: 'OK' };
		}
		const json: IDataObject = {
			event: event.event,
			data: eventData,
			deliveryId: id,
			eventId: headers['x-webhook-event-id'],
		};
		return { workflowData: [this.helpers.returnJsonArray([json])] };
	}
}

function webhookUrl(context: IHookFunctions): string {
	const url = context.getNodeWebhookUrl('default');
	if (!url) {
		throw new NodeOperationError(context.getNode(), 'n8n has no URL for this webhook');
	}
	return url;
}

function chosenEvents(context: IHookFunctions | IWebhookFunctions): string[] {
	return [context.getNodeParameter('events', []) as string | string[]].flat();
}
