import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

globalThis.sessionStorage = { getItem: () => null }; // the page has one
const { columnsOf, nameOf } = await compiled('fleet/costs.tsx');
const { csv } = await compiled('csv.ts');

const rows = [
  { rowKind: 'value', name: 'shop', pods: 3, cpuMillicores: 1500, memoryBytes: 2 ** 30, hourlyCost: 0.75 },
  { rowKind: 'others', name: '1200', pods: 1200, cpuMillicores: 0, memoryBytes: 0, hourlyCost: 0 },
  { rowKind: 'without', name: '', pods: 1, cpuMillicores: 100, memoryBytes: 0, hourlyCost: 0.05 },
  { rowKind: 'unrequested', name: '', pods: 0, cpuMillicores: 400, memoryBytes: 2 ** 20, hourlyCost: 0.2 },
];

test('what no pod requests, and pods without the label, have rows of their own', () => {
  assert.deepEqual(rows.map((r) => nameOf(r, 'app')), ['shop', '1,200 more', 'Without label app', 'Not requested']);
  assert.equal(nameOf({ ...rows[0], name: '' }, 'app'), '(empty)');
});

test('the file has exact numbers, and its shares add up to all', () => {
  const fields = columnsOf('app', 1).flatMap((c) => c.file);
  const text = csv(fields.map(([name]) => name), rows.map((r) => fields.map(([, value]) => value(r))));
  assert.equal(text.split('\r\n')[0], 'Label app,Pods,CPU (millicores),Memory (bytes),$/h,$ a month,Share');
  assert.equal(text.split('\r\n')[1], 'shop,3,1500,1073741824,0.75,547.5,0.75');
  const share = fields.find(([name]) => name === 'Share')[1];
  assert.equal(rows.reduce((sum, r) => sum + share(r), 0), 1);
});
