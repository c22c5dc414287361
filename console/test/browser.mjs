// Runs the browser tests three files at a time: they mostly wait. The longest files come first, so that none of them runs alone at the end;
// node --test would take them by name.
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { run } from 'node:test';
import { tap } from 'node:test/reporters';

const longest = ['lab', 'views', 'attacks', 'states'].map((name) => `${name}.test.mjs`);
const dir = fileURLToPath(new URL('browser/', import.meta.url));
const all = readdirSync(dir).filter((name) => name.endsWith('.test.mjs')).sort();
const files = [...longest.filter((name) => all.includes(name)), ...all.filter((name) => !longest.includes(name))].map((name) => dir + name);

run({ files, concurrency: 3 })
  .on('test:fail', () => {
    process.exitCode = 1;
  })
  .compose(tap)
  .pipe(process.stdout);
