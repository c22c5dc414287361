import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

const { dollars, change, monthly, rounded } = await compiled('format.ts');

test('a sum of prices has the same digits in each order', () => {
  const prices = [0.1065, 0.2312, 0.2312, 0.0526];
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  assert.notEqual(sum(prices), sum(prices.toReversed()), 'the orders say nothing');
  assert.equal(dollars(sum(prices)), dollars(sum(prices.toReversed())));
  for (const [v, text] of [[0, '$0.000'], [0.6215, '$0.622'], [0.6215 - 1e-16, '$0.622'], [-0.0005, '−$0.001'], [-5e-17, '$0.000'], [12.345, '$12.35'], [1234.5, '$1,235']]) {
    assert.equal(dollars(v), text);
  }
});

test('a difference that shows as nothing has no minus sign', () => {
  for (const [v, text] of [[-5e-17, '+$0.000'], [0, '+$0.000'], [-0.0384, '−$0.038'], [0.1, '+$0.100']]) assert.equal(change(v), text);
});

test('a price has the same digits as in the terminal', () => {
  const table = JSON.parse(readFileSync(new URL('../../../internal/report/testdata/dollars.json', import.meta.url), 'utf8'));
  assert.ok(table.length > 2000, `${table.length} values`);
  for (const [v, text, cents] of table) {
    assert.equal(dollars(v), text, `${v}`);
    assert.equal(rounded(Math.abs(v), 2), cents, `${v} in cents`);
  }
});

test('a cost a month is as in dovetail assess: in cents below $100', () => {
  for (const [v, text] of [[0, '$0.00'], [42.05, '$42.05'], [99.994, '$99.99'], [698.4, '$698'], [1512.5, '$1,513'], [-0.5, '−$0.50']]) assert.equal(monthly(v), text);
});
