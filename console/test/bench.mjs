// Measures the console over a generated cluster whose pods change all the time: `make console-bench`, or
// node test/bench.mjs --nodes 5000 --pods 100000 --changes 100 --seconds 60. It prints figures and asserts nothing: they depend on the machine.
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ApiServer, kubeconfig } from './apiserver.mjs';
import { consoleProcess, directory, startBrowser } from './browser/world.mjs';
import { snapshot } from './fleet.mjs';
import { acts, ms, probe } from './frames.mjs';

const { values } = parseArgs({ options: {
  nodes: { type: 'string', default: '5000' }, pods: { type: 'string', default: '100000' }, changes: { type: 'string', default: '100' },
  seconds: { type: 'string', default: '60' }, profile: { type: 'string' },
} });
const [nodes, pods, changes, seconds] = ['nodes', 'pods', 'changes', 'seconds'].map((name) => Number(values[name]));

const ended = [];
const scope = { after: (end) => ended.push(end) };
const print = (what, value) => process.stdout.write(`${what.padEnd(58)}${value}\n`);
const MB = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

// cpuSeconds is what a process has used, residentBytes what it has now.
const cpuSeconds = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const residentBytes = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const proportionalBytes = (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]) * 1024;

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
    await act(duration);
    const wall = (performance.now() - began) / 1000;
    const after = await metrics();
    const seen = await page.evaluate(() => window.benchmark);
    print(`${what}: server's share of a core`, `${((100 * (cpuSeconds(pid) - cpu)) / wall).toFixed(1)} %`);
    print(`${what}: work of a frame`, ms(seen.work));
    print(`${what}: time between frames`, ms(seen.interval));
    print(`${what}: page's main thread`, `${((100 * (after.TaskDuration - before.TaskDuration)) / wall).toFixed(0)} % busy`);
  };
  await measure(`${changes} pods/s`, (duration) => sleep(duration * 1000), seconds);
  for (const [what, act] of Object.entries(await acts(page))) await measure(what, act, 5);
  await cdp.send('HeapProfiler.collectGarbage');
  print('browser: JavaScript heap', MB((await metrics()).JSHeapUsedSize));
  const { processInfo } = await (await page.context().browser().newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const renderers = processInfo.filter((p) => p.type === 'renderer').map((p) => p.id);
  print('browser: memory of the page\'s process', `${MB(Math.max(...renderers.map(residentBytes)))} resident, ${MB(Math.max(...renderers.map(proportionalBytes)))} proportional`);
  print('server: memory', MB(residentBytes(pid)));
  // A node that stays or goes takes a plan, one that is on its way takes none.
  const { name } = Object.values((await summary(url)).nodes).find((n) => n.state === 'steady');
  for (const path of [`/nodes/${name}`, `/nodes/${name}/explain`, `/nodes/${name}/explain`, '/nodepools/general/explain', '/pending']) {
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
