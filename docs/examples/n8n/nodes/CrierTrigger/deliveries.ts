import type { IDataObject } from 'n8n-workflow';

const MAX_STORED = 500;
const MAX_IN_MEMORY = 10_000;

// n8n reads the static data before each request and writes it afterward, so it misses a delivery that arrives twice at
// the same moment. This process does not.
const inMemory = new Set<string>();

/**
 * Returns whether the delivery is new, and remembers it in the static data of the node. Crier repeats a delivery with the
 * same ID if the response was lost.
 */
export function takeDelivery(data: IDataObject, node: string, id: string): boolean {
	const stored = Array.isArray(data.deliveries) ? (data.deliveries as string[]) : [];
	const key = `${node}:${id}`;
	if (stored.includes(id) || inMemory.has(key)) {
		return false;
	}
	inMemory.add(key);
	for (const oldest of inMemory) {
		if (inMemory.size <= MAX_IN_MEMORY) {
			break;
		}
		inMemory.delete(oldest);
	}
	// n8n stores the data if a property of it is assigned.
	data.deliveries = [...stored, id].slice(-MAX_STORED);
	return true;
}
