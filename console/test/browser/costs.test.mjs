// What pods cost by namespace and by a label: rows of the fleet's table, whose sum is what the fleet costs.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, served, settled, startBrowser, visit } from './world.mjs';

test('costs by namespace and by label add up to that of the fleet, on the page and in the file', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(40));
  const browser = await startBrowser(t);
  for (const [width, theme] of [[1280, 'light'], [390, 'dark']]) {
    const page = await browser.page(url, { width, theme, within: t });
    await visit(page, '#/fleet?view=table', 'Download CSV');
    await page.locator('.summary').getByText(/planned (now|\d+)/).waitFor(); // prices are read
    await page.getByRole('combobox', { name: 'Rows' }).selectOption('namespace');
    await page.waitForFunction(() => location.hash.includes('by=namespace'));
    await page.getByText('Not requested').waitFor();
    await settled(page);
    const now = (await page.locator('.costs .value').first().innerText()).replace('/h', '');
    await page.getByText(`${now}/h in all`).waitFor();
    const { hourlyCost } = (await (await fetch(`${url}/api/v1/fleet`)).json()).summary.cost;
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download CSV' }).click()]);
    assert.match(file.suggestedFilename(), /-cost-namespace-/);
    const lines = readFileSync(await file.path(), 'utf8').slice(1).trimEnd().split('\r\n').map((l) => l.split(','));
    const at = lines[0].indexOf('$/h');
    const sum = lines.slice(1).reduce((all, l) => all + Number(l[at]), 0);
    assert.ok(Math.abs(sum - hourlyCost) < 1e-9 && hourlyCost > 0, `the rows cost ${sum}, the fleet ${hourlyCost}`);
    for (const row of ['shop', 'kube-system', 'Not requested']) assert.ok(lines.some((l) => l[0] === row), `${row} has no row`);
    assert.equal(lines.at(-1)[0], 'Not requested');
    await page.getByText('A pod costs the mean of its shares').waitFor();
    await accessible(page, `costs by namespace at ${width} px`);
    await fits(page, 'costs by namespace');
    await picture(page, `costs-namespace-${theme}-${width}`);

    await page.getByRole('combobox', { name: 'Rows' }).selectOption('label:app');
    await page.waitForFunction(() => decodeURIComponent(location.hash).includes('by=label:app'));
    await page.getByRole('cell', { name: 'checkout', exact: true }).waitFor();
    await page.getByText(`${now}/h in all`).waitFor();
    await page.getByRole('button', { name: 'Pods', exact: true }).click();
    await page.waitForFunction(() => location.hash.includes('sort=-pods'));
    assert.equal(await page.locator('tbody tr').last().locator('td').first().innerText(), 'Not requested', 'the rest is sorted among the others');
    await page.getByRole('searchbox', { name: /^Filter values/ }).fill('checkout');
    await page.getByText(new RegExp(`/h of \\${now}/h`)).waitFor();
    await settled(page);
    assert.equal(await page.locator('tbody tr').count(), 1);
    await accessible(page, `costs by label at ${width} px`);
    await fits(page, 'costs by label');
    await picture(page, `costs-label-${theme}-${width}`);
  }
});
