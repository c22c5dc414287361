// Takes the pictures of the console in docs/images: make console-pictures. They are of generated clusters and of the demo of the
// documentation, so they change only with the page and the engine.
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { snapshot } from './fleet.mjs';
import { directory, root, run, settled, startBrowser, startConsole, visit } from './browser/world.mjs';

const size = { width: 1280, height: 800 };
const save = async (page, name) => {
  await settled(page);
  await page.evaluate(() => document.activeElement.blur());
  await page.screenshot({ path: join(root, 'docs/images', `${name}.png`) });
};

async function fleetOf(t, nodes) {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(nodes));
  const url = await startConsole(t, ['-f', file]);
  const page = await (await startBrowser(t)).page(url, { within: t, ...size });
  await page.getByText('planned now').waitFor();
  return { url, page };
}

test('300 nodes', async (t) => {
  const { url, page } = await fleetOf(t, 300);
  const { nodes } = await (await fetch(`${url}/api/v1/fleet`)).json();
  const node = nodes.find((n) => n.nodePool === 'general' && n.state === 'planned' && n.instanceType.endsWith('4xlarge')) ?? nodes.find((n) => n.state === 'planned');
  await visit(page, `#/fleet?node=${node.name}`, 'In a terminal');
  await save(page, 'console');
  await visit(page, '#/pending?open=search/Deployment/indexer!', '+ us-east-1a');
  await save(page, 'console-pending');
  await visit(page, '#/what-if?pool=general', 'Nothing is edited yet');
  const editor = page.getByRole('textbox', { name: /^Manifest of NodePool/ });
  await editor.fill((await editor.inputValue()).replace('consolidateAfter: 1m', 'consolidateAfter: 10m').replace('expireAfter: 720h', 'expireAfter: 336h'));
  await page.getByText(/\d+ nodes? would drift/).waitFor();
  await page.evaluate(() => document.querySelector('main').scrollTo(0, 0));
  await save(page, 'console-what-if');
});

test('5,000 nodes', async (t) => {
  const { page } = await fleetOf(t, 5000);
  await visit(page, '#/fleet?color=use&group=zone', '83 to 100 %');
  await save(page, 'console-5000');
});

test('a recorded day', async (t) => {
  const recording = join(directory(), 'decisions.rec');
  await run('go', ['run', '-C', root, './cmd/dovetail-demo', recording]);
  const url = await startConsole(t, ['--recording', recording], { KUBECONFIG: 'nowhere' });
  const { to } = await (await fetch(`${url}/api/v1/decisions`)).json();
  const at = new Date(Date.parse(to) - 9 * 3.6e6).toISOString().replace(/\.\d+Z/, 'Z');
  for (const [theme, name] of [['light', 'console-timeline'], ['dark', 'console-timeline-dark']]) {
    const page = await (await startBrowser(t)).page(url, { within: t, ...size, theme });
    await visit(page, `#/timeline?t=${at}&range=24`, /^Fleet at /);
    await page.locator('.chart canvas').waitFor();
    await page.getByText('Reading the recording').waitFor({ state: 'detached' });
    await save(page, name);
  }
});
