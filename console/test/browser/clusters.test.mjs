// Several clusters: the overview, the picker, and a cluster that cannot be reached.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { accessible, directory, picture, startBrowser, startConsole, startLab, visit } from './world.mjs';

// threeContexts are two names of the lab's cluster, and one of a cluster where nobody listens.
function threeContexts(kubeconfig) {
  const text = readFileSync(kubeconfig, 'utf8');
  const [, context] = /current-context: "?([^"\n]+)"?/.exec(text);
  const config = text.includes('"apiVersion"') ? JSON.parse(text) : null;
  assert.equal(config, null, 'the kubeconfig is YAML');
  const block = new RegExp(`- context:\n((?: {4}.*\n)+) {2}name: ${context}\n`).exec(text);
  assert.ok(block, text);
  const [, cluster] = / {4}cluster: (\S+)\n/.exec(block[1]);
  const more = `- context:\n${block[1]}  name: team/second\n- context:\n${block[1].replace(`cluster: ${cluster}`, 'cluster: gone')}  name: gone\n`;
  const gone = '- cluster:\n    server: https://127.0.0.1:1\n  name: gone\n';
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, text.replace(block[0], block[0] + more).replace('clusters:\n', `clusters:\n${gone}`));
  return { file, context };
}

test('several clusters', { timeout: 10 * 60_000 }, async (t) => {
  const lab = await startLab(t);
  const { file, context } = threeContexts(lab.env.KUBECONFIG);
  const url = await startConsole(t, ['--all-contexts'], { ...lab.env, KUBECONFIG: file });
  const page = await (await startBrowser(t)).page(url);
  const row = (name) => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name, exact: true }) });

  await t.test('the console begins with an overview, and one cluster that is away holds up no other', async () => {
    await page.getByRole('heading', { name: 'Clusters' }).waitFor();
    await row(context).getByText('Live').waitFor();
    await row('team/second').getByText('Live').waitFor();
    await row('gone').getByText('Not reached').waitFor();
    await page.getByText('1 cluster cannot be reached').waitFor();
    await accessible(page, 'clusters');
    await picture(page, 'clusters-light');
  });

  await t.test('a row leads to its cluster, and the address keeps it', async () => {
    await page.getByRole('link', { name: 'team/second' }).click();
    await page.getByRole('heading', { name: 'The cluster has no nodes' }).waitFor();
    assert.match(page.url(), /#\/@team%2Fsecond\/fleet/);
    await page.getByRole('link', { name: 'NodePools' }).click();
    await page.getByText('Disruption budgets, next 24 h').waitFor();
    assert.match(page.url(), /#\/@team%2Fsecond\/nodepools/);
    await page.reload();
    await page.getByText('Disruption budgets, next 24 h').waitFor();
    await accessible(page, 'one of several');
  });

  await t.test('no link moves or becomes another one once there are some', async () => {
    let answer;
    const asked = new Promise((resolve) => { answer = resolve; });
    await page.route('**/api/v1/clusters', async (route) => {
      await asked;
      await route.continue();
    });
    await page.reload();
    await page.getByRole('heading', { name: 'NodePools' }).waitFor();
    const links = () => page.locator('nav a').allTextContents();
    assert.deepEqual(await links(), []);
    answer();
    await page.getByRole('link', { name: 'Clusters' }).waitFor();
    assert.deepEqual(await links(), ['Clusters', 'Fleet', 'Pending', 'Timeline', 'Savings', 'NodePools', 'What-if', 'Doctor']);
    await page.unroute('**/api/v1/clusters');
  });

  await t.test('an address that changes while a view is drawn for the first time is followed', async () => {
    await visit(page, '#/clusters', 'team/second');
    await page.evaluate(() => new Promise((resolve) => {
      const go = (hash) => {
        history.replaceState(null, '', hash);
        dispatchEvent(new HashChangeEvent('hashchange'));
      };
      const drawn = new MutationObserver(() => { // runs before the next frame
        if (!document.querySelector('nav a[href$="/nodepools"]')) return;
        drawn.disconnect();
        go('#/@team%2Fsecond/nodepools');
        resolve();
      });
      drawn.observe(document.getElementById('root'), { childList: true, subtree: true });
      go('#/@team%2Fsecond/fleet');
    }));
    await page.getByText('Disruption budgets, next 24 h').waitFor();
  });

  await t.test('nothing of one cluster is shown for another, not even for a frame', async () => {
    await visit(page, '#/@team%2Fsecond/fleet', 'The cluster has no nodes');
    await page.evaluate(() => {
      window.wrong = [];
      const look = () => {
        const text = document.querySelector('main')?.textContent ?? '';
        if (location.hash.includes('@gone') && text.includes('The cluster has no nodes')) window.wrong.push(text);
      };
      // The text that stands while the address changes goes with the next rendering.
      new MutationObserver(look).observe(document.getElementById('root'), { childList: true, subtree: true, characterData: true });
      location.hash = '#/@gone/fleet';
    });
    await page.getByText('Stale for').waitFor();
    assert.deepEqual(await page.evaluate(() => window.wrong), []);
  });

  await t.test('the picker switches', async () => {
    await visit(page, '#/@team%2Fsecond/nodepools', 'Disruption budgets, next 24 h');
    const picker = page.getByRole('combobox', { name: 'Cluster' });
    await picker.selectOption('gone');
    await page.getByText('Stale for').waitFor();
    assert.equal(await page.getByText('Disruption budgets, next 24 h').count(), 0);
    await picker.selectOption(context);
    await page.getByRole('heading', { name: 'The cluster has no nodes' }).waitFor();
    await picker.selectOption({ label: 'All 3 clusters' });
    await page.getByRole('heading', { name: 'Clusters' }).waitFor();
  });

});
