// Search: views, nodes by name, NodeClaim or instance type, NodePools, and pods by name.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Found } from './api.gen';
import { useAnswer } from './answer';
import { current } from './live';
import { colorings } from './fleet/colors';
import { count, list, shortName } from './format';
import { Icon, useSettled } from './parts';
import { change, go, href, nodeHref, parse, podHref, poolHref } from './route';
import { stateOf } from './states';
import type { View } from './app';

interface Item { icon: string; label: string; note: string; run: () => void }

const most = 40;
// settle is how long the text rests before pods are searched, in ms; least how many characters it has at least.
const settle = 150;
const least = 1;
// again is how often pods are searched again, in ms: one that has just been created appears without another key.
const again = 2_000;

function commands(views: View[], theme: () => void): Item[] {
  return [
    ...views.map((v) => ({ icon: v.name, label: `Go to ${v.label}`, note: `g ${v.key}`, run: () => go(href([v.name])) })),
    ...colorings.map((c, i) => ({
      icon: 'fleet', label: `Color nodes by ${c.label.toLowerCase()}`, note: String(i + 1), run: () => {
        if (parse(location.hash).path[0] !== 'fleet') go(href(['fleet'], { color: c.name }));
        else change({ color: c.name, only: null });
      },
    })),
    { icon: 'theme', label: 'Switch between dark and light', note: '', run: theme },
  ];
}

function found(text: string, all: Item[]): Item[] {
  const words = text.toLowerCase().trim();
  const out = all.filter((i) => i.label.toLowerCase().includes(words));
  if (words.length < 2) return out;
  const pools = new Set<string>();
  for (const n of current().nodes?.values() ?? []) {
    if (n.nodePool.includes(words)) pools.add(n.nodePool);
    if (out.length >= most || ![n.name, n.nodeClaim, n.instanceType].some((t) => t.toLowerCase().includes(words))) continue;
    out.push({ icon: 'fleet', label: n.name, note: `${n.instanceType} · ${stateOf(n.state).label}`, run: () => go(nodeHref(n.name)) });
  }
  for (const p of pools) out.unshift({ icon: 'nodepools', label: `NodePool ${p}`, note: '', run: () => go(poolHref(p)) });
  return out.slice(0, most);
}

const pods = (answer: Found | null): Item[] => list(answer?.pods).map((p) => ({
  icon: 'pod', label: `${p.namespace}/${p.name}`, note: p.node ? `on ${shortName(p.node)}` : 'pending', run: () => go(podHref(`${p.namespace}/${p.name}`, null)),
}));

export function Palette({ views, theme, close }: { views: View[]; theme: () => void; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const settled = useSettled(text.trim(), settle);
  const answer = useAnswer<Found>(settled.length >= least ? `/search?text=${encodeURIComponent(settled)}` : null, { every: again });
  const items = [...found(text, commands(views, theme)), ...pods(text.trim().length >= least ? answer.data : null)];
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
        aria-label="Search nodes, pods and views" placeholder="Search nodes, pods and views" autocomplete="off" value={text}
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
        <p class="no-match" role="status">{text.trim() !== settled || (settled.length >= least && answer.busy) ? 'Searching pods' : `No view, node, pod or NodePool matches “${text}”.`}</p>
      )}
    </dialog>
  );
}
