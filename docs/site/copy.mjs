// Copies the pages of docs into pages: Vite resolves the packages of this directory only for files below it.
import { cpSync, readdirSync, rmSync } from 'node:fs'
import path from 'node:path'

const docs = path.resolve(import.meta.dirname, '..')
const pages = path.join(import.meta.dirname, 'pages')

rmSync(pages, { recursive: true, force: true })
for (const name of readdirSync(docs)) {
  if (name !== 'site') cpSync(path.join(docs, name), path.join(pages, name), { recursive: true })
}
