// The live state of the fleet, from the server's event stream.

import type { Change, Fleet, Link, Node, Problem, Recorded, Summary } from './api.gen';
import { list } from './format';
import { apiPath } from './route';
import { refused, request } from './session';
import { useValue } from './value';

export interface Live {
  // connection is lost while the console's own server does not answer; lostAt is since when, in ms.
  connection: 'connecting' | 'open' | 'lost';
  lostAt: number;
  // lostWhy is what the server answers in place of the stream; empty if it does not answer.
  lostWhy: string;
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
  // recorded changes when the recording has other decisions, or something has become of one; 0 before that is known.
  recorded: number;
}

const nothing: Live = {
  connection: 'connecting', lostAt: 0, lostWhy: '', sequence: 0, at: '', link: null, summary: null, nodes: null, members: 0, changed: null,
  recorded: 0,
};
let live = nothing;
const listeners = new Set<() => void>();

function set(next: Partial<Live>) {
  live = { ...live, ...next };
  for (const listener of listeners) listener();
}

export const current = () => live;

// skew is how far the server's clock is ahead of this computer's, in ms. Ages count from times of the cluster.
let skew = 0;

// tolerated is the largest difference of clocks that is not corrected, in ms: the header has whole seconds, and the answer takes time.
const tolerated = 3_000;

function noteClock(date: string | null) {
  const ahead = Date.parse(date ?? '') - Date.now();
  if (!Number.isNaN(ahead)) skew = Math.abs(ahead) > tolerated ? ahead : 0;
}

// clusterNow is the time in ms by which ages are counted: that of a snapshot for a cluster from files, else that of the server's clock.
export const clusterNow = () => (live.link?.file && live.at ? Date.parse(live.at) : Date.now() + skew);

export function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

// useLive re-renders when what select returns is another value.
export function useLive<T>(select: (l: Live) => T): T {
  return useValue(subscribe, () => select(live));
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
  const { changes, notes, kept } = c.summary.changes ? c.summary : live.summary ?? c.summary;
  set({
    connection: 'open', sequence: c.sequence, at: c.at, link: c.link, summary: { ...c.summary, changes, notes, kept }, members,
    changed: list(c.changed).map((n) => n.id),
  });
}

// silence is how long the server may send nothing, in ms: three of its beats. check is how often the clock is read for it: a timer of that
// length stands still while the computer sleeps, and the page would pretend to be live for as long after it has woken up.
const silence = 32_000;
const check = 1_000;
const retry = 2_000;

// connect listens until the function that it returns is called. It reads the stream by fetch: an EventSource sends no token.
export function connect(): () => void {
  const abort = new AbortController();
  set(nothing); // of another cluster
  void listen(abort.signal);
  return () => abort.abort();
}

// hiding is how long a page stays connected after it has been hidden, in ms. A browser makes six connections to a server without TLS: the
// streams of six tabs would leave none for a seventh.
const hiding = 10_000;

async function listen(stopped: AbortSignal) {
  while (!stopped.aborted) {
    const problem = await stream(stopped).catch(() => null);
    if (stopped.aborted || (problem && refused(problem))) return;
    if (document.hidden) {
      await shown(stopped);
      continue;
    }
    const lostAt = live.connection === 'lost' ? live.lostAt : Date.now();
    set({ connection: 'lost', lostAt, lostWhy: problem?.message ?? '', changed: [] });
    await new Promise((resolve) => setTimeout(resolve, retry));
  }
}

// shown waits until somebody can see the page.
function shown(stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const ended = new AbortController();
    const look = () => {
      if (document.hidden && !stopped.aborted) return;
      ended.abort();
      resolve();
    };
    document.addEventListener('visibilitychange', look, { signal: ended.signal });
    stopped.addEventListener('abort', look, { signal: ended.signal });
    look();
  });
}

// stream reads events until the server ends them or is silent. It returns the problem if the server has one.
async function stream(stopped: AbortSignal): Promise<Problem | null> {
  const ended = new AbortController();
  const end = () => ended.abort();
  stopped.addEventListener('abort', end);
  let heard = Date.now();
  let seen = heard;
  const watchdog = setInterval(() => {
    const now = Date.now();
    if (!document.hidden) seen = now;
    if (now - heard > silence || now - seen > hiding) end();
  }, check);
  try {
    const response = await request(apiPath('/events'), { signal: ended.signal });
    noteClock(response.headers.get('Date'));
    if (!response.ok || !response.body) return await response.json() as Problem;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { done, value } = await reader.read();
      if (done) return null;
      heard = Date.now();
      const events = (rest + value).split('\n\n');
      rest = events.pop()!;
      for (const event of events) receive(event);
    }
  } finally {
    clearInterval(watchdog);
    stopped.removeEventListener('abort', end);
  }
}

// receive takes one event: its name is on the first line, its data on the second.
function receive(event: string) {
  const [name, data] = event.split('\n').map((line) => line.slice(line.indexOf(': ') + 2));
  if (name === 'fleet') receiveFleet(JSON.parse(data!));
  else if (name === 'change') receiveChange(JSON.parse(data!));
  else if (name === 'recorded') set({ recorded: (JSON.parse(data!) as Recorded).recorded, changed: [] });
  else if (live.connection !== 'open') set({ connection: 'open', changed: [] });
}
