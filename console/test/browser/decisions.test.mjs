// Decisions by pass and by what they are filtered by, and their timeline.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible, fits, picture, recording, settled, startBrowser, startConsole, tabTo, visit } from './world.mjs';

test('decisions of one pass stand together, and a kind is chosen by keyboard', { timeout: 5 * 60_000 }, async (t) => {
  const url = await startConsole(t, ['--recording', recording]);
  const { decisions } = await (await fetch(`${url}/api/v1/decisions`)).json();
  const together = new Map();
  for (const d of decisions) together.set(d.pass, (together.get(d.pass) ?? 0) + 1);
  const launches = decisions.filter((d) => d.type === 'launch').length;
  assert.ok(launches > 0 && launches < decisions.length && [...together.values()].some((n) => n > 1), 'the recording says nothing');
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    const page = await browser.page(url, { width, height: 4000, within: t });
    await visit(page, '#/decisions', 'in the last day of the recording');
    await page.getByRole('heading', { name: /^Pass at/ }).first().waitFor();
    await settled(page);
    assert.equal(await page.locator('.pass').count(), [...together.values()].filter((n) => n > 1).length);
    await accessible(page, `decisions by pass at ${width} px`);
    await fits(page, 'decisions by pass');
    await tabTo(page, (e) => e.tagName === 'SELECT');
    await page.keyboard.press('l');
    await page.waitForFunction(() => location.hash.includes('kind=launch'));
    await page.getByText(new RegExp(`^${launches} decisions? in \\d+ pass`)).waitFor();
    await settled(page);
    assert.equal(await page.getByRole('listitem').count(), launches);
    await accessible(page, `launches at ${width} px`);
    await fits(page, 'launches');
    await picture(page, `decisions-launch-light-${width}`);
    const again = await browser.page(url, { width, within: t, hash: await page.evaluate(() => location.hash) });
    await again.getByText(new RegExp(`^${launches} decisions? in`)).waitFor();
    await visit(again, '#/decisions?kind=no-such', 'No decision has this');
    assert.equal(await again.getByRole('combobox', { name: 'All kinds' }).inputValue(), 'no-such');
  }
});

test('the timeline goes in steps: a price holds until the next point', { timeout: 5 * 60_000 }, async (t) => {
  const url = await startConsole(t, ['--recording', recording]);
  const page = await (await startBrowser(t)).page(url);
  await visit(page, '#/timeline', 'without a gap');
  await page.locator('.chart canvas').waitFor();
  await settled(page);
  const { points } = await (await fetch(`${url}/api/v1/spend`)).json();
  const tops = await page.locator('.chart canvas').evaluate((canvas) => {
    const style = getComputedStyle(document.documentElement).getPropertyValue('--c-on-demand').trim();
    const color = [1, 3, 5].map((i) => parseInt(style.slice(i, i + 2), 16));
    const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const out = new Set();
    for (let x = 0; x < width; x++) {
      for (let y = 0; y < height; y++) {
        const i = 4 * (y * width + x);
        if (color.every((c, k) => data[i + k] === c)) {
          out.add(y);
          break;
        }
      }
    }
    return out.size;
  });
  assert.ok(tops > 1 && tops <= points.length + 1, `${points.length} points have ${tops} heights`);
});
