// The live state of the fleet, from the server's event stream.

import { useEffect, useState } from 'preact/hooks';
import type { Change, Fleet, Link, Node, Summary } from './api.gen';
import { list } from './format';

export interface Live {
  // connection is lost while the console's own server does not answer; lostAt is since when, in ms.
  connection: 'connecting' | 'open' | 'lost';
  lostAt: number;
  sequence: number;
  at: string;
  link: Link | null;
  summary: Summary | null;
  // nodes are by ID; null before the first are read.
  nodes: Map<string, Node> | null;
  // members changes whenever a node comes or goes.
  members: number;
}

let live: Live = { connection: 'connecting', lostAt: 0, sequence: 0, at: '', link: null, summary: null, nodes: null, members: 0 };
const listeners = new Set<() => void>();

function set(next: Partial<Live>) {
  live = { ...live, ...next };
  for (const listener of listeners) listener();
}

export const current = () => live;

// clusterNow is the time in ms by which ages are counted: that of a snapshot for a cluster from files.
export const clusterNow = () => (live.link?.file && live.at ? Date.parse(live.at) : Date.now());

export function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

// useLive re-renders when what select returns is another value.
export function useLive<T>(select: (l: Live) => T): T {
  const [value, setValue] = useState(() => select(live));
  useEffect(() => {
    const update = () => setValue(() => select(live));
    update();
    return subscribe(update);
  }, []);
  return value;
}

function receiveFleet(f: Fleet) {
  const nodes = f.nodes && new Map(f.nodes.map((n) => [n.id, n]));
  set({ connection: 'open', sequence: f.sequence, at: f.at, link: f.link, summary: f.summary, nodes, members: live.members + 1 });
}

function receiveChange(c: Change) {
  const nodes = live.nodes;
  let members = live.members;
  if (nodes) {
    for (const id of list(c.removed)) if (nodes.delete(id)) members++;
    for (const n of list(c.changed)) {
      if (!nodes.has(n.id)) members++;
      nodes.set(n.id, n);
    }
  }
  // A change without a new plan leaves out the planned changes.
  const { changes, notes } = c.summary.changes ? c.summary : live.summary ?? c.summary;
  set({ connection: 'open', sequence: c.sequence, at: c.at, link: c.link, summary: { ...c.summary, changes, notes }, members });
}

// silence is how long the server may send nothing, in ms: three of its beats.
const silence = 32_000;
const retry = 2_000;

// connect listens until the page is closed.
export function connect() {
  const source = new EventSource('/api/v1/events');
  let watchdog = 0;
  const again = () => {
    clearTimeout(watchdog);
    source.close();
    if (live.connection !== 'lost') set({ connection: 'lost', lostAt: Date.now() });
    setTimeout(connect, retry);
  };
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(again, silence);
  };
  source.addEventListener('fleet', (e) => {
    alive();
    receiveFleet(JSON.parse(e.data));
  });
  source.addEventListener('change', (e) => {
    alive();
    receiveChange(JSON.parse(e.data));
  });
  source.addEventListener('beat', () => {
    alive();
    if (live.connection !== 'open') set({ connection: 'open' });
  });
  source.onerror = again;
}
