// The live state of the fleet, from the server's event stream.

import { useEffect, useState } from 'preact/hooks';
import type { Change, Fleet, Link, Node, Problem, Summary } from './api.gen';
import { list } from './format';
import { apiPath } from './route';
import { refused, request } from './session';

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
  // changed are the IDs of the nodes that the last event has changed; null if it may be any.
  changed: string[] | null;
}

const nothing: Live = {
  connection: 'connecting', lostAt: 0, sequence: 0, at: '', link: null, summary: null, nodes: null, members: 0, changed: null,
};
let live = nothing;
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
  set({ connection: 'open', sequence: f.sequence, at: f.at, link: f.link, summary: f.summary, nodes, members: live.members + 1, changed: null });
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
  set({
    connection: 'open', sequence: c.sequence, at: c.at, link: c.link, summary: { ...c.summary, changes, notes }, members,
    changed: list(c.changed).map((n) => n.id),
  });
}

// silence is how long the server may send nothing, in ms: three of its beats.
const silence = 32_000;
const retry = 2_000;

// connect listens until the function that it returns is called. It reads the stream by fetch: an EventSource sends no token.
export function connect(): () => void {
  const abort = new AbortController();
  set(nothing); // of another cluster
  void listen(abort.signal);
  return () => abort.abort();
}

async function listen(stopped: AbortSignal) {
  while (!stopped.aborted) {
    const problem = await stream(stopped).catch(() => null);
    if (stopped.aborted || (problem && refused(problem))) return;
    if (live.connection !== 'lost') set({ connection: 'lost', lostAt: Date.now(), changed: [] });
    await new Promise((resolve) => setTimeout(resolve, retry));
  }
}

// stream reads events until the server ends them or is silent. It returns the problem if the server has one.
async function stream(stopped: AbortSignal): Promise<Problem | null> {
  const ended = new AbortController();
  const end = () => ended.abort();
  stopped.addEventListener('abort', end);
  let watchdog = setTimeout(end, silence);
  try {
    const response = await request(apiPath('/events'), { signal: ended.signal });
    if (!response.ok || !response.body) return await response.json() as Problem;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { done, value } = await reader.read();
      if (done) return null;
      clearTimeout(watchdog);
      watchdog = setTimeout(end, silence);
      const events = (rest + value).split('\n\n');
      rest = events.pop()!;
      for (const event of events) receive(event);
    }
  } finally {
    clearTimeout(watchdog);
    stopped.removeEventListener('abort', end);
  }
}

// receive takes one event: its name is on the first line, its data on the second.
function receive(event: string) {
  const [name, data] = event.split('\n').map((line) => line.slice(line.indexOf(': ') + 2));
  if (name === 'fleet') receiveFleet(JSON.parse(data!));
  else if (name === 'change') receiveChange(JSON.parse(data!));
  else if (live.connection !== 'open') set({ connection: 'open', changed: [] });
}
