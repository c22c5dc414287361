// A recording without a cluster: the timeline, and pages of a recorded minute.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessible, picture, recording, startBrowser, startConsole, visit } from './world.mjs';

test('a recording without a cluster', { timeout: 5 * 60_000 }, async (t) => {
  // A cluster that the environment names is not read.
  const url = await startConsole(t, ['--recording', recording], { KUBECONFIG: 'nowhere' });
  const browser = await startBrowser(t);
  const page = await browser.page(url);

  await t.test('the fleet is that of the last pass, and says so', async () => {
    await page.getByText('A recording, without a cluster.').waitFor();
    await page.getByText('Recording until 2026-11-28 19:18 UTC').waitFor();
    assert.deepEqual(await page.getByRole('navigation').getByRole('link').allInnerTexts(), ['Fleet', 'Pending', 'Timeline', 'Decisions', 'Savings', 'NodePools', 'What-if']);
    await page.getByRole('complementary', { name: 'Planned changes' }).getByRole('heading', { name: 'Last decisions' }).waitFor();
    await accessible(page, 'the fleet of a recording');
    await picture(page, 'recording-fleet');
  });

  await t.test('the scrubber leads to a node as it was, and from there back', async () => {
    await visit(page, '#/timeline', 'Fleet at the end');
    await page.locator('.chart canvas').waitFor();
    await page.getByRole('slider', { name: 'Recorded minute' }).focus();
    await page.keyboard.press('Home'); // the pods wait for their nodes
    await page.getByText('0 nodes, 60 pods').waitFor();
    await page.keyboard.press('ArrowRight');
    await page.getByText('You see the past').waitFor();
    // The chart's numbers, and the fleet below it, are of the same pass.
    assert.match(await page.locator('.readout').innerText(), /19:13:56 UTC[^]*nodes 20/);
    await page.getByText('20 nodes, 21 pods').waitFor();
    const then = page.getByRole('region', { name: 'Fleet then' });
    await then.getByRole('heading', { name: /^Fleet at/ }).waitFor();
    await then.locator('canvas').focus();
    await then.locator('.mark.focused').waitFor();
    await page.keyboard.press('Enter');
    await accessible(page, 'a recorded minute');
    await picture(page, 'recording-minute');
    await then.getByRole('link', { name: 'Why it stayed or went' }).click();
    await page.waitForURL(/#\/nodes\/.*[?&]t=2026-11-28T19/);
    await page.getByText('You see the past').waitFor();
    await page.getByRole('heading', { name: 'In a terminal' }).waitFor();
    assert.match(await page.locator('.code pre').last().innerText(), /^dovetail explain node ip-\S+ --recording consolidate\.rec --at 2026-11-28T19:\d\d:\d\dZ$/);
    await accessible(page, 'a node of a recorded minute');
    await picture(page, 'recording-node');
    // What the page links to is of the same minute.
    await page.getByRole('link', { name: /^default\// }).first().click();
    await page.waitForURL(/#\/pods\/default\/.*[?&]t=2026-11-28T19/);
    await page.getByRole('heading', { name: 'In a terminal' }).waitFor();
    await accessible(page, 'a pod of a recorded minute');
    await page.getByRole('link', { name: 'The fleet then' }).click();
    await then.getByRole('heading', { name: /^Fleet at/ }).waitFor();
    await page.getByRole('button', { name: 'To the end' }).click();
    await page.getByRole('heading', { name: 'Fleet at the end' }).waitFor();
  });

  await t.test('an address with the exact time of a pass shows that pass', async () => {
    const { points } = await (await fetch(`${url}/api/v1/spend`)).json();
    const seen = points.at(2).at;
    assert.match(seen, /\.\d{4,}/, 'the recording has no time that a browser would round');
    await visit(page, `#/timeline?t=${seen}`, `Fleet at ${seen.slice(11, 19)} UTC`);
    assert.match(await page.locator('.readout').innerText(), new RegExp(`${seen.slice(11, 19)} UTC`));
  });

  await t.test('a decision leads to the nodes that it removed, as they were', async () => {
    await visit(page, '#/decisions', 'in the last day of the recording');
    await page.locator('.decisions a', { hasText: 'ip-10-0-32-17' }).first().click();
    await page.getByRole('heading', { name: 'Removes' }).waitFor();
    await accessible(page, 'a decision of a recording');
    await picture(page, 'recording-decision');
    await page.getByRole('link', { name: /^ip-10-0-32-17/ }).first().click();
    await page.getByText('You see the past').waitFor();
    await page.getByRole('heading', { name: 'If it were removed' }).waitFor();
  });

  await t.test('a time before the recording is named', async () => {
    const other = await browser.page(url, { allow: (text) => /status of 404/.test(text) });
    await visit(other, '#/nodes/ip-10-0-32-17.ec2.internal?t=2026-11-20T00:00:00Z', 'the recording has no pass at or before');
    await accessible(other, 'before the recording');
  });

});
