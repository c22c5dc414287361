// Each view in each of its states, over an API server in memory, by axe-core in both themes.
import { test } from 'node:test';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, refused, served, startBrowser, visit } from './world.mjs';

const items = live(3);
const node = items.find((o) => o.kind === 'Node').metadata.name;
const claim = items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName).metadata.name;
const { namespace, name: pod } = items.find((o) => o.kind === 'Pod' && !o.spec.nodeName).metadata;

// views are their addresses, and what each shows of a cluster that is live.
const views = {
  fleet: { hash: '#/fleet', live: 'Group by', api: 'events' },
  table: { hash: '#/fleet?view=table', live: 'Instance type', api: 'events' },
  pending: { hash: '#/pending', live: /needs? a change|gets? a node/, api: 'pending?*' },
  timeline: { hash: '#/timeline', live: /Observed (at|from)/, api: 'spend' },
  decisions: { hash: '#/decisions', live: 'This console has no recording', api: '' },
  nodepools: { hash: '#/nodepools', live: 'What the next passes do', api: 'nodepools' },
  nodepool: { hash: '#/nodepools?pool=data', live: 'What the next passes do', api: 'nodepools/data/explain' },
  'what-if': { hash: '#/what-if', live: 'Nothing is edited yet', api: 'what-if' },
  doctor: { hash: '#/doctor', live: /\d+ checks? ran/, api: 'doctor' },
  node: { hash: `#/nodes/${node}`, live: 'In a terminal', api: `nodes/${node}/explain` },
  pod: { hash: `#/pods/${namespace}/${pod}`, live: 'In a terminal', api: `pods/${namespace}/${pod}/explain` },
  nodeclaim: { hash: `#/nodeclaims/${claim}`, live: 'In a terminal', api: `nodeclaims/${claim}` },
  savings: { hash: '#/savings', live: 'In a terminal', api: 'assessment*' },
  costs: { hash: '#/fleet?view=table&by=namespace', live: 'Not requested', api: 'costs*' },
  clusters: { hash: '#/clusters', live: /in 1 cluster/, api: 'clusters' },
};

// each visits the views that have a text in a state, and checks them.
async function each(page, state, texts) {
  for (const [view, text] of Object.entries(texts)) {
    await visit(page, views[view].hash, text);
    await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
    await accessible(page, `${view}, ${state}`);
    await fits(page, `${view}, ${state}`);
    await picture(page, `${state}-${view}`);
  }
}

const all = (text, ...without) => Object.fromEntries(Object.keys(views).filter((v) => !without.includes(v)).map((v) => [v, text]));

test('each view in each of its states', { timeout: 30 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);

  await t.test('loading', async (t) => {
    const { url } = await served(t, items, (api) => api.silent.add('pods'));
    const page = await browser.page(url, { within: t, allow: refused });
    await each(page, 'loading', { ...all(/Reading pods|still being read/, 'decisions', 'doctor'), doctor: 'Making the checks' });
  });

  await t.test('empty', async (t) => {
    const { url } = await served(t, []);
    const page = await browser.page(url, { within: t, allow: refused });
    await each(page, 'empty', {
      fleet: 'The cluster has no nodes', pending: 'Every pod has a node', timeline: 'observed it since its start',
      nodepools: 'The cluster has no NodePool', nodepool: 'The cluster has no NodePool', 'what-if': 'The cluster has no NodePool',
      doctor: 'No findings', node: 'The cluster has no Node', pod: 'does not exist', clusters: 'No pod is pending', decisions: 'has no recording',
      nodeclaim: 'The cluster has no NodeClaim', savings: 'This cluster has no nodes', costs: 'The cluster has no nodes',
    });
  });

  await t.test('forbidden', async (t) => {
    const { url } = await served(t, items, (api) => ['nodes', 'pods', 'nodepools'].forEach((k) => api.forbidden.add(k)));
    const page = await browser.page(url, { within: t, allow: refused });
    await each(page, 'forbidden', {
      ...all('No permission', 'decisions', 'clusters', 'doctor'), fleet: 'No permission to list and watch nodes', costs: 'No permission to list and watch nodes',
      pending: 'No permission to list and watch pods', timeline: 'No permission to list and watch nodes', doctor: 'Could not run', clusters: 'Incomplete',
    });
  });

  await t.test('pods alone are forbidden, and their numbers are not made up', async (t) => {
    const { url } = await served(t, items, (api) => api.forbidden.add('pods'));
    const page = await browser.page(url, { within: t, allow: refused });
    await each(page, 'no-pods', { fleet: 'no permission' });
    await page.getByText('every pod has a node').waitFor({ state: 'detached' });
  });

  await t.test('live, stale, and live again', async (t) => {
    const { api, port, url } = await served(t, items);
    const page = await browser.page(url, { within: t, allow: refused });
    await each(page, 'live', Object.fromEntries(Object.entries(views).map(([name, v]) => [name, v.live])));
    await visit(page, '#/pending', views.pending.live);
    await api.close();
    await page.getByText('The API server has not answered since').waitFor();
    await page.getByText(views.pending.live).first().waitFor();
    await each(page, 'stale', { ...all('The API server has not answered since', 'clusters'), clusters: 'Stale' });
    await api.listen(port);
    await visit(page, '#/pending', views.pending.live);
    await page.getByText('The API server has not answered since').waitFor({ state: 'detached' });
    await page.getByText('Live ·').waitFor();
  });

  await t.test('an answer that fails, and the next that does not', async (t) => {
    const { url } = await served(t, items);
    const page = await browser.page(url, { within: t, allow: refused });
    await page.getByText('Group by').waitFor();
    const problem = { status: 500, code: 'Internal', field: '', message: 'this answer failed, which is a bug in Dovetail', rule: '' };
    for (const [name, { api }] of Object.entries(views).filter(([, v]) => v.api && v.api !== 'events')) {
      await page.route(`**/api/v1/${api}`, (r) => r.fulfill({ status: 500, json: problem }));
      await each(page, 'error', { [name]: 'This failed' });
      await page.unroute(`**/api/v1/${api}`);
      if (name === 'pending' || name === 'nodepool') await page.getByText(views[name].live).first().waitFor();
    }
  });

  await t.test('a server that does not answer', async (t) => {
    const { url } = await served(t, items);
    const page = await browser.page(url, { within: t, allow: refused });
    await page.getByText('Group by').waitFor();
    await page.route('**/api/v1/**', (r) => r.abort());
    await page.reload();
    await each(page, 'away', all('own server does not answer', 'decisions'));
    await page.unroute('**/api/v1/**');
    await visit(page, '#/pending', views.pending.live);
  });
});
