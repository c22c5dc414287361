// Copies the pages of docs, the icon and the demo, if make docs has made it, into pages: Vite resolves the packages of this directory only
// for files below it.
import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs'
import path from 'node:path'

const docs = path.resolve(import.meta.dirname, '..')
const pages = path.join(import.meta.dirname, 'pages')

rmSync(pages, { recursive: true, force: true })
for (const name of readdirSync(docs)) {
  if (name !== 'site') cpSync(path.join(docs, name), path.join(pages, name), { recursive: true })
}
cpSync(path.join(import.meta.dirname, 'favicon.svg'), path.join(pages, 'public', 'favicon.svg'))
const demo = path.join(import.meta.dirname, 'demo')
if (existsSync(demo)) cpSync(demo, path.join(pages, 'public', 'demo'), { recursive: true })
