// The console of a running lab.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible, detour, picture, settled, startBrowser, startConsole, startLab, tabTo, visit } from './world.mjs';

const deployment = (name, replicas, spec) => JSON.stringify({
  apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name, namespace: 'default' },
  spec: {
    replicas, selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: { containers: [{ name: 'app', image: 'example.com/app', resources: { requests: { cpu: '1', memory: '1Gi' } } }], ...spec },
    },
  },
});

test('a running lab', { timeout: 15 * 60_000 }, async (t) => {
  const lab = await startLab(t);
  const way = await detour(t, lab.env.KUBECONFIG);
  const url = await startConsole(t, ['--recording', lab.recording, '--kubeconfig', way.kubeconfig]);
  const browser = await startBrowser(t);
  const page = await browser.page(url);

  await t.test('an empty cluster says so', async () => {
    await page.getByText('The cluster has no nodes').waitFor();
    await accessible(page, 'no nodes');
    await picture(page, 'empty-light');
  });

  await t.test('nodes appear as pods are created', async () => {
    await page.evaluate(() => { window.notReloaded = true; });
    await lab.kubectl(['apply', '-f', '-'], deployment('web', 6, {}));
    await page.getByRole('button', { name: /^(Steady|In flight)/ }).first().waitFor();
    await page.getByText('every pod has a node').waitFor();
    await page.getByRole('button', { name: /^Steady/ }).waitFor();
    assert.equal(await page.evaluate(() => window.notReloaded), true, 'the page was loaded anew');
  });

  await t.test('a click on a node leads to the reason why it stays', async () => {
    const box = await page.locator('canvas').boundingBox();
    await page.mouse.click(box.x + 40, box.y + 70);
    await page.getByRole('complementary', { name: 'Selected node' }).waitFor();
    await page.getByRole('heading', { name: 'What keeps it' }).or(page.getByRole('heading', { name: 'If it were removed' })).first().waitFor();
    assert.match(page.url(), /node=/);
    await accessible(page, 'panel');
    await picture(page, 'lab-node-light');
    await page.keyboard.press('Escape');
    await page.getByRole('complementary', { name: 'Planned changes' }).waitFor();
  });

  await t.test('the keyboard alone leads from the start to a node’s page', async () => {
    await page.goto(`${url}/#/fleet`);
    await page.reload();
    await page.getByRole('button', { name: /^Steady/ }).waitFor();
    await tabTo(page, (e) => e.tagName === 'CANVAS');
    await page.keyboard.press('ArrowRight');
    assert.match(await page.locator('#say').textContent(), /requested/);
    await page.keyboard.press('Enter');
    await page.getByRole('complementary', { name: 'Selected node' }).waitFor();
    await page.waitForFunction(() => document.activeElement?.tagName === 'H2');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForURL(/#\/nodes\//);
    await page.getByRole('heading', { name: 'In a terminal' }).waitFor();
    await accessible(page, 'node page');
  });

  await t.test('the keyboard alone leads from a node’s page to the effect of an edit', async () => {
    await page.keyboard.press('g');
    await page.keyboard.press('w');
    const editor = page.getByRole('textbox', { name: /^Manifest of NodePool/ });
    await page.getByText('Nothing is edited yet').waitFor();
    await tabTo(page, (e) => e.tagName === 'TEXTAREA');
    // To the value of expireAfter, which is the last word of its line.
    const line = (await editor.inputValue()).split('\n').findIndex((l) => l.includes('expireAfter:'));
    await page.keyboard.press('Control+Home');
    for (let i = 0; i < line; i++) await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await page.keyboard.press('Control+Shift+ArrowLeft');
    await page.keyboard.type('99h');
    await page.getByText(/\d+ nodes? would drift/).waitFor();
    await page.waitForFunction(() => /The cost stays the same|\/h (less|more)/.test(document.getElementById('say').textContent));
    await tabTo(page, (e) => e.textContent === 'Reset', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByText('Nothing is edited yet').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'TEXTAREA', 'the focus is lost');
    await page.keyboard.press('Shift+Tab');
  });

  await t.test('search leads to a node', async () => {
    await page.keyboard.press('/');
    await page.getByRole('combobox', { name: /^Search/ }).fill('nodepools');
    await accessible(page, 'search');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'NodePools' }).waitFor();
    await page.getByText('Disruption budgets, next 24 h').waitFor();
    await accessible(page, 'NodePools');
    await picture(page, 'lab-nodepools-light');
  });

  await t.test('a pending pod leads to its smallest fix', async () => {
    await lab.kubectl(['apply', '-f', '-'], deployment('indexer', 2, { nodeSelector: { 'topology.kubernetes.io/zone': 'us-east1a' } }));
    await visit(page, '#/pending', 'change needed');
    await page.getByRole('button', { name: /indexer/ }).click();
    await page.getByText('+ us-east-1a').waitFor();
    assert.match(await page.locator('.code pre').first().textContent(), /^kubectl patch deployment indexer/);
    await accessible(page, 'pending');
    await picture(page, 'lab-pending-light');
    await page.getByRole('link', { name: /^indexer-/ }).first().click();
    await page.getByRole('heading', { name: /^default\/indexer-/ }).waitFor();
    await page.getByText('Why, for each NodePool').waitFor();
    await accessible(page, 'pod page');
  });

  await t.test('what-if shows the cost and the drift of an edit, and writes nothing', async () => {
    const pools = () => lab.kubectl(['get', 'nodepools.karpenter.sh', '-o', 'jsonpath={range .items[*]}{.metadata.name} {.metadata.generation} {.spec}{"\\n"}{end}']);
    const before = await pools();
    const claims = await lab.kubectl(['get', 'nodeclaims', '-o', 'name']);
    const methods = new Set();
    const count = (r) => methods.add(`${r.method()} ${new URL(r.url()).pathname}`);
    page.on('request', count);
    await visit(page, '#/what-if', 'Nothing is edited yet');
    const editor = page.getByRole('textbox', { name: /^Manifest of NodePool/ });
    const text = await editor.inputValue();
    await accessible(page, 'what-if');
    await editor.fill(text.replace(/expireAfter: .*/, 'expireAfter: 99h'));
    await page.getByText(/\d+ nodes? would drift/).waitFor();
    await page.getByText('spec.template.spec.expireAfter').waitFor();
    assert.match(await page.locator('.numbers').innerText(), /\$\/h after the moves below\s+\$/);
    await accessible(page, 'what-if with drift');
    await picture(page, 'lab-what-if-light');
    await editor.fill(text.replace('operator: In', 'operator: Im'));
    await page.getByText(/^Line \d+:/).waitFor();
    await page.getByText(/requirements\[\d+\]\.operator/).waitFor();
    await accessible(page, 'what-if with a fault');
    await page.getByRole('button', { name: 'Reset' }).click();
    await page.getByText('Nothing is edited yet').waitFor();
    page.off('request', count);
    assert.deepEqual([...methods].filter((m) => !m.startsWith('GET ')), ['POST /api/v1/what-if']);
    assert.equal(await pools(), before);
    assert.equal(await lab.kubectl(['get', 'nodeclaims', '-o', 'name']), claims);
  });

  await t.test('the scrubber shows the fleet of a recorded minute', async () => {
    await visit(page, '#/timeline', 'Fleet now');
    await page.locator('.chart canvas').waitFor();
    await accessible(page, 'timeline');
    await picture(page, 'lab-timeline-light');
    const scrubber = page.getByRole('slider', { name: 'Recorded minute' });
    await scrubber.focus();
    await page.keyboard.press('Home');
    await page.getByText('You see the past').waitFor();
    assert.match(page.url(), /t=\d{4}-\d\d-\d\dT/);
    await page.getByRole('region', { name: 'Fleet then' }).getByRole('heading', { name: /^(Fleet at|Nothing is recorded)/ }).waitFor();
    await accessible(page, 'the past');
    await picture(page, 'lab-past-light');
    await page.getByText('Table', { exact: true }).click();
    await page.getByRole('region', { name: 'Spend in numbers' }).getByRole('row').nth(1).waitFor();
    await page.getByRole('button', { name: 'Back to live' }).click();
    await page.getByText('You see the past').waitFor({ state: 'detached' });
    await page.getByRole('heading', { name: 'Fleet now' }).waitFor();
  });

  await t.test('a recorded decision leads to its rule and what became of it', async () => {
    await visit(page, '#/decisions', 'in the last day of the recording');
    await accessible(page, 'decisions');
    await picture(page, 'lab-decisions-light');
    await page.locator('.decisions a').last().click();
    await page.getByRole('heading', { name: 'What became of it' }).waitFor();
    await page.getByRole('heading', { name: 'Alternatives' }).waitFor();
    await accessible(page, 'decision');
    await picture(page, 'lab-decision-light');
  });

  await t.test('the doctor shows its findings', async () => {
    await visit(page, '#/doctor', 'StorageClass gp3-immediate');
    await accessible(page, 'doctor');
    await picture(page, 'lab-doctor-light');
  });

  await t.test('an address that names nothing says so', async () => {
    page.wrong.length = 0;
    await visit(page, '#/nodes/nix', 'the cluster has no Node "nix"');
    await settled(page);
    page.wrong.splice(0).forEach((w) => assert.match(w, /404/));
    await accessible(page, 'not found');
  });

  await t.test('an API server that goes away makes the data stale, not wrong', async () => {
    await visit(page, '#/fleet', 'Fleet');
    await way.close();
    await page.getByText('The API server has not answered since').waitFor();
    await page.getByRole('button', { name: /^Steady/ }).waitFor();
    await accessible(page, 'stale');
    await picture(page, 'lab-stale-light');
    await way.open();
    await page.getByText('The API server has not answered since').waitFor({ state: 'detached' });
    await page.getByText('Live ·').waitFor();
  });

  await t.test('a user without permissions sees which are missing', async (t) => {
    const denied = await browser.page(await startConsole(t, ['--as', 'nobody'], lab.env), { theme: 'dark', within: t });
    await denied.getByRole('heading', { name: 'No permission to list and watch nodes' }).waitFor();
    assert.match(await denied.locator('.code pre').textContent(), /resources: \[nodes\]\n {2}verbs: \[list, watch\]/);
    await accessible(denied, 'forbidden');
    await picture(denied, 'lab-forbidden-dark');
  });

  await t.test('a console that stops is named as the cause', async (t) => {
    let other;
    await t.test('starts', async (inner) => {
      const lost = await startConsole(inner, [], lab.env);
      other = await browser.page(lost, { allow: (text) => /ERR_|Failed to load/.test(text) });
      await other.getByRole('button', { name: /^Steady/ }).waitFor();
    });
    await other.getByText('The console’s own server does not answer').waitFor();
    await other.getByRole('button', { name: /^Steady/ }).waitFor();
  });

});
