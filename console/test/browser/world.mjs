// What browser tests drive: a lab, a console, and a browser. Each part is stopped when the tests end.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const dovetail = process.env.DOVETAIL ?? join(root, 'bin/dovetail');
const lab = process.env.DOVETAIL_LAB ?? join(root, 'bin/dovetail-lab');
const axe = readFileSync(new URL('../../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

// pictures is a directory for screenshots; none are taken without it.
const pictures = process.env.CONSOLE_PICTURES;

// directory is a temporary one. It is removed when the process exits, after the programs that write to it.
export function directory() {
  const dir = mkdtempSync(join(tmpdir(), 'dovetail-console-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

// program runs a program until the test ends, once its output has a text. It returns the match.
async function program(t, file, args, { until, env = {} }) {
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const stopped = new Promise((resolve) => child.once('close', resolve));
  process.on('exit', () => child.kill('SIGKILL')); // a test that is interrupted leaves nothing behind
  t.after(async () => {
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
async function run(file, args, { input = '', env = {} } = {}) {
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
  t.after(() => proxy.listening && close());
  const file = join(directory(), 'kubeconfig');
  writeFileSync(file, text.replace(server[0], `server: https://127.0.0.1:${port}`));
  return { kubeconfig: file, close, open: () => listen(port) };
}

// startBrowser is a browser whose pages fail the test for anything in the error console, and for requests that leave their origin.
export async function startBrowser(t) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  t.after(() => browser.close());
  return {
    async page(url, { width = 1280, height = 800, theme = 'light', allow = () => false, init } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, ignoreHTTPSErrors: true });
      t.after(() => context.close());
      if (init) await context.addInitScript(init);
      const page = await context.newPage();
      page.setDefaultTimeout(60_000);
      const wrong = [];
      page.on('console', (m) => ['error', 'warning'].includes(m.type()) && !allow(m.text()) && wrong.push(`${m.type()}: ${m.text()}`));
      page.on('pageerror', (e) => wrong.push(`exception: ${e.message}`));
      page.on('request', (r) => new URL(r.url()).origin !== new URL(url).origin && wrong.push(`request to ${r.url()}`));
      await page.goto(`${url}/`);
      page.wrong = wrong;
      return page;
    },
  };
}

// clean fails the test for what the browser complained about.
export const clean = (page) => assert.deepEqual(page.wrong, []);

// accessible checks the page by axe-core in both themes.
export async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const root = document.documentElement;
    const before = root.dataset.theme;
    const out = [];
    for (const theme of ['light', 'dark']) {
      root.dataset.theme = theme;
      const { violations } = await window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      });
      for (const v of violations) {
        out.push(`${theme}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`).join(' | ')}`);
      }
    }
    root.dataset.theme = before;
    return out;
  });
  assert.deepEqual(found, [], what);
}

export async function picture(page, name) {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`) });
}

// visit goes to a view of the page.
export async function visit(page, hash, text) {
  await page.evaluate((h) => { location.hash = h; }, hash);
  await page.getByText(text).first().waitFor();
}
