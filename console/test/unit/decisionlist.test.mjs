import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

globalThis.sessionStorage = { getItem: () => null }; // the page has one
const { matching, passesOf } = await compiled('decisionlist.tsx');
const decision = (id, pass, more = {}) => ({ id, pass, at: '2026-01-01T00:00:00Z', type: 'launch', what: '', why: '', rule: {}, ...more });

test('decisions of one pass are together, and one without a pass is alone', () => {
  const shown = [decision('a', 'p', { hourlySavings: 1 }), decision('b', 'p', { hourlyCost: 0.25 }), decision('c', ''), decision('d', ''), decision('e', 'q')];
  const passes = passesOf(shown);
  assert.deepEqual([...passes.keys()], [0, 2, 3, 4]);
  assert.deepEqual(passes.get(0), { at: '2026-01-01T00:00:00Z', count: 2, cost: -0.75 });
  assert.equal(passesOf([]).size, 0);
});

test('decisions are filtered by all that the address has', () => {
  const all = [
    decision('a', 'p', { nodePool: 'x', outcome: 'done' }), decision('b', 'p', { type: 'drifted', removes: [{ name: 'ip-10-0-0-1.internal' }] }),
    decision('c', 'q', { nodePool: 'x', why: '<b>=1+1' }),
  ];
  const found = (query) => matching(all, new URLSearchParams(query)).map((d) => d.id).join('');
  assert.equal(found(''), 'abc');
  assert.equal(found('kind=launch&pool=x'), 'ac');
  assert.equal(found('outcome=not known yet'), 'bc');
  assert.equal(found('pool=without NodePool'), 'b');
  assert.equal(found('find=IP-10-0'), 'b');
  assert.equal(found('find=<b>%3D1%2B1&kind=launch'), 'c');
  assert.equal(found('kind=no-such'), '');
});

test('a later answer adds what is new, and replaces what something has become of', async () => {
  globalThis.sessionStorage = { getItem: () => null }; // the page has one
  const { merged } = await compiled('decisionfeed.ts');
  const d = (id, at, outcome = '') => ({ id, at, outcome });
  const all = [d('c', '2026-01-01T00:00:02.5Z'), d('b', '2026-01-01T00:00:02Z'), d('a', '2026-01-01T00:00:01Z', 'done')];
  const later = [d('e', '2026-01-01T00:00:03Z'), d('b', '2026-01-01T00:00:02Z', 'done')];
  assert.deepEqual(merged(all, later).map((x) => `${x.id}${x.outcome}`), ['e', 'c', 'bdone', 'adone']);
  assert.deepEqual(merged(all, []), all);
  assert.equal(merged([], later).length, 2);
});

test('an adoption has a glyph of its own, and kinds without one remove nodes', async () => {
  const { glyphOf } = await compiled('decisions.tsx');
  assert.equal(glyphOf('adoption'), 'adopted');
  for (const kind of ['empty', 'underutilized', 'expired', 'unhealthy']) assert.equal(glyphOf(kind), 'planned');
  const { Glyph } = await compiled('states.tsx');
  const shapeOf = (state) => JSON.stringify(Glyph({ state }).props.children);
  assert.equal(new Set(['launch', 'drifted', 'interrupted', 'adoption', 'empty'].map((k) => shapeOf(glyphOf(k)))).size, 5);
});
