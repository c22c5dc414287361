// What the page states while the cluster changes, over an API server in memory: each change is made with the page open.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { live } from '../fleet.mjs';
import { picture, refused, served, startBrowser, visit } from './world.mjs';

const copy = (o) => JSON.parse(JSON.stringify(o));
const created = () => new Date().toISOString().replace(/\.\d+Z/, 'Z');

// cluster is three nodes that are up, without pending pods.
function cluster() {
  return live(3).filter((o) => o.kind !== 'Pod' || o.spec.nodeName);
}

const waiting = (name, conditions = []) => ({
  apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'shop', name, uid: `pod-${name}`, creationTimestamp: created() },
  spec: { schedulerName: 'default-scheduler', containers: [{ name: 'app', image: 'example.com/app', resources: { requests: { cpu: '500m', memory: '256Mi' } } }] },
  status: { phase: 'Pending', conditions },
});

test('what the page states while the cluster changes', { timeout: 15 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const items = cluster();
  const { api, url } = await served(t, items);
  const page = await browser.page(url, { within: t, allow: refused });
  await visit(page, '#/fleet', 'Group by');
  const summary = page.locator('.summary');
  const next = page.getByRole('complementary', { name: 'Planned changes' });
  await summary.getByText(/planned (now|\d+)/).waitFor();

  await t.test('prices that are being read are not unknown, and a bound never comes before them', async () => {
    await page.reload();
    const seen = await page.evaluate(async () => {
      const texts = new Set();
      const until = Date.now() + 20_000;
      while (Date.now() < until) {
        const text = document.querySelector('.costs')?.innerText.replace(/\s+/g, ' ') ?? '';
        texts.add(text);
        if (/Lower bound \$/.test(text)) break;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      return [...texts];
    });
    for (const text of seen) assert.doesNotMatch(text, /not known.*Lower bound \$/, text);
  });

  await t.test('pods that kube-scheduler has not tried need no change', async () => {
    for (let i = 0; i < 55; i++) api.put(waiting(`burst-${i}`));
    await summary.getByText('55 wait for kube-scheduler').waitFor();
    assert.equal(await summary.getByText(/needs? a change/).count(), 0);
    await picture(page, 'changes-waiting');
    await visit(page, '#/pending', '55 pods wait for kube-scheduler');
    await visit(page, '#/fleet', 'Group by');
    for (let i = 0; i < 55; i++) api.remove(waiting(`burst-${i}`));
    await summary.getByText('every pod has a node').waitFor();
  });

  await t.test('a drift rollout is part of what comes next', async () => {
    const claim = copy(items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName));
    const replacement = copy(claim);
    replacement.metadata = {
      ...replacement.metadata, name: 'general-new', uid: 'claim-new', creationTimestamp: created(), annotations: { 'dovetail.sh/replaces': claim.metadata.name },
    };
    replacement.status = { conditions: [] };
    claim.metadata.annotations = {
      ...claim.metadata.annotations,
      'dovetail.sh/disruption-command': JSON.stringify({
        id: 'd-1', reason: 'Drifted', started: created(), candidates: [claim.metadata.name], replacements: ['general-new'],
      }),
    };
    api.put(claim);
    api.put(replacement);
    await next.getByText('Replacing').waitFor();
    await next.getByText(/Waits for its replacement · drifted|waits for its replacement · drifted/).waitFor();
    assert.equal(await next.getByText('Nothing is planned').count(), 0);
    await picture(page, 'changes-drift');
  });

  await t.test('a pod is found by a name of two letters', async () => {
    const running = waiting('db-0');
    running.spec.nodeName = items.find((o) => o.kind === 'Node').metadata.name;
    running.status = { phase: 'Running', conditions: [] };
    api.put(running);
    await page.keyboard.press('/');
    await page.getByRole('combobox', { name: /^Search nodes, pods/ }).fill('db');
    await page.getByRole('option', { name: /shop\/db-0/ }).waitFor();
    await page.keyboard.press('Escape');
  });

  await t.test('if the node in focus goes, the first one is, and Enter opens it', async () => {
    const map = page.locator('.fleet-view .canvas');
    const said = page.locator('#say');
    await map.locator('canvas').focus();
    await map.locator('.mark.focused').waitFor();
    const name = (await said.innerText()).split(',')[0];
    assert.ok(items.some((o) => o.kind === 'Node' && o.metadata.name === name), name);
    for (const o of items) {
      if (o.kind === 'Node' && o.metadata.name === name || o.kind === 'NodeClaim' && o.status.nodeName === name) api.remove(o);
    }
    await page.waitForFunction((before) => !document.querySelector('#say').innerText.startsWith(before), name);
    await map.locator('.mark.focused').waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('complementary', { name: 'Selected node' }).waitFor();
  });
});
