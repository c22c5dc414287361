import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

globalThis.sessionStorage = { getItem: () => null }; // the page has one
const { chosen, columns, matching, sorted, toggled } = await compiled('fleet/columns.tsx');
const keys = (list) => list.map((c) => c.key);
const node = (id, more = {}) => ({
  id, name: id, nodeClaim: '', nodePool: 'default', instanceType: 'm7g.large', capacityType: 'spot', zone: 'us-east-1a', state: 'steady', why: '',
  hourlyCost: 1, created: '2026-01-01T00:00:00Z', cpuMillicores: {}, memoryBytes: {}, pods: 0, ...more,
});

test('the columns of the address are shown in the order of the table, and the name always', () => {
  const usual = keys(columns.filter((c) => !c.hidden));
  assert.deepEqual(keys(chosen(null)), usual);
  assert.deepEqual(keys(chosen('cost,pods')), ['node', 'pods', 'cost']);
  for (const broken of ['', 'no-such,,', '%', 'node']) assert.deepEqual(keys(chosen(broken)), usual, `${broken} leaves a table without columns`);
  const more = toggled(null, 'claim');
  assert.deepEqual(keys(chosen(more)), ['node', 'claim', ...usual.slice(1)]);
  assert.equal(toggled(more, 'claim'), null, 'the columns of the beginning need no address');
});

test('nodes are found by each word, in any text of theirs', () => {
  const nodes = [node('a'), node('b', { zone: 'us-east-1b' }), node('c', { capacityType: 'on-demand', state: 'not ready', why: 'kubelet is away' })];
  const found = (text) => matching(nodes, text).map((n) => n.id).join('');
  assert.equal(found(' SPOT  us-east-1b '), 'b');
  assert.equal(found('notready'), 'c');
  assert.equal(found('kubelet'), 'c');
  assert.equal(found('spot on-demand'), '');
  assert.equal(found('  '), 'abc');
});

test('equal nodes keep their places, and an unknown price is the least', () => {
  const nodes = [node('c', { hourlyCost: null }), node('b'), node('a'), node('d', { hourlyCost: 0 })];
  const cost = columns.find((c) => c.key === 'cost');
  assert.equal(sorted(nodes, cost, false, (n) => n.id).map((n) => n.id).join(''), 'cdab');
  assert.equal(sorted(nodes, cost, true, (n) => n.id).map((n) => n.id).join(''), 'badc');
});
