// Search finds what a person has the name of, wherever it comes from: and the list of keys.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, recording, served, settled, startBrowser, visit } from './world.mjs';

test('search leads to pods of any length, zones, families, decisions and checks', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(12);
  const short = structuredClone(items.find((o) => o.kind === 'Pod' && o.spec.nodeName));
  Object.assign(short.metadata, { name: 'x', namespace: 'q', uid: 'short' });
  const long = structuredClone(short);
  Object.assign(long.metadata, { name: `<b>${'long-'.repeat(48)}`, namespace: 'q', uid: 'long' });
  const { url } = await served(t, [...items, short, long], undefined, ['--recording', recording]);
  const { decisions } = await (await fetch(`${url}/api/v1/decisions`)).json();
  const browser = await startBrowser(t);
  for (const width of [1280, 390]) {
    const page = await browser.page(url, { width, within: t });
    await visit(page, '#/fleet', 'Group by');
    const find = async (text, option, hash) => {
      await page.keyboard.press('/');
      await page.getByRole('combobox', { name: /^Search/ }).fill(text);
      await page.getByRole('option', { name: option }).first().waitFor();
      await settled(page);
      await accessible(page, `the search for ${text} at ${width} px`);
      await fits(page, `the search for ${text}`);
      await picture(page, `search-${text.slice(0, 12).replace(/\W/g, '-')}-light-${width}`);
      const options = page.locator('#options [role=option]');
      const at = await options.evaluateAll((all, source) => all.findIndex((o) => new RegExp(source).test(o.innerText)), option.source);
      for (let i = 0; i < at; i++) await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.waitForFunction((h) => decodeURIComponent(location.hash).includes(h), hash);
      assert.equal(await page.locator('dialog[open]').count(), 0);
    };
    await find('q/x', /^q\/x/, '/pods/q/x');
    await find('<b>', /^q\/<b>long/, '/pods/q/<b>');
    await find('us-east-1b', /^Zone us-east-1b/, 'find=us-east-1b');
    await page.getByText(/^\d+ of 12 nodes/).waitFor();
    await find('c7g', /^Instance family c7g/, 'find=c7g.');
    await find('nodes-la', /^nodes-late/, '/doctor?find=nodes-late');
    await page.getByText(/finding/).first().waitFor();
    await find(decisions[0].id, new RegExp(decisions[0].id.slice(0, 8)), `/decisions/${decisions[0].id}`);
    await page.keyboard.press('/');
    await page.getByRole('combobox', { name: /^Search/ }).fill('no such thing');
    await page.getByText('Nothing matches').waitFor();
    await page.keyboard.press('Escape');
  }
});

test('a key lists the keys, and gives the focus back', { timeout: 5 * 60_000 }, async (t) => {
  const { url } = await served(t, live(3));
  const browser = await startBrowser(t);
  for (const width of [1280, 390]) {
    const page = await browser.page(url, { width, within: t });
    await visit(page, '#/fleet?view=table', 'Instance type');
    const from = page.getByRole('button', { name: 'Map' });
    await from.focus();
    await page.keyboard.press('?');
    const dialog = page.getByRole('dialog', { name: 'Keys' });
    await dialog.getByText('Color by utilization').waitFor();
    await dialog.getByText('Pending').waitFor();
    await settled(page);
    await accessible(page, `the keys at ${width} px`);
    await picture(page, `keys-light-${width}`);
    assert.ok(await dialog.evaluate((d) => d.getBoundingClientRect().bottom <= innerHeight && d.scrollWidth <= d.clientWidth), 'the dialog does not fit');
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.equal(await from.evaluate((e) => e === document.activeElement), true, 'the focus is not where it was');
    await page.keyboard.press('g');
    await page.keyboard.press('p');
    await page.waitForFunction(() => location.hash.includes('pending'));
    // In a field, it is a letter.
    await page.keyboard.press('/');
    await page.getByRole('combobox', { name: /^Search/ }).pressSequentially('?');
    assert.equal(await dialog.count(), 0);
  }
});
