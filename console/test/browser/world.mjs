// What browser tests drive: a lab, a console, and a browser. Each part is stopped when the tests end.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { ApiServer, kubeconfig } from '../apiserver.mjs';

export const root = fileURLToPath(new URL('../../..', import.meta.url));
const dovetail = process.env.DOVETAIL ?? join(root, 'bin/dovetail');
const lab = process.env.DOVETAIL_LAB ?? join(root, 'bin/dovetail-lab');
const axe = readFileSync(new URL('../../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// recording is one of the lab, in which consolidation removes most nodes within five minutes.
export const recording = join(root, 'internal/recorder/replay/testdata/consolidate.rec');

// patience is how long a step may take, in ms: a busy computer of two cores plans a cluster in some seconds.
const patience = 120_000;

// pictures is a directory for screenshots; none are taken without it.
const pictures = process.env.CONSOLE_PICTURES;

// directory is a temporary one. It is removed when the process exits, after the programs that write to it.
export function directory() {
  const dir = mkdtempSync(join(tmpdir(), 'dovetail-console-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

const endings = new WeakMap();

// atEnd runs something when a test has ended, the last first: a page is checked and closed before the server that it reads.
export function atEnd(t, end) {
  if (!endings.has(t)) {
    const all = [];
    endings.set(t, all);
    t.after(async () => {
      const failed = [];
      while (all.length) await Promise.resolve().then(all.pop()).catch((e) => failed.push(e));
      if (failed.length) throw failed[0];
    });
  }
  endings.get(t).push(end);
}

// program runs a program until the test ends, once its output has a text. It returns the match.
async function program(t, file, args, { until, env = {} }) {
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const stopped = new Promise((resolve) => child.once('close', resolve));
  process.on('exit', () => child.kill('SIGKILL')); // a test that is interrupted leaves nothing behind
  atEnd(t, async () => {
    child.kill('SIGINT');
    await stopped;
  });
  let output = '';
  return new Promise((resolve, reject) => {
    const read = (data) => {
      output += data;
      const match = until.exec(output);
      if (match) resolve(Object.assign(match, { pid: child.pid }));
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    void stopped.then((code) => reject(new Error(`${file} ${args.join(' ')} has exited with ${code}:\n${output}`)));
  });
}

// run runs a program to its end, and returns what it prints.
export async function run(file, args, { input = '', env = {} } = {}) {
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  child.stdin.end(input);
  const code = await new Promise((resolve) => child.once('close', resolve));
  if (code !== 0) throw new Error(`${file} ${args.join(' ')} has exited with ${code}:\n${output}`);
  return output;
}

// startLab boots a cluster with Dovetail and without pods. Its controller serves a console.
export async function startLab(t, args = []) {
  const dir = join(directory(), 'lab');
  const [, served] = await program(t, lab, ['up', '--no-workload', '--state-dir', dir, ...args], {
    until: /The console of cluster \S+: (https?:\S+)\//, env: { DOVETAIL: dovetail },
  });
  const text = await run(lab, ['env', '--state-dir', dir]);
  const env = Object.fromEntries([...text.matchAll(/export (\w+)='?([^'\n;]*)'?/g)].map((m) => [m[1], m[2]]));
  return { env, served, recording: join(dir, 'lab', 'logs', 'decisions.rec'), kubectl: (args, input) => run(lab, ['kubectl', ...args], { env, input }) };
}

// served is a console over an API server in memory, which a test changes before and meanwhile.
export async function served(t, items, before = () => {}, args = []) {
  const api = new ApiServer(items);
  before(api);
  const url = await api.listen();
  atEnd(t, () => api.close());
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, kubeconfig(url));
  return { api, port: Number(new URL(url).port), url: await startConsole(t, ['--prices', 'catalog', '--kubeconfig', file, ...args]) };
}

// consoleProcess runs the console and returns its address and process ID; startConsole the address.
export async function consoleProcess(t, args, env = {}) {
  const match = await program(t, dovetail, ['console', '--port', '0', ...args], { until: /(http:\/\/127\.0\.0\.1:\d+)\//, env });
  return { url: match[1], pid: match.pid };
}

export const startConsole = async (t, args, env) => (await consoleProcess(t, args, env)).url;

// detour is a kubeconfig whose cluster is behind a proxy that can be closed and opened: an API server that goes away.
export async function detour(t, kubeconfig) {
  const text = readFileSync(kubeconfig, 'utf8');
  const server = /server: https:\/\/([^:\s]+):(\d+)/.exec(text);
  const sockets = new Set();
  const proxy = net.createServer((from) => {
    const to = net.connect(Number(server[2]), server[1]);
    for (const s of [from, to]) {
      sockets.add(s);
      s.on('error', () => {});
      s.on('close', () => {
        from.destroy();
        to.destroy();
        sockets.delete(s);
      });
    }
    from.pipe(to).pipe(from);
  });
  const listen = (port) => new Promise((resolve) => proxy.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const { port } = proxy.address();
  const close = () => new Promise((resolve) => {
    proxy.close(resolve);
    for (const s of sockets) s.destroy();
  });
  atEnd(t, () => proxy.listening && close());
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, text.replace(server[0], `server: https://127.0.0.1:${port}`));
  return { kubeconfig: file, close, open: () => listen(port) };
}

// refused are complaints of the browser itself about requests that a test makes fail.
export const refused = (text) => /Failed to load resource|ERR_/.test(text);

// startBrowser is a browser whose pages fail their test for anything in the error console that is not allowed, and for requests that
// leave their origin. A page is checked and closed when the test within which it is opened has ended.
export async function startBrowser(t) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  atEnd(t, () => browser.close());
  return {
    async page(url, { within = t, hash = '', width = 1280, height = 800, theme = 'light', allow = () => false, init, before, options } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, ignoreHTTPSErrors: true, ...options });
      await context.addInitScript(countWork);
      if (init) await context.addInitScript(init);
      const page = await context.newPage();
      page.setDefaultTimeout(patience);
      page.wrong = [];
      page.busy = new Set();
      const origin = (u) => new URL(u).origin;
      page.on('console', (m) => ['error', 'warning'].includes(m.type()) && !allow(m.text()) && page.wrong.push(`${m.type()}: ${m.text()}`));
      page.on('pageerror', (e) => page.wrong.push(`exception: ${e.message}`));
      page.on('websocket', (s) => page.wrong.push(`web socket to ${s.url()}`));
      page.on('request', (r) => {
        if (origin(r.url()) !== origin(url)) page.wrong.push(`request to ${r.url()}`);
        if (!r.url().endsWith('/events')) page.busy.add(r);
      });
      for (const end of ['requestfinished', 'requestfailed']) page.on(end, (r) => page.busy.delete(r));
      atEnd(within, async () => {
        const wrong = [...page.wrong];
        await context.close();
        assert.deepEqual(wrong, [], 'the browser complained');
      });
      await before?.(page);
      await page.goto(`${url}/${hash}`);
      return page;
    },
  };
}

// tabTo presses Tab until the focus is at an element.
export async function tabTo(page, is, key = 'Tab') {
  for (let i = 0; i < 80; i++) {
    if (await page.evaluate(`(${is})(document.activeElement)`)) return;
    await page.keyboard.press(key);
  }
  assert.fail(`no Tab leads to ${is}`);
}

// countWork runs in the page before its own scripts. It counts what the page has under way: requests, but for the stream, and their bodies;
// frames that it has asked for; and timers that end soon, such as those that wait for the next key. Others, such as the next refresh, are
// not what a person waits for.
function countWork() {
  const soon = 500;
  const frames = new Set();
  const timers = new Set();
  let answers = 0;
  const { fetch, setTimeout, clearTimeout, requestAnimationFrame, cancelAnimationFrame } = window;
  const { json, text } = Response.prototype;
  const counted = async (promise) => {
    answers++;
    try {
      return await promise;
    } finally {
      answers--;
    }
  };
  window.fetch = (resource, options) => {
    const promise = fetch(resource, options);
    return String(resource.url ?? resource).endsWith('/events') ? promise : counted(promise);
  };
  Response.prototype.json = function () { return counted(json.call(this)); };
  Response.prototype.text = function () { return counted(text.call(this)); };
  window.setTimeout = (callback, delay = 0, ...rest) => {
    const id = setTimeout((...all) => {
      timers.delete(id);
      callback(...all);
    }, delay, ...rest);
    if (delay <= soon) timers.add(id);
    return id;
  };
  window.clearTimeout = (id) => {
    timers.delete(id);
    clearTimeout(id);
  };
  window.requestAnimationFrame = (callback) => {
    const id = requestAnimationFrame((time) => {
      frames.delete(id);
      callback(time);
    });
    frames.add(id);
    return id;
  };
  window.cancelAnimationFrame = (id) => {
    frames.delete(id);
    cancelAnimationFrame(id);
  };
  // calm resolves once nothing is under way in some frames in a row: what has ended in one begins the next thing in the one after.
  window.calm = () => new Promise((resolve) => {
    let quiet = 0;
    const look = () => {
      quiet = answers + frames.size + timers.size === 0 ? quiet + 1 : 0;
      if (quiet < 3) requestAnimationFrame(look);
      else resolve();
    };
    look();
  });
}

// settled waits until the page has drawn what it asked for: it has nothing under way, and neither has the network.
export async function settled(page) {
  do await page.evaluate(() => window.calm());
  while (page.busy.size > 0);
}

// fits fails the test for a view that scrolls sideways.
export async function fits(page, what) {
  const wide = await page.evaluate(() => {
    const main = document.querySelector('main');
    return document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth;
  });
  assert.ok(!wide, `${what} scrolls sideways`);
}

// accessible checks the page by axe-core in both themes. With forced colors, contrast is that of the system.
export async function accessible(page, what, { forced = false } = {}) {
  await page.evaluate(axe);
  const found = await page.evaluate(async (forced) => {
    const root = document.documentElement;
    const before = root.dataset.theme;
    const out = [];
    for (const theme of ['light', 'dark']) {
      root.dataset.theme = theme;
      const { violations } = await window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
        rules: { 'color-contrast': { enabled: !forced } },
      });
      for (const v of violations) {
        out.push(`${theme}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`).join(' | ')}`);
      }
    }
    root.dataset.theme = before;
    return out;
  }, forced);
  assert.deepEqual(found, [], what);
}

export async function picture(page, name) {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) });
}

// visit goes to a view of the page, and waits for a text in it.
export async function visit(page, hash, text) {
  await page.evaluate((h) => { location.hash = h; }, hash);
  await page.locator('main').getByText(text).first().waitFor();
}
