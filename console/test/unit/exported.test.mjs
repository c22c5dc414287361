import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

const { answerOf } = await compiled('exported.ts');
const pod = (namespace, name, node = 'n') => ({ namespace, name, node });
const found = async (answers, path) => answerOf(path, async () => answers);

// The cases are those of TestASearchFindsPodsByAPartOfTheirName in internal/console.
test('a search orders pods as the server does: what begins with the text, then without a node, then by name', async () => {
  const pods = [pod('web', 'my-cart-0'), pod('shop', 'cart-2'), pod('shop', 'my-cart-1', ''), pod('cart', 'db'), pod('shop', 'other')];
  const names = async (text) => (await found({ '/search': { pods } }, `/search?text=${text}`)).pods.map((p) => `${p.namespace}/${p.name}`);
  assert.deepEqual(await names('%20CART'), ['shop/cart-2', 'cart/db', 'shop/my-cart-1', 'web/my-cart-0']);
  assert.deepEqual(await names('shop/my'), ['shop/my-cart-1']);
  for (const text of ['', 'a'.repeat(321)]) assert.equal((await found({ '/search': { pods } }, `/search?text=${text}`)).status, 400);
});

test('the last pods of a long list are found, and what is left out is counted', async () => {
  const pods = Array.from({ length: 100 }, (_, i) => pod('bulk', `job-${i}`));
  pods.push(pod('bulk', 'a-job', ''));
  const answer = await found({ '/search': { pods } }, '/search?text=-job');
  assert.deepEqual(answer.pods.map((p) => p.name), ['a-job']);
  const many = await found({ '/search': { pods } }, '/search?text=job');
  assert.equal(many.pods.length, 20);
  assert.equal(many.more, 81);
  assert.equal(many.pods[0].name, 'job-0');
});

test('pending workloads are found by what the page shows of them and by the names of all their pods', async () => {
  const group = (name, why) => ({ namespace: 'shop', kind: 'ReplicaSet', name, why, pods: [`${name}-0`], since: '2026-01-01T00:00:00Z' });
  const answers = {
    '/pending': { groups: [group('web', 'no zone fits'), group('db', 'the limit')], found: 2, from: 0 }, '/pending/names': [['web-0', 'web-99'], ['db-0']],
  };
  const names = async (query) => (await found(answers, `/pending?${query}`)).groups.map((g) => g.name);
  assert.deepEqual(await names('find=web-99'), ['web']);
  assert.deepEqual(await names('find=LIMIT'), ['db']);
  assert.deepEqual(await names('find=2026'), [], 'what is not shown as such');
  assert.deepEqual(await names('from=1'), ['db']);
  assert.equal((await found(answers, '/pending?from=x')).status, 400);
});
