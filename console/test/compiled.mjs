// Imports a module of the page into a test.
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

export async function compiled(path) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`../src/${path}`, import.meta.url))], bundle: true, write: false, format: 'esm', platform: 'node',
    logLevel: 'error',
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString('base64')}`);
}
