// What the page states while the cluster changes, over an API server in memory: each change is made with the page open.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { live } from '../fleet.mjs';
import { directory, picture, recording, refused, served, settled, startBrowser, visit } from './world.mjs';

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

  await t.test('a new node has its size at once, before and after it joins', async () => {
    const claim = copy(items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName));
    claim.metadata = { ...claim.metadata, name: 'general-joins', uid: 'claim-joins', creationTimestamp: created(), annotations: {} };
    const allocatable = { cpu: '15920m', memory: '28Gi', pods: '110' };
    claim.status = {
      providerID: 'aws:///us-east-1a/i-joins', capacity: { cpu: '16', memory: '32Gi', pods: '110' }, allocatable,
      conditions: [{ type: 'Launched', status: 'True', reason: 'Launched', message: '', lastTransitionTime: created() }],
    };
    api.put(claim);
    await visit(page, '#/fleet?view=table&columns=node,cpu,state&find=joins', 'In flight');
    assert.equal(await page.locator('tbody tr td').nth(2).innerText(), '15.9');
    const node = copy(items.find((o) => o.kind === 'Node'));
    Object.assign(node.metadata, { name: 'ip-10-0-9-9-joins.ec2.internal', uid: 'node-joins', creationTimestamp: created(), annotations: {} });
    delete node.metadata.labels['karpenter.sh/initialized'];
    node.spec = { providerID: 'aws:///us-east-1a/i-joins' };
    node.status = { conditions: [] }; // the kubelet has stated nothing yet
    api.put(node);
    await page.getByRole('link', { name: 'ip-10-0-9-9-joins' }).waitFor();
    assert.equal(await page.locator('tbody tr td').nth(2).innerText(), '15.9', 'the node has lost its size as it joined');
    api.remove(node);
    api.remove(claim);
    await visit(page, '#/fleet', 'Group by');
  });

  await t.test('draining nodes are counted alike in the legend, the table, Next and the NodePool', async () => {
    const claim = copy(items.findLast((o) => o.kind === 'NodeClaim' && o.status.nodeName));
    const before = copy(claim);
    claim.metadata.deletionTimestamp = created();
    claim.metadata.deletionGracePeriodSeconds = 0;
    api.put(claim);
    const entry = page.locator('.legend button', { hasText: 'Draining' });
    await entry.waitFor();
    const legend = Number(await entry.locator('b').innerText());
    await next.getByText(/^draining/i).first().waitFor();
    const removing = await next.locator('[data-item]', { hasText: /draining/i }).locator('a').count();
    await visit(page, '#/fleet?view=table&find=draining', 'Draining');
    const rows = await page.locator('tbody tr:not([aria-hidden])').count();
    const all = (await (await fetch(`${url}/api/v1/fleet`)).json()).nodes.filter((n) => n.state === 'draining').length;
    // The reports of NodePools are of a cluster that may be some seconds old.
    await page.waitForFunction(async ({ pools, all }) => {
      let leaving = 0;
      for (const pool of pools) {
        const known = await (await fetch(`/api/v1/nodepools/${pool}`)).json();
        leaving += known.disrupted.filter((d) => d.state === 'Leaving' && !d.command).length;
      }
      return leaving === all;
    }, { pools: items.filter((o) => o.kind === 'NodePool').map((o) => o.metadata.name), all }, { polling: 500 });
    assert.deepEqual({ legend, removing, rows }, { legend: all, removing: all, rows: all });
    assert.ok(all > 0);
    api.put(before);
    await visit(page, '#/fleet', 'Group by');
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

test('what a plan states is not added to what has happened since, and hides nothing', { timeout: 5 * 60_000 }, async (t) => {
  const items = cluster();
  const pod = waiting('large', [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/3 nodes are available', lastTransitionTime: created() }]);
  pod.spec.containers[0].resources.requests = { cpu: '14', memory: '20Gi' };
  const kept = items.findLast((o) => o.kind === 'Node');
  kept.metadata.annotations = { 'karpenter.sh/do-not-disrupt': 'true' };
  const drifted = items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName === kept.metadata.name);
  drifted.status.conditions = [
    ...drifted.status.conditions.filter((c) => c.type !== 'Drifted'), { type: 'Drifted', status: 'True', reason: 'AMIDrift', message: 'AMIDrift', lastTransitionTime: created() },
  ];
  const { api, url } = await served(t, [...items, pod]);
  const page = await (await startBrowser(t)).page(url, { within: t, allow: refused });
  const next = page.getByRole('complementary', { name: 'Planned changes' });

  await t.test('a launch that has happened since the plan is not added to it', async () => {
    await next.getByText('Launch ', { exact: false }).first().waitFor();
    // From now on, each state that the page shows is noted: how many launches for pods it has, planned and begun together.
    await page.evaluate(() => {
      window.launches = [];
      const note = () => {
        const text = [...document.querySelectorAll('.changes [data-item]')].map((e) => e.innerText);
        window.launches.push(text.filter((t) => /^\W*Launch/.test(t) && /pending pods/.test(t)).length);
      };
      note();
      window.noting = new MutationObserver(note);
      window.noting.observe(document.querySelector('.panel'), { subtree: true, childList: true, characterData: true });
    });
    const claim = copy(items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName));
    claim.metadata = {
      ...claim.metadata, name: 'general-large', uid: 'claim-large', creationTimestamp: created(), annotations: { 'dovetail.sh/nominated-pods': pod.metadata.uid },
    };
    Object.assign(claim.metadata.labels, { 'node.kubernetes.io/instance-type': 'c7g.4xlarge' });
    claim.status = { conditions: [] };
    api.put(claim);
    await next.getByText(/^Launching c7g.4xlarge/).waitFor();
    const seen = await page.evaluate(() => {
      window.noting.disconnect();
      return window.launches;
    });
    assert.ok(seen.length > 1 && Math.max(...seen) === 1, `launches for pods: ${seen}`);
  });

  await t.test('drift does not hide what keeps a node', async () => {
    await visit(page, `#/nodes/${kept.metadata.name}`, /^Drifted: AMIDrift; stays, since .*do-not-disrupt/);
    await page.getByRole('heading', { name: 'What keeps it' }).waitFor();
    await page.getByRole('heading', { name: /^Drift/ }).waitFor();
  });
});

// What the server has after nobody has looked for a while is nodes without prices: a test of the server holds that. The page opens on it.
test('prices that are being read are stated as such, also on a page that is opened after idle', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, cluster());
  const browser = await startBrowser(t);
  const page = await browser.page(url, {
    within: t, allow: refused,
    before: async (p) => p.route('**/api/v1/events', async (r) => {
      const idle = await (await fetch(`${url}/api/v1/fleet`)).json();
      for (const n of idle.nodes ?? []) n.hourlyCost = null;
      Object.assign(idle.summary, { planned: null, changes: [], notes: [], kept: [] });
      idle.summary.cost = { hourlyCost: 0, plannedHourlyCost: null, lowerBound: null, unpriced: idle.nodes?.length ?? 0, prices: '' };
      await r.fulfill({ contentType: 'text/event-stream', body: `event: fleet\ndata: ${JSON.stringify(idle)}\n\n` });
    }),
  });
  const summary = page.locator('.summary');
  await summary.getByText('reading prices').first().waitFor();
  assert.equal(await summary.getByText('reading prices').count(), 4, 'now, after changes, the lower bound and the split are being read');
  assert.equal(await summary.getByText('not known').count(), 0);
});

test('without pods, the lower bound states that there are none; a running pod belongs to Fleet', { timeout: 5 * 60_000 }, async (t) => {
  const items = cluster();
  const { api, url } = await served(t, items);
  const page = await (await startBrowser(t)).page(url, { within: t, allow: refused });
  const running = items.find((o) => o.kind === 'Pod' && o.spec.nodeName);
  await visit(page, `#/pods/${running.metadata.namespace}/${running.metadata.name}`, 'In a terminal');
  await page.locator('h1').getByText('Running').waitFor();
  assert.equal(await page.locator('.crumbs a').first().innerText(), 'Fleet');
  assert.equal(await page.locator('nav [aria-current]').innerText(), 'Fleet');
  const pending = waiting('stuck', [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/3 nodes are available', lastTransitionTime: created() }]);
  pending.spec.nodeSelector = { 'topology.kubernetes.io/zone': 'us-east1a' };
  api.put(pending);
  await visit(page, '#/pods/shop/stuck', 'Smallest change');
  await page.locator('h1').getByText('Pending').waitFor();
  await page.getByText('no controller creates this one again').waitFor();
  await page.getByText('kubectl replace --force -f -').first().waitFor();
  assert.equal(await page.locator('.crumbs a').first().innerText(), 'Pending');
  await picture(page, 'changes-bare-pod');
  await visit(page, '#/fleet', 'Group by');
  await page.locator('.summary').getByText(/planned (now|\d+)/).waitFor();
  for (const o of [...items.filter((x) => x.kind === 'Pod'), pending]) api.remove(o);
  await page.locator('.costs').getByText('no pods').waitFor();
});

test('a decision is on the open page within two seconds, and only what is new is read', { timeout: 5 * 60_000 }, async (t) => {
  const file = join(directory(), 'decisions.rec');
  copyFileSync(join(dirname(recording), 'first-node.rec'), file);
  const { url } = await served(t, cluster(), undefined, ['--recording', file]);
  const page = await (await startBrowser(t)).page(url, { within: t, allow: refused });
  await visit(page, '#/decisions', 'in the last day of the recording');
  await settled(page);
  const count = async () => (await (await fetch(`${url}/api/v1/decisions`)).json()).decisions.length;
  const before = await count();
  const shown = page.locator('.decisions [data-item]');
  assert.equal(await shown.count(), before);
  const asked = [];
  page.on('request', (r) => r.url().includes('/decisions') && asked.push(new URL(r.url()).search));
  copyFileSync(recording, file); // one with other decisions
  const at = Date.now();
  await page.waitForFunction((n) => document.querySelectorAll('.decisions [data-item]').length > n, before);
  const took = Date.now() - at;
  assert.ok(asked.length > 0 && asked.every((q) => q.startsWith('?since=')), `all decisions are read again: ${asked}`);
  assert.ok(took < 5_000, `it took ${took} ms`); // two seconds where other tests do not run beside it

});
