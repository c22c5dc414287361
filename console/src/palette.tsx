// Search: views, NodePools, zones and instance families, nodes by name, NodeClaim or instance type, pods by name, decisions and checks.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Decisions, Found } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { clusterNow, current } from './live';
import { colorings } from './fleet/colors';
import { clock, count, list, plural, sentence, shortName, shortNames } from './format';
import { Icon, useSettled } from './parts';
import { change, claimHref, go, href, nodeHref, parse, podHref, poolHref } from './route';
import { stateOf } from './states';
import type { View } from './app';

interface Item { icon: string; label: string; note: string; run: () => void }

const most = 40;
// settle is how long the text rests before pods are searched, in ms; least how many characters it has at least.
const settle = 150;
const least = 1;
// again is how often pods are searched again, in ms: one that has just been created appears without another key.
const again = 2_000;

function commands(views: View[], theme: () => void, keys: () => void): Item[] {
  return [
    ...views.map((v) => ({ icon: v.name, label: `Go to ${v.label}`, note: `g ${v.key}`, run: () => go(href([v.name])) })),
    ...colorings.map((c, i) => ({
      icon: 'fleet', label: `Color nodes by ${c.label.toLowerCase()}`, note: String(i + 1), run: () => {
        if (parse(location.hash).path[0] !== 'fleet') go(href(['fleet'], { color: c.name }));
        else change({ color: c.name, only: null });
      },
    })),
    { icon: 'theme', label: 'Switch between dark and light', note: '', run: theme },
    { icon: 'keys', label: 'List the keys', note: '?', run: keys },
  ];
}

// some is how many entries of a kind there are at most: more are in the view that the entry leads to.
const some = 5;

// found are views and commands, then NodePools, zones and families, then NodeClaims and nodes, with a text.
function found(words: string, all: Item[]): Item[] {
  const out = all.filter((i) => i.label.toLowerCase().includes(words));
  if (words.length < 2) return out;
  const groups = { pool: new Map<string, number>(), zone: new Map<string, number>(), family: new Map<string, number>() };
  const nodes: Item[] = [];
  const claims: Item[] = [];
  for (const n of current().nodes?.values() ?? []) {
    const family = n.instanceType.split('.')[0]!;
    for (const [kind, name] of [['pool', n.nodePool], ['zone', n.zone], ['family', family]] as const) {
      if (name.toLowerCase().includes(words)) groups[kind].set(name, (groups[kind].get(name) ?? 0) + 1);
    }
    if (n.nodeClaim && claims.length < some && n.nodeClaim.toLowerCase().includes(words)) {
      claims.push({ icon: 'fleet', label: `NodeClaim ${n.nodeClaim}`, note: n.instanceType || 'not launched', run: () => go(claimHref(n.nodeClaim)) });
    }
    if (nodes.length >= most || ![n.name, n.nodeClaim, n.instanceType].some((t) => t.toLowerCase().includes(words))) continue;
    nodes.push({ icon: 'fleet', label: n.name, note: `${n.instanceType} · ${stateOf(n.state).label}`, run: () => go(nodeHref(n.name)) });
  }
  const entries = (of: Map<string, number>, icon: string, kind: string, to: (name: string) => string) => [...of].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, some)
    .map(([name, n]): Item => ({ icon, label: `${kind} ${name}`, note: plural(n, 'node'), run: () => go(to(name)) }));
  const table = (find: string) => href(['fleet'], { view: 'table', find });
  out.push(...entries(groups.pool, 'nodepools', 'NodePool', poolHref), ...entries(groups.zone, 'fleet', 'Zone', table), ...entries(groups.family, 'fleet', 'Instance family', (f) => table(`${f}.`)));
  return [...out, ...claims, ...nodes].slice(0, most);
}

const pods = (answer: Found | null): Item[] => list(answer?.pods).map((p) => ({
  icon: 'pod', label: `${p.namespace}/${p.name}`, note: p.node ? `on ${shortName(p.node)}` : 'pending', run: () => go(podHref(`${p.namespace}/${p.name}`, null)),
}));

const checks = (answer: Found | null): Item[] => list(answer?.checks).map((c) => ({
  icon: 'doctor', label: c.id, note: c.findings === null ? c.title : plural(c.findings, 'finding'), run: () => go(href(['doctor'], { find: c.id })),
}));

// decided are the latest decisions with a text in their ID or in what they did.
function decided(answer: Decisions | null, words: string): Item[] {
  const out: Item[] = [];
  for (const d of list(answer?.decisions)) {
    if (out.length >= some) break;
    if (![d.id, d.what, ...list(d.removes).map((n) => n.name)].some((t) => t.toLowerCase().includes(words))) continue;
    out.push({ icon: 'decisions', label: shortNames(sentence(d.what)), note: `${d.id.slice(0, 8)} · ${clock(d.at, clusterNow())}`, run: () => go(href(['decisions', d.id])) });
  }
  return out;
}

export function Palette({ views, theme, keys, close }: { views: View[]; theme: () => void; keys: () => void; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const settled = useSettled(text.trim(), settle);
  const answer = useAnswer<Found>(settled.length >= least ? `/search?text=${encodeURIComponent(settled)}` : null, { every: again });
  // A list of decisions can be long: it is read once for as long as the search is open.
  const recorded = useAnswer<Decisions>(useAbout()?.decisions && settled.length >= 2 ? '/decisions' : null);
  const words = text.toLowerCase().trim();
  const asked = words.length >= least ? answer.data : null;
  const items = [
    ...found(words, commands(views, theme, keys)), ...checks(asked), ...pods(asked), ...(words.length >= 2 ? decided(recorded.data, words) : []),
  ];
  const run = (i: Item | undefined) => {
    if (!i) return;
    close();
    i.run();
  };
  const key = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') setAt(Math.min(items.length - 1, at + 1));
    else if (e.key === 'ArrowUp') setAt(Math.max(0, at - 1));
    else if (e.key === 'Enter') run(items[at]);
    else return;
    e.preventDefault();
  };
  useEffect(() => document.getElementById(`option-${at}`)?.scrollIntoView({ block: 'nearest' }), [at]);
  return (
    <dialog ref={dialog} class="palette" aria-label="Search" onClose={close} onClick={(e) => e.target === dialog.current && close()}>
      <input
        role="combobox" aria-expanded="true" aria-controls="options" aria-activedescendant={items.length ? `option-${at}` : undefined}
        aria-label="Search nodes, pods, zones, decisions and views" placeholder="Search nodes, pods, zones, decisions, views" autocomplete="off" value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={key}
      />
      <ul id="options" role="listbox" aria-label="Results">
        {items.map((i, n) => (
          <li id={`option-${n}`} role="option" aria-selected={n === at} onClick={() => run(i)}>
            <Icon name={i.icon} /><span class="cut">{i.label}</span><span class="faint">{i.note}</span>
          </li>
        ))}
      </ul>
      {!!answer.data?.more && <p class="no-match small" role="status">{count(answer.data.more)} more pods: type on.</p>}
      {items.length === 0 && (
        <p class="no-match" role="status">{text.trim() !== settled || (settled.length >= least && answer.busy) ? 'Searching pods' : `Nothing matches “${text}”: no view, NodePool, zone, instance family, node, pod, decision or check.`}</p>
      )}
    </dialog>
  );
}
