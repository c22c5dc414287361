// Every view in both themes and at the widths of phones, laptops and large screens, over snapshots of generated clusters.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { snapshot } from '../fleet.mjs';
import { accessible, clean, directory, picture, startBrowser, startConsole, visit } from './world.mjs';

const sizes = [[390, 844], [1280, 800], [1920, 1080]];

test('views', { timeout: 20 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  // 5,000 nodes are for pictures alone: the code is that of 300.
  for (const nodes of process.env.CONSOLE_PICTURES ? [3, 300, 5000] : [3, 300]) {
    const file = join(directory(), 'shop.json');
    writeFileSync(file, snapshot(nodes));
    const url = await startConsole(t, ['-f', file]);
    for (const theme of ['light', 'dark']) {
      for (const [width, height] of sizes) {
        await t.test(`${nodes} nodes, ${theme}, ${width} px`, async () => {
          const page = await browser.page(url, { width, height, theme });
          const views = [
            ['fleet', '#/fleet', 'Group by'], ['use', '#/fleet?color=use&group=zone', '83 to 100 %'], ['table', '#/fleet?view=table', 'Instance type'],
            ['pending', '#/pending?open=search/Deployment/indexer!', '+ us-east-1a'], ['nodepools', '#/nodepools?pool=data', 'What the next passes do'],
            ['timeline', '#/timeline', 'Observed at'],
            ['what-if', '#/what-if?pool=data', 'Nothing is edited yet'],
          ];
          for (const [name, hash, text] of views) {
            await visit(page, hash, text);
            await page.waitForTimeout(300); // pods of the map are drawn
            if (theme === 'light') await accessible(page, `${name}, ${width} px`); // which checks both themes
            const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth);
            assert.ok(!wide, `${name} scrolls sideways at ${width} px`);
            await picture(page, `${name}-${nodes}-${theme}-${width}`);
          }
          clean(page);
          await page.context().close();
        });
      }
    }
  }
});

test('no row of the table is in the document that is not on the screen', { timeout: 2 * 60_000 }, async (t) => {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(300));
  const page = await (await startBrowser(t)).page(await startConsole(t, ['-f', file]));
  await visit(page, '#/fleet?view=table', 'Instance type');
  assert.ok(await page.locator('tbody tr').count() < 60);
  await page.locator('.rows').evaluate((e) => e.scrollTo(0, e.scrollHeight));
  await page.locator('tr[aria-rowindex="301"]').waitFor();
  clean(page);
});
