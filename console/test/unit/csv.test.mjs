import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

const { csv, fileName } = await compiled('csv.ts');

test('fields keep their text, whatever is in them', () => {
  assert.equal(csv(['a', '$/h'], [['x, "y"', 0.25], ['two\nlines', null], [' spaces ', Number.NaN]]), 'a,$/h\r\n"x, ""y""",0.25\r\n"two\nlines",\r\n" spaces ",\r\n');
});

test('no text is a formula in a spreadsheet', () => {
  for (const text of ['=cmd|\'/c calc\'!A1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '  =1', '＝1', '\n-2']) {
    const written = csv(['h'], [[text]]).slice(3);
    assert.match(written, /^"?'/, JSON.stringify(text));
    assert.ok(written.includes(text), `${JSON.stringify(text)} is no longer there`);
  }
  assert.equal(csv(['h'], [[-1]]), 'h\r\n-1\r\n', 'a number is a number');
  assert.equal(csv(['h'], [['m7g.large']]), 'h\r\nm7g.large\r\n');
});

test('a file has a name that every file system takes', () => {
  assert.equal(fileName(['arn:aws:eks:us-east-1:1:cluster/shop', 'nodes'], Date.UTC(2026, 10, 19, 14, 32)), 'arn-aws-eks-us-east-1-1-cluster-shop-nodes-2026-11-19T14-32.csv');
  assert.equal(fileName(['../../etc', 'nodes'], 0), '..-..-etc-nodes-1970-01-01T00-00.csv');
});
