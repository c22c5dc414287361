// A recording exported as files: any file server shows it, below any path, with the figures of the recording.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { extname, join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { compiled } from '../compiled.mjs';
import { accessible, atEnd, directory, picture, root, run, startBrowser, startConsole, visit } from './world.mjs';

const kinds = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

// serveFiles is a plain file server with a directory below a path. It returns the address of that path.
async function serveFiles(t, dir, below) {
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    const file = pathname === `${below}/` ? 'index.html' : pathname.slice(below.length + 1);
    try {
      if (!pathname.startsWith(`${below}/`)) throw new Error('it is elsewhere');
      const data = readFileSync(join(dir, file));
      response.writeHead(200, { 'Content-Type': kinds[extname(file)] ?? 'application/octet-stream' }).end(data);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  }));
  return `http://127.0.0.1:${server.address().port}${below}`;
}

const { dollars: price } = await compiled('format.ts');
const total = (p) => p.reservedHourlyCost + p.onDemandHourlyCost + p.spotHourlyCost;

test('a recorded day as files', { timeout: 10 * 60_000 }, async (t) => {
  const dir = directory();
  const recording = join(directory(), 'day.rec');
  await run('go', ['run', '-C', root, './cmd/dovetail-demo', recording]); // the demo of the documentation
  await run(process.env.DOVETAIL, ['console', '--recording', recording, '--export', dir], { env: { KUBECONFIG: 'nowhere' } });
  const url = await serveFiles(t, dir, '/docs/demo');
  // What the recording has, of a server that reads it.
  const server = await startConsole(t, ['--recording', recording], { KUBECONFIG: 'nowhere' });
  const asked = async (path) => (await fetch(`${server}/api/v1${path}`)).json();
  let spend;
  do spend = await asked('/spend'); while (spend.read < 1);
  const { decisions } = await asked('/decisions');
  const browser = await startBrowser(t);
  const page = await browser.page(url);

  await t.test('searches find the same, in the same order, as of a server', async () => {
    globalThis.sessionStorage = { getItem: () => null }; // the page has one
    const { answerOf } = await compiled('exported.ts');
    const pack = async (name) => JSON.parse(gunzipSync(readFileSync(join(dir, 'data', `${name}.pack`))));
    const { pods } = (await pack('present'))['/search'];
    const { namespace, name } = pods[0];
    assert.ok(pods.length > 20, `${pods.length} pods: none are left out`);
    const texts = ['a', 'e', '-', '/', namespace, ` ${name.toUpperCase()} `, name.slice(-3), `${namespace}/${name.slice(0, 3)}`, 'no such', '', 'x'.repeat(321)];
    let found = 0;
    for (const text of texts) {
      for (const path of [`/search?text=${encodeURIComponent(text)}`, `/pending?find=${encodeURIComponent(text)}`]) {
        const wanted = await asked(path);
        assert.deepEqual(await answerOf(path, pack), wanted, path);
        found += wanted.pods?.length ?? wanted.found ?? 0;
      }
    }
    assert.ok(found > 40, `${found} found: the texts compare nothing`);
    for (const from of ['0', '1', '9', '-1', 'x']) assert.deepEqual(await answerOf(`/pending?from=${from}`, pack), await asked(`/pending?from=${from}`), from);
  });

  await t.test('the fleet has the cost of the last pass', async () => {
    await page.getByText('A recording, without a cluster.').waitFor();
    await page.getByText('These pages are files').waitFor();
    assert.deepEqual(await page.getByRole('navigation').getByRole('link').allInnerTexts(), ['Fleet', 'Pending\n1', 'Timeline', 'Decisions', 'Savings', 'NodePools']);
    await page.locator('main').getByText(price(total(spend.points.at(-1)))).first().waitFor();
    await accessible(page, 'the fleet of an export');
    await picture(page, 'export-fleet');
  });

  await t.test('each minute of the timeline has its spend and its fleet', async () => {
    await visit(page, '#/timeline', 'Fleet at the end');
    await page.locator('.chart canvas').waitFor();
    for (const point of [spend.points[0], spend.points[Math.floor(spend.points.length / 2)]]) {
      const past = await asked(`/past?at=${encodeURIComponent(point.at)}`);
      await visit(page, `#/timeline?t=${point.at}`, `Fleet at ${past.seen.slice(11, 19)} UTC`);
      const readout = (await page.locator('.readout').innerText()).replace(/\s+/g, ' ');
      assert.match(readout, new RegExp(`nodes ${point.nodes}\\b.*pending ${point.pending}`));
      assert.ok(readout.includes(price(total(point))), `${readout} has no ${price(total(point))}`);
      await page.getByText(`${past.fleet.nodes.length} node${past.fleet.nodes.length === 1 ? '' : 's'}, ${past.fleet.summary.pods} pod`).waitFor();
    }
    await picture(page, 'export-timeline');
  });

  await t.test('decisions are those of the recording, and lead to nodes as they were', async () => {
    await visit(page, '#/decisions', 'in the last day of the recording');
    const removal = decisions.find((d) => d.removes?.[0].pods?.length && d.hourlySavings);
    await visit(page, `#/decisions/${removal.id}`, 'Removes');
    await page.locator('main').getByText(`${price(removal.hourlySavings)}/h`).first().waitFor();
    await picture(page, 'export-decision');
    const [gone] = removal.removes;
    await page.getByRole('link', { name: gone.name }).first().click();
    await page.getByText('You see the past').waitFor();
    const node = await asked(`/nodes/${gone.name}/explain?at=${encodeURIComponent(removal.at)}`);
    await page.getByText(`${price(node.hourlyCost)}/h`).first().waitFor();
    await page.getByText(`${node.instanceType} · ${node.capacityType} · ${node.zone}`).waitFor();
    assert.ok((await page.locator('.verdict').innerText()).toLowerCase().includes(node.verdict.text.toLowerCase().slice(0, 20)));
    await accessible(page, 'a node of an export');
    const [pod] = gone.pods;
    const explained = await asked(`/pods/${pod}/explain?at=${encodeURIComponent(removal.at)}`);
    await visit(page, `#/pods/${pod}?t=${removal.at}`, explained.cause);
    await page.getByText('You see the past').waitFor();
    await accessible(page, 'a pod of an export');
    await picture(page, 'export-pod');
  });

  await t.test('the search finds pods', async () => {
    await page.keyboard.press('/');
    const [pod] = (await asked('/search?text=returns')).pods;
    await page.getByRole('combobox').fill('returns');
    await page.getByRole('option', { name: pod.name }).click();
    await page.waitForURL((u) => u.hash.includes(encodeURIComponent(pod.name)));
    const { cause } = await asked(`/pods/${pod.namespace}/${pod.name}/explain`);
    await page.locator('main').getByText(cause).first().waitFor();
  });

  await t.test('what needs a server says so', async () => {
    await visit(page, '#/what-if', 'run dovetail console');
    await visit(page, '#/nodes/nobody', 'nobody');
    await visit(page, '#/timeline?t=2020-01-01T00:00:00Z', 'the recording has no pass at or before');
  });
});
