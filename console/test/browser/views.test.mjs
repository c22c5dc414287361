// Every view in both themes and at the widths of phones, laptops and large screens, by axe-core: over snapshots of generated clusters,
// a live cluster, several clusters, and a recording. With CONSOLE_PICTURES, each is a picture.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ApiServer } from '../apiserver.mjs';
import { live, snapshot } from '../fleet.mjs';
import {
  accessible, atEnd, directory, fits, picture, recording, refused, served, settled, startBrowser, startConsole, visit,
} from './world.mjs';

// sizes are those of a phone, a laptop and a large screen, and of a laptop whose browser is zoomed to 200 %.
const sizes = [[390, 844], [1280, 800], [1920, 1080], [640, 400, 2]];

// each runs a function with a page of each size and theme.
async function each(t, browser, url, run) {
  for (const theme of ['light', 'dark']) {
    for (const [width, height, zoom = 1] of sizes) {
      // axe-core checks both themes at once, and what fits does not depend on them: the rest is for pictures.
      if (theme === 'dark' && (zoom > 1 || (width !== 1280 && !process.env.CONSOLE_PICTURES))) continue;
      const what = `${theme}, ${width} px`;
      await t.test(what, async (t) => {
        const page = await browser.page(url, { within: t, width, height, theme, allow: refused, options: { deviceScaleFactor: zoom } });
        await run(page, async (name, hash, text, act) => {
          await visit(page, hash, text);
          await act?.(page);
          await settled(page);
          if (theme === 'light') await accessible(page, `${name}, ${what}`);
          await fits(page, `${name}, ${what}`);
          await picture(page, `${name}-${theme}-${width}`);
        });
      });
    }
  }
}

// withoutSpot edits the manifest so that the NodePool launches on-demand capacity only.
async function withoutSpot(page) {
  const editor = page.getByRole('textbox', { name: /^Manifest of NodePool/ });
  await editor.fill((await editor.inputValue()).replace(/ +- spot\n/, ''));
  await page.getByText(/\d+ nodes? would drift/).waitFor();
  await page.getByRole('region', { name: 'Effect' }).evaluate((e) => {
    document.activeElement.blur();
    document.querySelector('main').scrollTo(0, e.offsetTop > 400 ? e.offsetTop - 60 : 0);
  });
}

// interesting is a node with something to explain.
async function interesting(url) {
  const { nodes } = await (await fetch(`${url}/api/v1/fleet`)).json();
  return ['planned', 'blocked', 'drifted', 'steady'].map((s) => nodes.find((n) => n.state === s)).find((n) => n).name;
}

// 5,000 nodes are for pictures alone: the code is that of 300.
for (const nodes of process.env.CONSOLE_PICTURES ? [3, 300, 5000] : [3, 300]) {
  test(`views of ${nodes} nodes`, { timeout: 30 * 60_000 }, async (t) => {
    const browser = await startBrowser(t);
    const file = join(directory(), 'shop.json');
    const text = snapshot(nodes);
    writeFileSync(file, text);
    const { metadata: pod } = JSON.parse(text).items.find((o) => o.kind === 'Pod' && !o.spec.nodeName);
    const url = await startConsole(t, ['-f', file]);
    await each(t, browser, url, async (page, view) => {
      await page.getByText('planned now').waitFor();
      const node = await interesting(url);
      await view(`fleet-${nodes}`, '#/fleet', 'Group by');
      await view(`panel-${nodes}`, `#/fleet?node=${node}`, 'In a terminal');
      await view(`use-${nodes}`, '#/fleet?color=use&group=zone', '83 to 100 %');
      await view(`table-${nodes}`, '#/fleet?view=table', 'Instance type');
      await view(`node-${nodes}`, `#/nodes/${node}`, 'In a terminal');
      await view(`nodepool-${nodes}`, '#/nodepools?pool=general', 'What the next passes do');
      if (nodes > 300) return;
      await view(`pending-${nodes}`, '#/pending?open=search/Deployment/indexer!', '+ us-east-1a');
      await view(`pod-${nodes}`, `#/pods/${pod.namespace}/${pod.name}`, '+ us-east-1a');
      await view(`nodepools-${nodes}`, '#/nodepools', 'What the next passes do');
      await view(`what-if-${nodes}`, '#/what-if?pool=general', 'Nothing is edited yet', nodes > 3 ? withoutSpot : undefined);
      await view(`timeline-${nodes}`, '#/timeline', 'Observed at');
    });
  });
}

test('views of a live cluster, and of several', { timeout: 30 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const servers = await Promise.all([live(300), live(12, 3)].map(async (items) => {
    const api = new ApiServer(items);
    atEnd(t, () => api.close());
    return api.listen();
  }));
  const config = (contexts) => {
    const file = join(directory(), 'kubeconfig');
    writeFileSync(file, JSON.stringify({
      apiVersion: 'v1', kind: 'Config', 'current-context': contexts[0][0], users: [{ name: 'test', user: {} }],
      clusters: contexts.map(([name, server]) => ({ name, cluster: { server } })),
      contexts: contexts.map(([name]) => ({ name, context: { cluster: name, user: 'test' } })),
    }));
    return { KUBECONFIG: file };
  };
  await t.test('live', async (t) => {
    const url = await startConsole(t, [], config([['production', servers[0]]]));
    await each(t, browser, url, async (page, view) => {
      await page.getByText(/^planned /).waitFor();
      await view('live', '#/fleet', 'Group by');
      await view('doctor', '#/doctor', /checks? ran/);
    });
  });
  await t.test('several', async (t) => {
    const all = [['production', servers[0]], ['staging', servers[1]], ['old', 'http://127.0.0.1:1']];
    const url = await startConsole(t, ['--all-contexts'], config(all));
    await each(t, browser, url, async (page, view) => {
      await view('clusters', '#/clusters', '1 cluster cannot be reached', async () => {
        // Both that answer are planned: only the third has unknown numbers.
        await page.waitForFunction(() => [...document.querySelectorAll('main tbody tr')].filter((r) => !r.innerText.includes('?')).length === 2);
      });
    });
  });
});

test('views of a recording', { timeout: 30 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const url = await startConsole(t, ['--recording', recording]);
  const { decisions } = await (await fetch(`${url}/api/v1/decisions`)).json();
  const removal = decisions.find((d) => d.type === 'underutilized');
  await each(t, browser, url, async (page, view) => {
    await view('recorded-timeline', '#/timeline?t=2026-11-28T19:15:50Z', 'Fleet at 19:15', async () => {
      await page.locator('.chart canvas').waitFor();
      await page.getByText('Reading the recording').waitFor({ state: 'detached' });
    });
    await view('recorded-decisions', '#/decisions', 'in the last day of the recording');
    await view('recorded-decision', `#/decisions/${removal.id}`, 'What became of it');
  });
});

test('with forced colors and reduced motion, states and the focus are seen, and nothing moves', { timeout: 10 * 60_000 }, async (t) => {
  const { url } = await served(t, live(12));
  const browser = await startBrowser(t);
  for (const theme of ['light', 'dark']) {
    const page = await browser.page(url, { within: t, theme, options: { forcedColors: 'active', reducedMotion: 'reduce' } });
    await page.getByText(/^planned /).waitFor();
    for (const [hash, text] of [
      ['#/fleet', 'Group by'], ['#/fleet?view=table', 'Instance type'], ['#/pending', 'change needed'], ['#/nodepools', 'What the next passes do'],
      ['#/what-if', 'Nothing is edited yet'], ['#/doctor', /checks? ran/], ['#/timeline', 'Observed'],
    ]) {
      await visit(page, hash, text);
      await settled(page);
      await accessible(page, `${hash} with forced colors`, { forced: true });
      await picture(page, `forced-${theme}-${hash.replace(/\W+/g, '-')}`);
      const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter((e) => {
        const { transitionDuration, animationName } = getComputedStyle(e);
        return animationName !== 'none' || transitionDuration !== '0s';
      }).map((e) => e.outerHTML.slice(0, 80)));
      assert.deepEqual(moving, []);
    }
    await visit(page, '#/fleet', 'Group by');
    const { map, glyph, pressed } = await page.evaluate(() => {
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      return { map: style('.canvas').backgroundColor, glyph: style('.legend .glyph *').fill, pressed: style('[aria-pressed=true]').outlineStyle };
    });
    assert.equal(map, theme === 'light' ? 'rgb(245, 246, 248)' : 'rgb(12, 15, 19)', 'the map has another background than its text is made for');
    assert.match(glyph, theme === 'light' ? /rgb\(169, 180, 193\)/ : /rgb\(74, 86, 101\)/);
    assert.equal(pressed, 'solid');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'solid');
  }
});

test('the map begins on the first screen of a phone, and at 200 % zoom', { timeout: 5 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  for (const nodes of [3, 300]) {
    const file = join(directory(), 'shop.json');
    writeFileSync(file, snapshot(nodes));
    const url = await startConsole(t, ['-f', file]);
    for (const [width, height, least] of [[390, 844, 430], [640, 400, 140], [844, 390, 130]]) {
      const page = await browser.page(url, { width, height, within: t });
      await page.getByText('planned now').waitFor();
      await settled(page);
      const seen = await page.evaluate(() => document.querySelector('nav').getBoundingClientRect().top - document.querySelector('canvas').getBoundingClientRect().top);
      assert.ok(seen >= least, `${seen} px of the map of ${nodes} nodes are seen at ${width} x ${height}`);
      await fits(page, `${width} x ${height}`);
      await accessible(page, `${width} x ${height}`);
    }
  }
});

test('no row of the table is in the document that is not on the screen', { timeout: 5 * 60_000 }, async (t) => {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(300));
  const page = await (await startBrowser(t)).page(await startConsole(t, ['-f', file]));
  await visit(page, '#/fleet?view=table', 'Instance type');
  assert.ok(await page.locator('tbody tr').count() < 60);
  await page.locator('.rows').evaluate((e) => e.scrollTo(0, e.scrollHeight));
  await page.locator('tr[aria-rowindex="301"]').waitFor();
});
