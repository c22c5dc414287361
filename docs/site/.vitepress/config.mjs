// The site of the documentation. Its pages are those of docs, which copy.mjs has copied to pages.
import { defineConfig } from 'vitepress'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const docs = fileURLToPath(new URL('../..', import.meta.url))
const pages = fileURLToPath(new URL('../pages', import.meta.url))
const repository = 'https://github.com/dovetail-k8s/dovetail'

// outside leads links to files beside the pages, such as examples, to the repository.
function outside(md) {
  md.core.ruler.push('links-outside', (state) => {
    const page = path.join(docs, path.relative(pages, state.env.path))
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        const href = token.type === 'link_open' ? token.attrGet('href') : null
        if (!href || /^([a-z]+:|#)/.test(href)) continue
        const target = path.resolve(path.dirname(page), decodeURI(href.split('#')[0]))
        const inside = path.relative(docs, target)
        if (!inside.startsWith('..') && inside.endsWith('.md')) continue
        if (!existsSync(target)) throw new Error(`${page}: ${href} does not exist`)
        token.attrSet('href', `${repository}/tree/main/${path.relative(path.dirname(docs), target)}`)
      }
    }
  })
}

// title is the first heading of a page.
const title = (file) => readFileSync(file, 'utf8').match(/^# (.*)$/m)[1]

// titled makes the text of a link to a page its title where it is the page's file name.
function titled(md) {
  md.core.ruler.push('links-titled', (state) => {
    for (const block of state.tokens) {
      for (const [i, token] of (block.children ?? []).entries()) {
        const text = block.children[i + 1]
        if (token.type !== 'link_open' || !/^[\w/-]+\.md$/.test(text.content)) continue
        const target = path.resolve(path.dirname(state.env.path), decodeURI(token.attrGet('href').split('#')[0]))
        if (existsSync(target)) text.content = title(target)
      }
    }
  })
}

const page = (text, link) => ({ text, link })

// more is a group for the pages that no other group lists.
function more(groups) {
  const listed = new Set(groups.flatMap((group) => group.items.map((item) => item.link)))
  const items = []
  for (const name of readdirSync(pages).sort()) {
    const link = '/' + name.replace(/\.md$/, '')
    if (!name.endsWith('.md') || name === 'index.md' || listed.has(link)) continue
    items.push(page(title(path.join(pages, name)), link))
  }
  return items.length ? [...groups, { text: 'More', items }] : groups
}

export default defineConfig({
  title: 'Dovetail',
  description: 'Node autoscaler for Amazon EKS',
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: '/favicon.svg' }]],
  srcDir: 'pages',
  outDir: 'dist',
  rewrites: { 'reference/README.md': 'reference/index.md' },
  cleanUrls: false,
  markdown: { config: (md) => md.use(titled).use(outside) },
  themeConfig: {
    logo: '/favicon.svg',
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
    sidebar: more([
      {
        text: 'Start',
        items: [
          page('Getting started on EKS', '/getting-started-eks'),
          page('A recorded day', '/recorded-day'),
          page('Concepts', '/concepts'),
          page('What it saves', '/savings'),
          page('FAQ', '/faq'),
          page('Comparison', '/comparison'),
        ],
      },
      {
        text: 'Operate',
        items: [
          page('Production checklist', '/production'),
          page('Runbook', '/runbook'),
          page('Install', '/install'),
          page('GitOps', '/gitops'),
          page('Image', '/image'),
          page('Settings', '/settings'),
          page('Scheduling', '/scheduling'),
          page('Disruption', '/disruption'),
          page('Troubleshooting', '/troubleshooting'),
          page('Check a cluster', '/doctor'),
          page('Dashboards and alerts', '/dashboards'),
          page('Metrics', '/metrics'),
          page('AWS', '/aws'),
          page('Ownership', '/ownership'),
          page('Compatibility', '/compatibility'),
          page('Versions and upgrades', '/versioning'),
        ],
      },
      {
        text: 'Plan',
        items: [
          page('Plan', '/plan'),
          page('Instance types', '/instance-types'),
          page('The lower bound', '/lower-bound'),
          page('Performance', '/performance'),
          page('Commands', '/cli'),
        ],
      },
      {
        text: 'API reference',
        items: [
          page('NodePool', '/reference/nodepool'),
          page('EC2NodeClass', '/reference/ec2nodeclass'),
          page('NodeClaim', '/reference/nodeclaim'),
          page('NodeOverlay', '/reference/nodeoverlay'),
          page('CapacityBuffer', '/reference/capacitybuffer'),
        ],
      },
      {
        text: 'Contribute',
        items: [
          page('Architecture', '/architecture'),
          page('Lab', '/lab'),
          page('Glossary', '/glossary'),
          page('Dependencies', '/dependencies'),
          page('Performance notebook', '/performance-notebook'),
        ],
      },
    ]),
  },
})
