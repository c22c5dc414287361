// The console over an API server in memory: hostile and broken objects, and each state of each view, by axe-core in both themes.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ApiServer, kubeconfig } from '../apiserver.mjs';
import { snapshot } from '../fleet.mjs';
import { accessible, clean, directory, picture, startBrowser, startConsole, visit } from './world.mjs';

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

async function served(t, items, before = () => {}) {
  const api = new ApiServer(items);
  before(api);
  const url = await api.listen();
  t.after(() => api.close());
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, kubeconfig(url));
  return { api, port: Number(new URL(url).port), url: await startConsole(t, [], { KUBECONFIG: file }) };
}

const fits = async (page, what) => {
  const wide = await page.evaluate(() => {
    const main = document.querySelector('main');
    return document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth;
  });
  assert.ok(!wide, `${what} scrolls sideways`);
};

test('names that attack the page are text', { timeout: 10 * 60_000 }, async (t) => {
  const { url } = await served(t, broken(JSON.parse(snapshot(12)).items));
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    const page = await browser.page(url, { width });
    page.on('dialog', (d) => page.wrong.push(`dialog: ${d.message()}`));
    await page.getByRole('button', { name: /^Steady/ }).waitFor();
    const { nodes } = await (await fetch(`${url}/api/v1/fleet`)).json();
    const views = [
      ['fleet', '#/fleet', 'Group by'], ['fleet by pool', '#/fleet?color=pool', 'Group by'], ['fleet by type', '#/fleet?group=type', 'Group by'],
      ['table', '#/fleet?view=table', 'Instance type'], ['pending', '#/pending', '9G cpu'],
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
    clean(page);
  }
});

test('each view in each of its states', { timeout: 15 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const views = [['fleet', 'Fleet'], ['pending', 'Pending'], ['nodepools', 'NodePools']];
  const each = async (page, state, texts) => {
    for (const [view, title] of views) {
      await visit(page, `#/${view}`, texts[view] ?? texts.all);
      await page.getByRole('heading', { level: 1, name: title }).waitFor({ state: 'attached' });
      await accessible(page, `${view}, ${state}`);
      await fits(page, `${view}, ${state}`);
      await picture(page, `${state}-${view}`);
    }
  };
  // A browser reports requests that fail, which is what these states are about.
  const allow = (text) => /Failed to load resource/.test(text);

  await t.test('loading', async (t) => {
    const { url } = await served(t, [], (api) => api.silent.add('pods'));
    const page = await browser.page(url, { allow });
    await each(page, 'loading', { all: /Connecting|Reading|is still being read/ });
    clean(page);
  });

  await t.test('empty', async (t) => {
    const { url } = await served(t, []);
    const page = await browser.page(url, { allow });
    await each(page, 'empty', { fleet: 'The cluster has no nodes', pending: 'Every pod has a node', nodepools: 'The cluster has no NodePool' });
    clean(page);
  });

  await t.test('forbidden', async (t) => {
    const { url } = await served(t, JSON.parse(snapshot(3)).items, (api) => ['nodes', 'pods', 'nodepools'].forEach((k) => api.forbidden.add(k)));
    const page = await browser.page(url, { allow });
    await each(page, 'forbidden', { fleet: /list and watch nodes/, pending: /list and watch pods/, nodepools: /No permission/ });
    clean(page);
  });

  await t.test('stale, and live again', async (t) => {
    const { api, port, url } = await served(t, JSON.parse(snapshot(3)).items);
    const page = await browser.page(url, { allow });
    await each(page, 'live', { fleet: 'Live ·', pending: /needs? a change|gets? a node/, nodepools: 'What the next passes do' });
    await visit(page, '#/pending', /needs? a change|gets? a node/);
    await api.close();
    await page.getByText('The API server has not answered since').waitFor();
    await page.getByText(/needs? a change|gets? a node/).first().waitFor();
    await each(page, 'stale', { all: 'The API server has not answered since' });
    await api.listen(port);
    await page.getByText('The API server has not answered since').waitFor({ state: 'detached' });
    await page.getByText('Live ·').waitFor();
    clean(page);
  });

  await t.test('error', async (t) => {
    const { url } = await served(t, JSON.parse(snapshot(3)).items);
    const page = await browser.page(url, { allow });
    for (const [hash, text] of [
      ['#/nodes/nowhere', 'the cluster has no Node "nowhere"'], ['#/pods/default/nothing', 'Not found'],
      ['#/nodepools?pool=nothing', 'The cluster has no NodePool nothing'], ['#/nix', 'This console has no such view'],
    ]) {
      await visit(page, hash, text);
      await accessible(page, hash);
      await fits(page, hash);
    }
    clean(page);
  });
});
