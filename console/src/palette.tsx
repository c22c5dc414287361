// Search: views, nodes by name, NodeClaim or instance type, NodePools, and pods of the pending list.

import { useEffect, useRef, useState } from 'preact/hooks';
import { current } from './live';
import { colorings } from './fleet/colors';
import { Icon } from './parts';
import { change, go, href, nodeHref } from './route';
import { stateOf } from './states';
import type { View } from './app';

interface Item { icon: string; label: string; note: string; run: () => void }

const most = 40;

function commands(views: View[], theme: () => void): Item[] {
  return [
    ...views.map((v) => ({ icon: v.name, label: `Go to ${v.label}`, note: `g ${v.key}`, run: () => go(href([v.name])) })),
    ...colorings.map((c, i) => ({
      icon: 'fleet', label: `Color nodes by ${c.label.toLowerCase()}`, note: String(i + 1), run: () => {
        if (!location.hash.startsWith('#/fleet')) go(href(['fleet'], { color: c.name }));
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
  for (const p of pools) out.unshift({ icon: 'nodepools', label: `NodePool ${p}`, note: '', run: () => go(href(['nodepools'], { pool: p })) });
  return out.slice(0, most);
}

export function Palette({ views, theme, close }: { views: View[]; theme: () => void; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const items = found(text, commands(views, theme));
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
        aria-label="Search nodes and views" placeholder="Search nodes and views" autocomplete="off" value={text}
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
      {items.length === 0 && <p class="no-match" role="status">No view, node or NodePool matches “{text}”.</p>}
    </dialog>
  );
}
