// Measures the console over a generated cluster whose pods change all the time: `make console-bench`, or
// node test/bench.mjs --nodes 5000 --pods 100000 --changes 100 --seconds 60. It prints figures and asserts nothing: they depend on the machine.
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ApiServer, kubeconfig } from './apiserver.mjs';
import { consoleProcess, directory, startBrowser } from './browser/world.mjs';
import { snapshot } from './fleet.mjs';

const { values } = parseArgs({ options: {
  nodes: { type: 'string', default: '5000' }, pods: { type: 'string', default: '100000' }, changes: { type: 'string', default: '100' },
  seconds: { type: 'string', default: '60' }, profile: { type: 'string' },
} });
const [nodes, pods, changes, seconds] = ['nodes', 'pods', 'changes', 'seconds'].map((name) => Number(values[name]));

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ended = [];
const scope = { after: (end) => ended.push(end) };
const print = (what, value) => process.stdout.write(`${what.padEnd(58)}${value}\n`);
const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
const ms = (list) => {
  const sorted = list.toSorted((a, b) => a - b);
  return `${at(sorted, 0.5).toFixed(1)} ms median, ${at(sorted, 0.95).toFixed(1)} ms p95, ${at(sorted, 1).toFixed(0)} ms most (${sorted.length})`;
};
const MB = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

// cpuSeconds is what a process has used, residentBytes what it has now.
const cpuSeconds = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const residentBytes = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const proportionalBytes = (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]) * 1024;

// probe runs in the page before its own scripts. It notes when the map is first painted, and how long each frame takes.
function probe() {
  const seen = { painted: 0, work: [], interval: [], long: [] };
  window.benchmark = seen;
  const fill = CanvasRenderingContext2D.prototype.fillRect;
  let boxes = 0;
  CanvasRenderingContext2D.prototype.fillRect = function (...rect) {
    boxes++;
    return fill.apply(this, rect);
  };
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => request((time) => {
    const began = performance.now();
    callback(time);
    const took = performance.now() - began;
    if (!seen.painted && boxes > 100) {
      seen.painted = performance.now();
      CanvasRenderingContext2D.prototype.fillRect = fill;
    }
    seen.work.push(took);
  });
  let last = 0;
  const tick = (time) => {
    if (last) seen.interval.push(time - last);
    last = time;
    request(tick);
  };
  request(tick);
}

// resized has exactly so many pods: copies of others beside them, or fewer.
function resized(items) {
  const is = (o) => o.kind === 'Pod' && o.spec.nodeName;
  const running = items.filter(is);
  const rest = items.filter((o) => !is(o));
  const out = running.slice(0, pods);
  for (let i = 0; out.length < pods; i++) {
    const copy = structuredClone(running[i % running.length]);
    copy.metadata.name += `-${i}`;
    copy.metadata.uid += `-${i}`;
    copy.spec.containers[0].resources.requests = { cpu: '10m', memory: '16Mi' };
    out.push(copy);
  }
  return { items: [...rest, ...out], running: out };
}

// churn replaces pods as rollouts do: half of the changes are deletions, half are new pods on other nodes.
function churn(api, running) {
  let serial = 0;
  let done = 0;
  const began = Date.now();
  const timer = setInterval(() => {
    for (const due = ((Date.now() - began) / 1000) * changes; done + 2 <= due; done += 2) {
      const i = Math.floor(Math.random() * running.length);
      const gone = running[i];
      api.remove(gone);
      const next = structuredClone(gone);
      serial++;
      next.metadata.name = `${gone.metadata.name.replace(/-r\d+$/, '')}-r${serial}`;
      next.metadata.uid = `replaced-${serial}`;
      next.metadata.creationTimestamp = new Date().toISOString().replace(/\.\d+Z/, 'Z');
      next.spec.nodeName = running[Math.floor(Math.random() * running.length)].spec.nodeName;
      running[i] = next;
      api.put(next);
    }
  }, 50);
  return () => clearInterval(timer);
}

async function summary(url) {
  return (await (await fetch(`${url}/api/v1/fleet`)).json());
}

async function until(what, check) {
  const began = Date.now();
  while (!(await check())) {
    if (Date.now() - began > 15 * 60_000) throw new Error(`${what}: not within 15 minutes`);
    await sleep(500);
  }
  return (Date.now() - began) / 1000;
}

async function run() {
  print('machine', `${cpus().length} x ${cpus()[0].model}, node ${process.version}`);
  const { items, running } = resized(JSON.parse(snapshot(nodes)).items);
  const api = new ApiServer(items);
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, kubeconfig(await api.listen()));
  scope.after(() => api.close());
  const { url, pid } = await consoleProcess(scope, [], { KUBECONFIG: file });
  const read = await until('reading the cluster', async () => (await summary(url)).nodes);
  print(`cluster read: ${nodes} nodes, ${running.length} pods`, `${read.toFixed(0)} s`);
  const planned = await until('the first plan', async () => (await summary(url)).summary.planned);
  print('first plan', `${planned.toFixed(0)} s later`);
  print('server: memory', MB(residentBytes(pid)));

  const browser = await startBrowser(scope);
  const bytes = Buffer.byteLength(JSON.stringify(await summary(url)));
  const page = await browser.page(url, { width: 1600, height: 1000, init: probe });
  await page.waitForFunction(() => window.benchmark.painted > 0);
  print('browser: first paint of the map', `${(await page.evaluate(() => window.benchmark.painted)).toFixed(0)} ms`);
  print('stream: first event', MB(bytes));

  const stop = churn(api, running);
  scope.after(stop);
  await sleep(5000);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const metrics = async () => Object.fromEntries((await cdp.send('Performance.getMetrics')).metrics.map((m) => [m.name, m.value]));
  const measure = async (what, act, duration) => {
    await page.evaluate(() => { window.benchmark.work.length = 0; window.benchmark.interval.length = 0; });
    const [before, cpu, began] = [await metrics(), cpuSeconds(pid), performance.now()];
    await act?.();
    await sleep(Math.max(0, duration * 1000 - (performance.now() - began)));
    const wall = (performance.now() - began) / 1000;
    const after = await metrics();
    const seen = await page.evaluate(() => window.benchmark);
    print(`${what}: server's share of a core`, `${((100 * (cpuSeconds(pid) - cpu)) / wall).toFixed(1)} %`);
    print(`${what}: work of a frame`, ms(seen.work));
    print(`${what}: time between frames`, ms(seen.interval));
    print(`${what}: page's main thread`, `${((100 * (after.TaskDuration - before.TaskDuration)) / wall).toFixed(0)} % busy`);
  };
  await measure(`${changes} pods/s`, null, seconds);
  const canvas = await page.locator('canvas').boundingBox();
  await measure('dragging, zoomed', async () => {
    await page.locator('canvas').focus();
    for (let i = 0; i < 4; i++) await page.keyboard.press('+');
    await page.mouse.move(canvas.x + 600, canvas.y + 400);
    await page.mouse.down();
    for (let i = 0; i < 240; i++) {
      await page.mouse.move(canvas.x + 600 + 300 * Math.sin(i / 20), canvas.y + 400 + 200 * Math.cos(i / 30));
      await sleep(10);
    }
    await page.mouse.up();
  }, 5);
  await measure('moving the pointer, all nodes', async () => {
    await page.locator('canvas').focus();
    await page.keyboard.press('0');
    for (let i = 0; i < 240; i++) {
      await page.mouse.move(canvas.x + 600 + 500 * Math.sin(i / 20), canvas.y + 400 + 300 * Math.cos(i / 30));
      await sleep(10);
    }
  }, 5);
  await cdp.send('HeapProfiler.collectGarbage');
  print('browser: JavaScript heap', MB((await metrics()).JSHeapUsedSize));
  const { processInfo } = await (await page.context().browser().newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const renderers = processInfo.filter((p) => p.type === 'renderer').map((p) => p.id);
  print('browser: memory of the page\'s process', `${MB(Math.max(...renderers.map(residentBytes)))} resident, ${MB(Math.max(...renderers.map(proportionalBytes)))} proportional`);
  print('server: memory', MB(residentBytes(pid)));
  const name = Object.values((await summary(url)).nodes)[0].name;
  for (const path of [`/nodes/${name}/explain`, `/nodes/${name}/explain`, '/nodepools/general/explain', '/pending']) {
    const began = performance.now();
    const response = await fetch(`${url}/api/v1${path}`);
    print(`server: GET ${path.replace(name, 'NAME')}`, `${(performance.now() - began).toFixed(0)} ms, ${response.status}`);
  }
}

try {
  await run();
} finally {
  for (const end of ended.reverse()) await end();
}
process.exit(0);
