import { createHmac, timingSafeEqual } from 'crypto';

/** The maximum difference between the time of a signature and the clock, in seconds. */
export const TOLERANCE = 300;

/**
 * Returns whether one of the secrets signed these bytes at the time in the header, and the time is close to `now`, in
 * Unix seconds. The rules are in Crier's docs/webhooks.md.
 */
export function isSigned(
	secrets: string[],
	header: unknown,
	body: Buffer,
	now: number = Date.now() / 1000,
): boolean {
	if (typeof header !== 'string') {
		return false;
	}
	const fields = header.split(',').map((field) => field.split('='));
	const values = (name: string) =>
		fields.filter((field) => field.length === 2 && field[0] === name).map((field) => field[1]);
	const times = values('t');
	if (times.length !== 1 || !/^(0|[1-9][0-9]{0,14})$/.test(times[0])) {
		return false;
	}
	const candidates = values('v1').map((value) => Buffer.from(value));
	const matches = secrets.some((secret) => {
		const mac = createHmac('sha256', secret).update(`${times[0]}.`).update(body).digest('hex');
		const expected = Buffer.from(mac);
		return candidates.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
	});
	return matches && Math.abs(now - Number(times[0])) <= TOLERANCE;
}
