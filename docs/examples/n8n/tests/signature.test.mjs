import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import test from 'node:test';
import { isSigned } from '../dist/nodes/CrierTrigger/signature.js';

// The example of docs/webhooks.md.
const SECRET = 'whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN';
const BODY = Buffer.from('{"event":"brand.created","data":{"brand_id":17,"name":"Acme Bakery"}}');
const TIME = 1700000000;
const MAC = '11fc7ed425ca79b127a95413f68ee1582fd66f6a45aa2322cee11415ad0423b5';
const OTHER = MAC.replace('11', '12');
const HEADER = `t=${TIME},v1=${MAC}`;

test('the example of the documentation is accepted', () => {
	assert.ok(isSigned([SECRET], HEADER, BODY, TIME));
});

test('a time is accepted up to 300 s before and after now', () => {
	for (const [off, expected] of [
		[0, true],
		[300, true],
		[-300, true],
		[301, false],
		[-301, false],
	]) {
		assert.equal(isSigned([SECRET], HEADER, BODY, TIME + off), expected, `${off} s`);
	}
});

test('one of several signatures and of several secrets is sufficient', () => {
	assert.ok(isSigned([SECRET], `t=${TIME},v1=${OTHER},v1=${MAC}`, BODY, TIME));
	assert.ok(isSigned([SECRET], `t=${TIME},v0=${OTHER},v1=${MAC}`, BODY, TIME));
	assert.ok(isSigned(['whsec_other', SECRET], HEADER, BODY, TIME));
});

test('another body, secret or time is rejected', () => {
	assert.ok(!isSigned([SECRET], HEADER, Buffer.concat([BODY, Buffer.from(' ')]), TIME));
	assert.ok(!isSigned(['whsec_other'], HEADER, BODY, TIME));
	assert.ok(!isSigned([], HEADER, BODY, TIME));
	assert.ok(!isSigned([SECRET], `t=${TIME + 1},v1=${MAC}`, BODY, TIME));
});

test('a malformed header is rejected', () => {
	const headers = [undefined, ['t=1', HEADER], '', 'nonsense', `t=${TIME}`, `v1=${MAC}`, `t=x,v1=${MAC}`];
	headers.push(`t=${TIME},t=${TIME},v1=${MAC}`, `t=${TIME},v1=`, `t=${TIME},v1=${MAC.slice(1)}`, ',=,=');
	headers.push(`t=${TIME},v1=${MAC.toUpperCase()}`, `t=${TIME},v1=${MAC}=`);
	// The signed text has the time as it was formatted.
	for (const time of ['+1700000000', '01700000000', '1700000000.0', '-1']) {
		const mac = createHmac('sha256', SECRET).update(`${time}.`).update(BODY).digest('hex');
		headers.push(`t=${time},v1=${mac}`);
	}
	for (const header of headers) {
		assert.ok(!isSigned([SECRET], header, BODY, TIME), String(header));
	}
});
