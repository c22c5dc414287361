// The console of a controller: who is let in, and what the page shows to whom is not.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible, picture, startBrowser, startLab } from './world.mjs';

const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: visitor }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dovetail-console-reader }
subjects: [{ kind: ServiceAccount, name: visitor, namespace: default }]
`;

test('login', { timeout: 10 * 60_000 }, async (t) => {
  const lab = await startLab(t, ['--console-login']);
  await lab.kubectl(['create', 'serviceaccount', 'visitor']);
  const token = (await lab.kubectl(['create', 'token', 'visitor'])).trim();
  const browser = await startBrowser(t);
  // Chromium itself reports each refused request.
  const page = await browser.page(lab.served, { allow: (text) => /status of 40[13]/.test(text) });

  await t.test('without a token there is only the login', async () => {
    await page.getByRole('heading', { name: 'Log in', exact: true }).waitFor();
    assert.equal(await page.getByRole('navigation').count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'token');
    await accessible(page, 'login');
    await picture(page, 'login-light');
  });

  await t.test('a token that the API server does not accept is refused', async () => {
    await page.keyboard.type('made-up');
    await page.keyboard.press('Enter');
    await page.getByText('does not accept this token').waitFor();
    await accessible(page, 'refused');
  });

  await t.test('a user without the right sees which is missing', async () => {
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'No permission to read the console' }).waitFor();
    await page.getByText('user system:serviceaccount:default:visitor may not get /console').waitFor();
    assert.match(await page.locator('.code pre').textContent(), /nonResourceURLs: \["\/console"\]\n {2}verbs: \[get\]/);
    await accessible(page, 'not allowed');
    await picture(page, 'not-allowed-light');
  });

  await t.test('with the right, the console shows the cluster live', async () => {
    await lab.kubectl(['apply', '-f', '-'], binding);
    const shown = page.getByRole('heading', { name: 'The cluster has no nodes' });
    // The refusal is repeated for a moment.
    await page.waitForFunction(() => {
      [...document.querySelectorAll('button')].find((b) => b.textContent === 'Try again')?.click();
      return [...document.querySelectorAll('h2')].some((h) => h.textContent === 'The cluster has no nodes');
    }, null, { polling: 1000 });
    await shown.waitFor();
    await page.getByText('Live ·').waitFor();
    await page.reload(); // the tab still has the token
    await shown.waitFor();
  });

  await t.test('there is no cookie, and another tab has no token', async () => {
    assert.deepEqual(await page.context().cookies(), []);
    const other = await page.context().newPage();
    await other.goto(`${lab.served}/`);
    await other.getByRole('heading', { name: 'Log in', exact: true }).waitFor();
  });

});
