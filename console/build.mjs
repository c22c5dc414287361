// Bundles the page into internal/console/assets, from where it is embedded, or into the directory that is given. Equal sources give
// equal bytes.
import { copyFileSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = fileURLToPath(new URL('.', import.meta.url));
const out = process.argv[2] ?? `${here}../internal/console/assets`;

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: [{ in: 'src/main.tsx', out: 'console' }, { in: 'src/style.css', out: 'console' }],
  outdir: out,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome109', 'firefox115', 'safari16'],
  legalComments: 'none',
  charset: 'utf8',
});
for (const file of ['index.html', 'icon.svg']) copyFileSync(`${here}src/${file}`, `${out}/${file}`);
