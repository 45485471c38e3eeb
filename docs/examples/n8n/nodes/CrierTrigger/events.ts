import type { INodePropertyOptions } from 'n8n-workflow';

/** The events of `GET /webhook-events`, in the order of their names. */
export const events: INodePropertyOptions[] = [
	{
		name: 'Account Connected',
		value: 'account.connected',
		description: 'A social account was connected to a brand',
	},
	{
		name: 'Account Disconnected',
		value: 'account.disconnected',
		description: 'A social account was disconnected from a brand',
	},
	{
		name: 'Account Expired',
		value: 'account.expired',
		description: "The platform no longer accepts a social account's credentials",
	},
	{
		name: 'Account Expiring',
		value: 'account.expiring',
		description: 'Access to a social account expires soon, and only a person can renew it',
	},
	{ name: 'Brand Created', value: 'brand.created', description: 'A brand was created' },
	{
		name: 'First Comment Failed',
		value: 'post.first_comment_failed',
		description: 'The first comment of a post could not be published on an account',
	},
	{
		name: 'Media Import Completed',
		value: 'media.completed',
		description: 'A file was imported into the media library',
	},
	{
		name: 'Media Import Failed',
		value: 'media.failed',
		description: 'A file could not be imported into the media library',
	},
	{
		name: 'Message Failed',
		value: 'message.failed',
		description: 'A reply in the inbox could not be sent',
	},
	{
		name: 'Message Received',
		value: 'message.received',
		description: 'A message or comment arrived in the inbox',
	},
	{ name: 'Message Sent', value: 'message.sent', description: 'A reply in the inbox was sent' },
	{
		name: 'Post Failed',
		value: 'post.failed',
		description: 'A post could not be published on an account',
	},
	{
		name: 'Post Published',
		value: 'post.published',
		description: 'A post was published on an account. Sent once for each account.',
	},
	{
		name: 'Post Rejected by Platform',
		value: 'post.rejected_by_platform',
		description: 'The platform rejected a post after it had published it. Sent once for each account.',
	},
	{
		name: 'Post Unpublished',
		value: 'post.unpublished',
		description: 'A post was deleted from an account. Sent once for each account.',
	},
	{
		name: 'Report Failed',
		value: 'report.failed',
		description: "A report's file could not be created",
	},
	{ name: 'Report Sent', value: 'report.sent', description: "A report's file is ready" },
];
