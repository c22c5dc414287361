import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const committed = fileURLToPath(new URL('../../../internal/console/assets', import.meta.url));
const build = fileURLToPath(new URL('../../build.mjs', import.meta.url));

test('the bundle that is embedded is that of the sources', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'dovetail-bundle-'));
  t.after(() => rmSync(dir, { recursive: true }));
  execFileSync(process.execPath, [build, dir]);
  assert.deepEqual(readdirSync(dir).sort(), readdirSync(committed).sort());
  for (const file of readdirSync(dir)) {
    assert.ok(readFileSync(join(dir, file)).equals(readFileSync(join(committed, file))), `${file} differs: run make console`);
  }
});
