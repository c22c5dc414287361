import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

const { noBound, whyNothing } = await compiled('fleet/why.ts');
const summary = (cost, kept = [], more = {}) => ({ cost: { hourlyCost: 1, lowerBound: 0.75, ...cost }, kept, pods: 3, planned: '2026-01-01T00:00:00Z', ...more });

test('beside a gap to the lower bound, the reason that keeps most nodes is named with its count', () => {
  const kept = [{ why: 'Can\'t replace with a cheaper node', nodes: 7 }, { why: 'pdb prevents pod evictions', nodes: 3 }];
  assert.deepEqual(whyNothing(summary({}, kept), null), [
    '7 of 10 nodes stay for one reason: can\'t replace with a cheaper node.', 'The nodes cost $0.250/h more than the lower bound.',
  ]);
  assert.match(whyNothing(summary({}, kept.slice(0, 1)), null)[0], /^All 7 nodes stay for one reason: /);
  assert.match(whyNothing(summary({}, [{ why: 'node is rebooting', nodes: 1 }]), null)[0], /^The node stays for one reason: node is rebooting\.$/);
});

test('what all nodes anew would cost is that of dovetail assess', () => {
  const assessed = (hourlyCost, hourlySavings) => ({ outcomes: [{ name: 'now', hourlyCost: 9 }, { name: 'repacked', hourlyCost, hourlySavings, nodes: 2 }] });
  assert.equal(whyNothing(summary({}), assessed(0.8, 0.2)).at(-1), 'To launch all anew would cost $0.800/h, $0.200/h less, with 2 nodes.');
  assert.equal(whyNothing(summary({}), assessed(1.1, -0.1)).at(-1), 'To launch all anew would cost $1.100/h, no less.');
});

test('without a gap, and without a bound, there is nothing to state', () => {
  const kept = [{ why: 'pdb prevents pod evictions', nodes: 3 }];
  for (const cost of [{ lowerBound: null }, { lowerBound: 1 }, { lowerBound: 1.2 }, { lowerBound: 0.9999 }]) assert.deepEqual(whyNothing(summary(cost, kept), null), []);
});

test('no pods, no permission and no plan are different reasons for no lower bound', () => {
  assert.equal(noBound(summary({}, [], { pods: 0 }), false), 'no pods');
  assert.equal(noBound(summary({}, [], { pods: 0 }), true), 'not known');
  assert.equal(noBound(summary({}, [], { planned: null }), false), 'not known yet');
  assert.equal(noBound(summary({}), false), 'not known');
});
