// The fleet as a table: what is filtered, sorted and shown is in the address, and is what a download has.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { live, snapshot } from '../fleet.mjs';
import { accessible, directory, fits, picture, served, settled, startBrowser, startConsole, tabTo, visit } from './world.mjs';

const header = (page) => page.locator('thead th').allInnerTexts();

// saved presses the button, and returns the lines of the file with its name.
async function saved(page) {
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download CSV' }).click()]);
  const text = readFileSync(await file.path(), 'utf8');
  assert.equal(text.charCodeAt(0), 0xfeff, 'spreadsheets would not read it as UTF-8');
  return { name: file.suggestedFilename(), lines: text.slice(1).trimEnd().split('\r\n') };
}

test('rows are filtered, columns chosen, and both downloaded', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(60);
  // A NodePool that a spreadsheet would compute: this API server checks nothing.
  for (const o of items) if (o.metadata.labels?.['karpenter.sh/nodepool'] === 'ci') o.metadata.labels['karpenter.sh/nodepool'] = '=HYPERLINK("http://x","ci")';
  const { url } = await served(t, items);
  const browser = await startBrowser(t);
  for (const width of [1280, 390]) {
    const page = await browser.page(url, { width, within: t });
    await visit(page, '#/fleet?view=table', 'Download CSV');
    const all = await saved(page);
    assert.match(all.name, /-nodes-\d{4}-\d\d-\d\dT\d\d-\d\d\.csv$/);
    assert.equal(all.lines[0], 'Node,NodePool,Instance type,Capacity,Zone,State,Pods,Requested (share),$/h,Created');
    assert.equal(all.lines.length, 1 + 60);
    assert.ok(all.lines.some((l) => l.includes(`"'=HYPERLINK(""http://x"",""ci"")"`)), 'the NodePool is not written as a text');
    assert.ok(!all.lines.some((l) => /(^|,)"?=/.test(l)), 'the file has a formula');

    await page.getByRole('searchbox', { name: 'Filter nodes' }).fill('spot us-east-1b');
    await page.waitForFunction(() => location.hash.includes('find='));
    await settled(page);
    const [shown, of] = (await page.locator('.table-tools .dim').innerText()).match(/\d+/g).map(Number);
    assert.ok(shown > 0 && shown < of && of === 60);
    assert.ok((await page.locator('tbody tr:not([aria-hidden])').allInnerTexts()).every((r) => r.includes('spot') && r.includes('us-east-1b')));

    const menu = page.locator('summary', { hasText: 'Columns' });
    await menu.click();
    await page.getByRole('checkbox', { name: 'NodeClaim' }).check();
    await page.getByRole('checkbox', { name: 'Age' }).uncheck();
    await accessible(page, `the menu of columns, ${width} px`);
    await fits(page, 'the menu of columns');
    await picture(page, `table-columns-light-${width}`);
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement.tagName), 'SUMMARY', 'the focus is lost with the menu');
    assert.deepEqual((await header(page)).slice(0, 2).map((h) => h.replace(/ .$/, '')), ['Node', 'NodeClaim']);
    await page.getByRole('button', { name: '$/h' }).click();
    await page.waitForFunction(() => location.hash.includes('sort=-cost'));
    const some = await saved(page);
    assert.match(some.lines[0], /^Node,NodeClaim,.*\$\/h$/);
    assert.equal(some.lines.length, 1 + shown);
    const prices = some.lines.slice(1).map((l) => Number(l.split(',').at(-1)));
    assert.deepEqual(prices, prices.toSorted((a, b) => b - a), 'the file is not sorted as the table is');

    // The address alone shows the same.
    const hash = await page.evaluate(() => location.hash);
    const again = await browser.page(url, { width, within: t, hash });
    await again.getByText(`${shown} of 60 nodes`).waitFor();
    assert.deepEqual(await header(again), await header(page));
    await again.getByRole('searchbox', { name: 'Filter nodes' }).fill('no such node');
    await again.getByText('No node has all of these words').waitFor();
    assert.equal(await again.getByRole('button', { name: 'Download CSV' }).isDisabled(), true);
    await accessible(again, `no rows, ${width} px`);
    await fits(again, 'no rows');
  }
});

test('the keyboard alone chooses a column and sorts by it', { timeout: 5 * 60_000 }, async (t) => {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(12));
  const page = await (await startBrowser(t)).page(await startConsole(t, ['-f', file]));
  await visit(page, '#/fleet?view=table', 'Download CSV');
  await tabTo(page, (e) => e.tagName === 'SUMMARY' && e.innerText === 'Columns');
  await page.keyboard.press('Enter');
  await tabTo(page, (e) => e.type === 'checkbox' && e.parentElement.innerText === 'CPU requested');
  await page.keyboard.press('Space');
  await page.keyboard.press('Escape');
  await tabTo(page, (e) => e.tagName === 'BUTTON' && e.innerText.startsWith('CPU requested'));
  await page.keyboard.press('Enter');
  await page.locator('th[aria-sort=descending]', { hasText: 'CPU requested' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.innerText.startsWith('CPU requested')), true, 'sorting drops the focus');
});
