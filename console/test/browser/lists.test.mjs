// Lists with thousands of rows: few of them are in the document, and each can be reached.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, recording, served, settled, startBrowser, startConsole, visit } from './world.mjs';

// largest is how many elements a page has at most, whatever it lists: some screens of rows.
const largest = 1500;

const elements = (page) => page.evaluate(() => document.querySelectorAll('main *').length);
const items = (page) => page.locator('main [role=listitem]');
const focused = (page) => page.evaluate(() => Number(document.activeElement.closest('[data-item]')?.dataset.item ?? -1));

// until waits for a condition in the page.
const until = (page, condition, argument) => page.waitForFunction(condition, argument, { polling: 'raf' });

const focusAt = (page, i) => until(page, (i) => document.activeElement.closest('[data-item]')?.dataset.item === String(i), i);

// onScreen waits until an item is wholly on the screen.
const onScreen = (page, i) => until(page, (i) => {
  const box = document.querySelector(`[data-item="${i}"]`)?.getBoundingClientRect();
  const main = document.querySelector('main').getBoundingClientRect();
  return box && box.top >= main.top - 1 && box.bottom <= main.bottom + 1;
}, i);

// toTheEnd scrolls by the wheel, and then as far as the list goes, until the last item is on the screen and those around it are read: rows
// grow when they are.
async function toTheEnd(page, last) {
  await page.mouse.move(200, 400);
  await page.mouse.wheel(0, 60);
  await until(page, (last) => {
    const main = document.querySelector('main');
    main.scrollTop = main.scrollHeight;
    const box = document.querySelector(`[data-item="${last}"]`)?.getBoundingClientRect();
    return box && box.bottom <= main.getBoundingClientRect().bottom + 60 && !document.querySelector('[data-id^="unread "]');
  }, last);
}

// reaches goes to every end of a list with the keyboard, and keeps the focus while the list is scrolled away from it.
async function reaches(page, many) {
  const last = many - 1;
  assert.equal(await items(page).first().getAttribute('aria-setsize'), String(many));
  await items(page).first().locator('a, button').first().focus();
  for (const [key, at] of [['ArrowDown', 1], ['End', last], ['ArrowUp', last - 1], ['Home', 0]]) {
    await page.keyboard.press(key);
    await focusAt(page, at);
    await onScreen(page, at);
  }
  await page.keyboard.press('PageDown');
  await until(page, () => Number(document.activeElement.closest('[data-item]')?.dataset.item) > 2);
  await page.keyboard.press('Home');
  await focusAt(page, 0);
  await toTheEnd(page, last);
  assert.equal(await focused(page), 0, 'the focus is lost when its row is scrolled away');
  assert.equal(await items(page).last().getAttribute('aria-posinset'), String(many));
  await page.keyboard.press('ArrowDown');
  await focusAt(page, 1);
  await onScreen(page, 1);
  const size = await elements(page);
  assert.ok(size < largest, `${size} elements are in the document`);
}

test('20,000 pending pods without an owner', { timeout: 10 * 60_000 }, async (t) => {
  const many = 20_000;
  const all = live(12).filter((o) => o.kind !== 'Pod' || o.spec.nodeName);
  for (let i = 0; i < many; i++) {
    all.push({
      apiVersion: 'v1', kind: 'Pod',
      metadata: {
        namespace: 'batch', name: `job-${String(i).padStart(5, '0')}`, uid: `job-${i}`, creationTimestamp: new Date(Date.now() - 3.6e6 + i * 100).toISOString(),
      },
      spec: { schedulerName: 'default-scheduler', nodeSelector: { gone: 'yes' }, containers: [{ name: 'a', image: 'a', resources: { requests: { cpu: '1' } } }] },
      status: { phase: 'Pending', conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/12 nodes are available' }] },
    });
  }
  const { url, api } = await served(t, all);
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    const page = await browser.page(url, { width });
    await visit(page, '#/pending', 'job-00000');
    await settled(page);
    await fits(page, `pending pods at ${width} px`);
    await reaches(page, many);
    await accessible(page, `20,000 pending pods at ${width} px`);
    await page.getByText('job-00001', { exact: true }).waitFor();
    await toTheEnd(page, many - 1);
    await page.getByText('job-19999', { exact: true }).waitFor();
    await settled(page);
    await picture(page, `pending-20000-${width}`);

    const filter = page.getByLabel('Filter workloads');
    await filter.fill('JOB-1234');
    await page.getByText('10 found').first().waitFor();
    await page.getByText('job-12340', { exact: true }).waitFor();
    assert.equal(await items(page).count(), 10);
    assert.match(await page.evaluate(() => location.hash), /find=JOB-1234/);
    await accessible(page, 'a filtered list');
    await filter.fill('no such thing');
    await page.getByText('No workload has this').waitFor();
    await filter.fill('');
    await until(page, () => document.querySelector('[data-item]')?.getAttribute('aria-setsize') === '20000');

    // A row opens, and the others make room for it.
    await items(page).nth(1).getByRole('button').first().click();
    await items(page).nth(1).locator('.detail').getByText('Why, for each NodePool').waitFor();
    const row = (i) => page.locator(`main [data-item="${i}"]`);
    const { y, height } = await row(1).boundingBox();
    await page.locator('main').evaluate((main, by) => { main.scrollTop += by; }, Math.max(0, y + height - 400));
    await row(2).waitFor();
    await settled(page);
    const [open, below] = [await row(1).boundingBox(), await row(2).boundingBox()];
    assert.ok(Math.abs(open.y + open.height - below.y) < 1, `the row below is at ${below.y}, the open one ends at ${open.y + open.height}`);
    await page.close();
  }

  // Rows come and go while a person has the focus in the list.
  const page = await browser.page(url);
  await visit(page, '#/pending', 'job-00000');
  await items(page).nth(3).getByRole('button').first().focus();
  api.remove({ apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'batch', name: 'job-00001' } });
  await until(page, () => document.querySelector('[data-item]')?.getAttribute('aria-setsize') === '19999');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /job-00003/);
});

test('5,000 decisions, and 3,000 findings with hostile texts', { timeout: 10 * 60_000 }, async (t) => {
  const url = await startConsole(t, ['--recording', recording]);
  const browser = await startBrowser(t);
  const page = await browser.page(url, { before: async (p) => {
    await p.route('**/api/v1/decisions', async (route) => {
      const answer = await (await route.fetch()).json();
      const one = answer.decisions[0];
      const what = (i) => (i % 7 ? one.what : '<img src=x onerror=alert(1)> ‮ '.repeat(1 + (i % 40)));
      answer.decisions = Array.from({ length: 5000 }, (_, i) => ({ ...one, id: `d-${String(i).padStart(4, '0')}`, what: what(i), why: `number ${i}` }));
      await route.fulfill({ json: answer });
    });
    await p.route('**/api/v1/decisions/d-4321', async (route) => {
      const { decisions: [one] } = await (await fetch(`${url}/api/v1/decisions`)).json();
      await route.fulfill({ json: { ...one, id: 'd-4321' } });
    });
    await p.route('**/api/v1/about', async (route) => route.fulfill({ json: { ...await (await route.fetch()).json(), doctor: true } }));
    await p.route('**/api/v1/doctor', (route) => route.fulfill({ json: {
      at: new Date().toISOString(), checks: 40, notChecked: [], findings: Array.from({ length: 3000 }, (_, i) => ({
        check: 'nodes-ready', severity: ['error', 'warning', 'info'][i % 3], object: `Node/node-${i}`, seen: i % 5 ? 'It is not Ready' : 'x'.repeat(500),
        why: 'Pods on it do not run', remedy: `look at it: kubectl describe node node-${i}`, command: '', manifest: '',
      })),
    } }));
  } });
  await visit(page, '#/decisions', '5,000 decisions');
  await settled(page);
  await fits(page, 'decisions');
  await reaches(page, 5000);
  await accessible(page, '5,000 decisions');
  await page.getByLabel('Filter decisions').fill('number 4321');
  await page.getByText('1 found').first().waitFor();
  await items(page).first().getByRole('link').click();
  await until(page, () => location.hash === '#/decisions/d-4321');

  await visit(page, '#/doctor', '3,000 findings');
  await settled(page);
  await fits(page, 'findings');
  await reaches(page, 3000);
  await accessible(page, '3,000 findings');
  await page.getByRole('button', { name: 'Errors 1000' }).click();
  await until(page, () => document.querySelector('[data-item]')?.getAttribute('aria-setsize') === '1000');
  await page.getByLabel('Filter findings').fill('node-2997');
  await page.getByText('1 found').first().waitFor();
});

test('a node with 600 pods', { timeout: 5 * 60_000 }, async (t) => {
  const all = live(3);
  const { name } = all.find((o) => o.kind === 'Node').metadata;
  const one = all.find((o) => o.kind === 'Pod' && o.spec.nodeName === name && o.metadata.ownerReferences[0].kind === 'ReplicaSet');
  const many = 600 - all.filter((o) => o.kind === 'Pod' && o.spec.nodeName === name).length;
  for (let i = 0; i < many; i++) {
    const pod = structuredClone(one);
    Object.assign(pod.metadata, { name: `more-${i}`, uid: `more-${i}` });
    pod.spec.containers[0].resources.requests = { cpu: '1m', memory: '1Mi' };
    all.push(pod);
  }
  const { url } = await served(t, all);
  const browser = await startBrowser(t);
  for (const [width, theme] of [[390, 'light'], [1280, 'dark'], [1920, 'light']]) {
    const page = await browser.page(url, { width, theme });
    await visit(page, `#/nodes/${name}`, 'In a terminal');
    await settled(page);
    await fits(page, `a node with many pods at ${width} px`);
    await reaches(page, 600);
    await accessible(page, `a node with many pods at ${width} px`);
    await picture(page, `node-600-${theme}-${width}`);
    await page.close();
  }
});
