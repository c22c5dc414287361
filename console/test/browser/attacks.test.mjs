// What clusters, addresses, clocks and networks do to the page: hostile and broken objects, extreme clusters, and a server that goes.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { live, snapshot } from '../fleet.mjs';
import {
  accessible, atEnd, consoleProcess, directory, fits, picture, refused, served, settled, startBrowser, startConsole, visit,
} from './world.mjs';

const script = '"><img src=x onerror="window.owned=1"><script>window.owned=1</script>';
const rtl = '\u202Eevil\u202C عقدة';
const emoji = '👩🏽‍💻🔥';
const long = 'very-long-name-'.repeat(16).slice(0, 240);

// broken adds what no API server would accept, or few would, to a cluster.
function broken(items) {
  const nodes = items.filter((o) => o.kind === 'Node');
  const pods = items.filter((o) => o.kind === 'Pod');
  const label = (o, key, value) => { o.metadata.labels[key] = value; };
  label(nodes[0], 'karpenter.sh/nodepool', script);
  label(nodes[0], 'node.kubernetes.io/instance-type', script);
  label(nodes[1], 'topology.kubernetes.io/zone', rtl);
  label(nodes[2], 'node.kubernetes.io/instance-type', `${emoji}.${long}`);
  label(nodes[3], 'karpenter.sh/nodepool', long);
  nodes[4].metadata.annotations = { note: script.repeat(2000) };
  nodes[5].status.conditions = [{ type: 'Ready', status: 'False', reason: script, message: script + rtl }];
  nodes[6].status = {};
  nodes[7].status.allocatable = { cpu: '0', memory: '0', pods: '0' };
  nodes[8].metadata.creationTimestamp = '2999-01-01T00:00:00Z';
  const odd = (n, metadata, requests, status = {}) => {
    const pod = structuredClone(pods[n]);
    Object.assign(pod.metadata, { uid: `odd-${n}`, ownerReferences: [] }, metadata);
    pod.spec.containers[0].resources = { requests };
    Object.assign(pod.status, status);
    return pod;
  };
  const waits = { phase: 'Pending', conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: script }] };
  const pending = [
    odd(0, { name: 'nothing', namespace: 'default' }, {}, waits),
    odd(1, { name: 'huge', namespace: 'default' }, { cpu: '9000000000', memory: '8Ei' }, waits),
    odd(2, { name: long, namespace: 'default' }, { cpu: '1' }, waits),
    odd(3, { name: 'half', namespace: emoji }, { cpu: '1m', memory: '1' }, waits),
  ];
  for (const p of pending) delete p.spec.nodeName;
  return [
    ...items, ...pending, odd(4, { name: 'zero' }, { cpu: '0', memory: '0' }), odd(5, { name: `a-${long}` }, { cpu: '500' }),
    { apiVersion: 'karpenter.sh/v1', kind: 'NodePool', metadata: { name: `pool-${long}`.slice(0, 250), uid: 'p-long', creationTimestamp: '2026-01-01T00:00:00Z' },
      spec: { template: { spec: { requirements: [], nodeClassRef: { group: 'karpenter.k8s.aws', kind: 'EC2NodeClass', name: script } } } },
      status: { conditions: [{ type: 'Ready', status: 'False', reason: 'Broken', message: script + rtl, lastTransitionTime: '2026-01-01T00:00:00Z' }] } },
  ];
}

test('names that attack the page are text', { timeout: 10 * 60_000 }, async (t) => {
  const { url } = await served(t, broken(JSON.parse(snapshot(12)).items));
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    const page = await browser.page(url, { width, within: t });
    page.on('dialog', (d) => page.wrong.push(`dialog: ${d.message()}`));
    await page.getByRole('button', { name: /^Steady/ }).waitFor();
    const { nodes } = await (await fetch(`${url}/api/v1/fleet`)).json();
    const views = [
      ['fleet', '#/fleet', 'Group by'], ['fleet by pool', '#/fleet?color=pool', 'Group by'], ['fleet by type', '#/fleet?group=type', 'Group by'],
      ['table', '#/fleet?view=table', 'Instance type'], ['pending', '#/pending', /9G cpu/],
      ['nodepools', '#/nodepools', 'What the next passes do'],
      ...nodes.slice(0, 9).map((n) => [`node ${n.name}`, `#/nodes/${encodeURIComponent(n.name)}`, 'In a terminal']),
    ];
    for (const [name, hash, text] of views) {
      await visit(page, hash, text);
      await accessible(page, name);
      await fits(page, `${name} at ${width} px`);
    }
    await page.keyboard.press('/');
    await page.getByRole('combobox').fill('<img');
    await accessible(page, 'search');
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => window.owned), undefined, 'a script of a name has run');
    assert.equal(await page.locator('img[src=x]').count(), 0, 'a name has become an element');
    await visit(page, '#/fleet', 'Group by');
    await picture(page, `hostile-light-${width}`);
  }
});

test('200 NodePools in 40 zones', { timeout: 10 * 60_000 }, async (t) => {
  // They plan fast: nothing is pending, drifted or consolidated.
  const items = live(80).filter((o) => o.kind !== 'Pod' || o.spec.nodeName);
  const pool = items.find((o) => o.kind === 'NodePool');
  const rest = items.filter((o) => o.kind !== 'NodePool');
  pool.spec.disruption = { consolidateAfter: 'Never', budgets: pool.spec.disruption.budgets };
  pool.spec.template.spec.requirements.push({ key: 'karpenter.k8s.aws/instance-family', operator: 'In', values: ['m7g', 'c7g', 'r7g'] });
  const many = Array.from({ length: 200 }, (_, i) => ({ ...pool, metadata: { ...pool.metadata, name: `team-${i}`, uid: `team-${i}` } }));
  rest.filter((o) => ['Node', 'NodeClaim'].includes(o.kind)).forEach((o) => {
    const n = [...o.metadata.labels['kubernetes.io/hostname']].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 8000, 7);
    Object.assign(o.metadata.labels, {
      'karpenter.sh/nodepool': `team-${n % 200}`, 'topology.kubernetes.io/zone': `us-east-1-zone-${n % 40}`,
      'karpenter.k8s.aws/instance-family': o.metadata.labels['node.kubernetes.io/instance-type'].split('.')[0],
    });
    if (o.kind === 'NodeClaim') o.status.conditions = o.status.conditions.filter((c) => c.type !== 'Drifted');
  });
  const { url } = await served(t, [...rest, ...many]);
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    const page = await browser.page(url, { width, within: t });
    for (const hash of ['#/fleet?color=pool', '#/fleet?group=zone', '#/fleet?color=pool&view=table']) {
      await visit(page, hash, hash.includes('table') ? 'Instance type' : 'Group by');
      await settled(page);
      await fits(page, `${hash} at ${width} px`);
      await accessible(page, hash);
      await picture(page, `pools-${width}-${hash.replace(/\W+/g, '-')}`);
      const legend = await page.locator('.legend').boundingBox();
      assert.ok(legend.height <= 100, `the legend is ${legend.height} px high`);
    }
    const asked = new Set();
    page.on('request', (r) => /explain$/.test(r.url()) && asked.add(r.url()));
    await visit(page, '#/nodepools', 'What the next passes do');
    await settled(page);
    await accessible(page, 'NodePools');
    assert.ok(asked.size < 30, `${asked.size} NodePools are planned at once`);
    assert.ok(await page.evaluate(() => document.querySelectorAll('main *').length) < 3000, 'NodePools off the screen are in the document');
    const last = page.getByRole('region', { name: 'NodePool team-99', exact: true });
    await page.getByRole('listitem').first().getByRole('link').first().focus();
    await page.keyboard.press('End');
    await last.getByText('What the next passes do').waitFor();
    await page.getByLabel('Filter NodePools').fill('team-17');
    await page.getByText('11 found').first().waitFor();
  }
});

test('one node, no pods, no requests, no prices, no NodePool', { timeout: 10 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const labels = (o, values) => Object.assign(o.metadata.labels, values);
  const clusters = {
    'one node': live(1),
    'no pods': live(3).filter((o) => o.kind !== 'Pod'),
    'no requests': live(3).map((o) => {
      if (o.kind === 'Pod') o.spec.containers[0].resources = {};
      return o;
    }),
    'no prices': live(3).map((o) => {
      if (o.kind === 'Node' || o.kind === 'NodeClaim') labels(o, { 'node.kubernetes.io/instance-type': 'x9.unknown' });
      return o;
    }),
    'no NodePool': live(3).filter((o) => o.kind !== 'NodePool'),
  };
  for (const [name, items] of Object.entries(clusters)) {
    await t.test(name, async (t) => {
      const { url } = await served(t, items);
      const page = await browser.page(url, { within: t });
      const node = items.find((o) => o.kind === 'Node').metadata.name;
      for (const [hash, text] of [
        ['#/fleet', 'Group by'], ['#/fleet?view=table', 'Instance type'], ['#/pending', /Every pod has a node|needs? a change|gets? a node/],
        ['#/timeline', 'observed it since its start'], [`#/nodes/${node}`, 'In a terminal'],
        ['#/nodepools', name === 'no NodePool' ? 'The cluster has no NodePool' : 'What the next passes do'],
      ]) {
        await visit(page, hash, text);
        await settled(page);
        await fits(page, `${name}: ${hash}`);
        await accessible(page, `${name}: ${hash}`);
        await picture(page, `${name.replace(/ /g, '-')}-${hash.replace(/\W+/g, '-').slice(0, 16)}`);
        assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|null|Infinity/);
      }
      if (name === 'no prices') {
        assert.match(await page.evaluate(() => location.hash), /nodepools/);
        await visit(page, '#/fleet', 'no prices are known');
        await visit(page, '#/fleet?view=table', '?');
        await visit(page, '#/timeline', 'The cost at the end is not known');
      }
    });
  }
});

test('an address of something that is gone says so, in each view', { timeout: 10 * 60_000 }, async (t) => {
  const items = live(3);
  const { api, url } = await served(t, items);
  const page = await (await startBrowser(t)).page(url, { allow: refused });
  for (const [hash, text] of [
    ['#/nodes/nowhere', 'The cluster has no Node "nowhere"'], ['#/pods/default/nothing', 'Not found'],
    ['#/nodepools?pool=nothing', 'The cluster has no NodePool nothing'], ['#/what-if?pool=nothing', 'The cluster has no NodePool nothing'],
    ['#/fleet?node=nowhere', 'The cluster has no node nowhere'], ['#/pending?open=a/b/c', /needs? a change/], ['#/nix', 'This console has no such view'],
    ['#/nodes/%E0%A4%A', 'Not found'], ['#/@%E0%A4%A/fleet', 'Not live'], ['#/timeline?t=now&range=x', 'Observed'], ['#/doctor?severity=x', 'checks ran'],
    ['#/decisions/x', 'This console has no recording'], ['#/fleet?group=x&color=x&only=x&view=x', 'Group by'], ['#/nodes', 'This console has no such view'],
    ['#/pods/a', 'This console has no such view'], ['#', 'Group by'],
  ]) {
    await visit(page, hash, text);
    await accessible(page, hash);
    await fits(page, hash);
  }
  const node = items.find((o) => o.kind === 'Node');
  await visit(page, `#/nodes/${node.metadata.name}`, 'In a terminal');
  await visit(page, `#/fleet?node=${node.metadata.name}`, 'In a terminal');
  api.remove(node);
  api.remove(items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName === node.metadata.name));
  await page.getByText(`The cluster has no node ${node.metadata.name}`).waitFor();
  await page.locator('main').getByRole('link', { name: 'All nodes' }).click();
  await page.getByRole('complementary', { name: 'Planned changes' }).waitFor();
});

test('back, forward and reload keep each view', { timeout: 10 * 60_000 }, async (t) => {
  const items = live(12);
  const node = items.find((o) => o.kind === 'Node').metadata.name;
  const { url } = await served(t, items);
  const page = await (await startBrowser(t)).page(url);
  const steps = [
    ['#/fleet?color=use&group=zone', '83 to 100 %'], ['#/pending', /needs? a change/], ['#/timeline', 'Observed'], ['#/nodepools', 'What the next passes do'],
    ['#/nodepools?pool=data', 'Its nodes on the map'], ['#/what-if?pool=data', 'Nothing is edited yet'], ['#/doctor', 'checks ran'], [`#/nodes/${node}`, 'In a terminal'],
  ];
  for (const [hash, text] of steps) await visit(page, hash, text);
  const main = page.locator('main');
  for (const [hash, text] of steps.toReversed().slice(1)) {
    await page.goBack();
    assert.equal(new URL(page.url()).hash, hash);
    await main.getByText(text).first().waitFor();
    await page.reload();
    await main.getByText(text).first().waitFor();
  }
  for (const [hash, text] of steps.slice(1)) {
    await page.goForward();
    assert.equal(new URL(page.url()).hash, hash);
    await main.getByText(text).first().waitFor();
  }
});

test('an answer that is cut is no answer, and is asked for again', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(3));
  const page = await (await startBrowser(t)).page(url, { allow: refused });
  const cut = (route) => route.fulfill({ status: 200, contentType: 'application/json', body: '{"checks": 1' });
  for (const path of ['doctor', 'nodepools', 'spend', 'decisions']) await page.route(`**/api/v1/${path}`, cut);
  for (const hash of ['#/doctor', '#/nodepools', '#/timeline']) {
    await page.goto(`${url}/${hash}`);
    await page.reload();
    await page.locator('main').getByText('does not answer').first().waitFor();
  }
  await page.unrouteAll();
  await visit(page, '#/doctor', 'checks ran');
});

test('times are the same in each time zone', { timeout: 5 * 60_000 }, async (t) => {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(12));
  const url = await startConsole(t, ['-f', file]);
  const browser = await startBrowser(t);
  const node = JSON.parse(snapshot(12)).items.find((o) => o.kind === 'Node').metadata.name;
  const texts = async (options) => {
    const page = await browser.page(url, { within: t, options });
    const out = [];
    for (const [hash, text] of [
      ['#/fleet?view=table', 'Instance type'], ['#/pending', /needs? a change/], ['#/timeline', 'Observed'], ['#/nodepools?pool=general', 'next passes do'], [`#/nodes/${node}`, 'In a terminal'],
    ]) {
      await visit(page, hash, text);
      await settled(page);
      out.push(await page.locator('body').innerText());
    }
    return out;
  };
  assert.deepEqual(await texts({ timezoneId: 'Pacific/Chatham', locale: 'ar-EG' }), await texts({ timezoneId: 'UTC', locale: 'en-US' }));
});

test('a computer whose clock is five hours ahead shows the ages of the cluster', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(3);
  const node = items.find((o) => o.kind === 'Node');
  node.metadata.creationTimestamp = new Date(Date.now() - 90 * 60_000).toISOString();
  const { url } = await served(t, items);
  const page = await (await startBrowser(t)).page(url, { before: (p) => p.clock.install({ time: Date.now() + 5 * 3.6e6 }) });
  await visit(page, `#/nodes/${node.metadata.name}`, 'In a terminal');
  assert.match(await page.locator('.facts').first().innerText(), /1 h 3\d min/);
  const shown = /Live · ([\d:]+) UTC/.exec(await page.locator('.age').innerText())[1];
  const off = Math.abs(Date.parse(`${new Date().toISOString().slice(0, 11)}${shown}Z`) - Date.now());
  assert.ok(Math.min(off, 24 * 3.6e6 - off) < 60_000, `the page shows ${shown}`);
});

test('a computer that has slept connects again at once', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(3));
  const page = await (await startBrowser(t)).page(url, { allow: refused, before: (p) => p.clock.install() });
  await page.getByText('Live ·').waitFor();
  const again = page.waitForRequest('**/api/v1/events');
  await page.clock.fastForward('08:00:00');
  await again;
  await page.getByText('Live ·').waitFor();
});

test('a page that nobody sees leaves the server alone', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(3));
  const page = await (await startBrowser(t)).page(url, {
    allow: refused, before: (p) => p.clock.install(),
    init: () => Object.defineProperty(Document.prototype, 'hidden', { get: () => window.away === true }),
  });
  await page.getByText('Live ·').waitFor();
  const ended = page.waitForEvent('requestfailed', (r) => r.url().endsWith('/events'));
  await page.evaluate(() => { window.away = true; });
  await page.clock.runFor(12_000);
  await ended;
  const again = page.waitForRequest('**/api/v1/events');
  await page.evaluate(() => {
    window.away = false;
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await again;
  await page.getByText('Live ·').waitFor();
});

test('a console that is started again is live again, with the view as it was', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(3);
  const { url: other, port } = await served(t, items);
  const kubeconfig = join(directory(), 'kubeconfig');
  writeFileSync(kubeconfig, JSON.stringify({
    apiVersion: 'v1', kind: 'Config', 'current-context': 'a', clusters: [{ name: 'a', cluster: { server: `http://127.0.0.1:${port}` } }],
    contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }], users: [{ name: 'a', user: {} }],
  }));
  const browser = await startBrowser(t);
  let page;
  let url;
  await t.test('the first', async (first) => {
    url = (await consoleProcess(first, [], { KUBECONFIG: kubeconfig })).url;
    page = await browser.page(url, { within: t, allow: refused });
    await visit(page, '#/fleet?color=use', '83 to 100 %');
  });
  await page.getByText('own server does not answer').waitFor();
  await page.locator('main').getByText('83 to 100 %').waitFor();
  await consoleProcess(t, ['--port', new URL(url).port], { KUBECONFIG: kubeconfig });
  await page.getByText('own server does not answer').waitFor({ state: 'detached' });
  await page.getByText('Live ·').waitFor();
  assert.match(page.url(), /color=use/);
  assert.notEqual(other, url);
});

test('one page more than a server has streams for states it, and is live once another is closed', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(3));
  const requests = await Promise.all(Array.from({ length: 32 }, () => new Promise((resolve, reject) => {
    const request = http.get(`${url}/api/v1/events`, { agent: false }, (response) => {
      response.resume();
      resolve(request);
    }).on('error', reject);
  })));
  atEnd(t, () => requests.forEach((r) => r.destroy()));
  const page = await (await startBrowser(t)).page(url, { allow: refused });
  await page.getByText('32 pages are open').waitFor();
  await accessible(page, 'too many pages');
  requests.pop().on('error', () => {}).destroy();
  await page.getByText('Live ·').waitFor();
  await page.getByText('32 pages are open').waitFor({ state: 'detached' });
});
