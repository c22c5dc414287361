// The page without a server: dovetail console --export has written the answers about a recording as files beside it. A pack is a file of
// answers by path, without the root of the API; the pack "present" has what is asked for without a time, and which pack each recorded
// pass has.

import type { Costs, Decisions, Found, FoundPod, NodePods, Past, Pending, PendingGroup, Problem } from './api.gen';
import { list } from './format';

const data = typeof document === 'undefined' ? undefined : document.querySelector<HTMLMetaElement>('meta[name=dovetail-export]')?.content;

// isExported is true if there is no server.
export const isExported = data !== undefined;

export const withoutServer = 'These pages are files: to try an edit of a NodePool, run dovetail console.';

type Pack = Record<string, unknown>;
export interface Moment { at: string; pass: string; pack: number }

// kept is how many packs stay in memory: each takes some 500 kB, and a scrubber goes back and forth.
const kept = 40;
const packs = new Map<string, Promise<Pack>>();

function packOf(name: string): Promise<Pack> {
  const found = packs.get(name) ?? read(name);
  packs.delete(name); // the last that was used is the last
  packs.set(name, found);
  found.catch(() => packs.delete(name));
  for (const old of packs.keys()) if (packs.size > kept && old !== present) packs.delete(old);
  return found;
}

const present = 'present';

async function read(name: string): Promise<Pack> {
  const response = await fetch(`${data}${name}.pack`);
  if (!response.ok || !response.body) throw new Error(`${response.status}`);
  return await new Response(response.body.pipeThrough(new DecompressionStream('gzip'))).json() as Pack;
}

// momentAt is the last recorded pass at or before a time in ms; undefined before the first. A browser's times have no more than
// milliseconds, so that of a pass is rounded up.
export function momentAt(moments: Moment[], at: number): Moment | undefined {
  let from = 0;
  for (let to = moments.length; from < to;) {
    const middle = (from + to) >> 1;
    if (Date.parse(moments[middle]!.at) + (/\.\d{3}\d*[1-9]/.test(moments[middle]!.at) ? 1 : 0) <= at) from = middle + 1;
    else to = middle;
  }
  return moments[from - 1];
}

const problem = (status: number, code: string, message: string): Problem => ({ status, code, field: '', message, rule: '' });

// answerOf is what the server would answer: an answer, or a problem.
export async function answerOf(path: string, pack: (name: string) => Promise<Pack>): Promise<unknown> {
  const [name = '', query] = path.split('?');
  const asked = new URLSearchParams(query);
  const all = await pack(present);
  const at = asked.get('at');
  if (at === null) return filtered(name, asked, all) ?? missing(name);
  const moment = momentAt(all['/moments'] as Moment[], Date.parse(at));
  if (!moment) return problem(404, 'NotFound', `the recording has no pass at or before ${at}`);
  const found = (await pack(`${moment.pack}`))[name];
  return name === '/past' && found ? pastOf(found as Past, moment, at) : found ?? missing(name);
}

function missing(name: string): Problem {
  const [, kind, ...names] = name.split('/').map(decodeURIComponent);
  if (name.endsWith('/explain')) return problem(404, 'NotFound', `there was no ${kind!.replace(/s$/, '')} ${names.slice(0, -1).join('/')} then`);
  return /^\/decisions\/./.test(name) ? problem(404, 'NotFound', `the recording has no decision ${names[0]}`) : problem(501, 'NotFound', withoutServer);
}

// pastOf gives what a pass saw the times of the pass: passes that saw the same share a pack.
function pastOf(past: Past, { at: seen, pass }: Moment, asked: string): Past {
  return { ...past, asked, seen, pass, fleet: { ...past.fleet, at: seen }, pending: { ...past.pending, at: seen } };
}

// most is how many pods a search finds at most, groups how many workloads an answer has, longest how many bytes a text to find, as with a
// server: internal/console/search.go and pending.go.
const most = 20;
const groups = 200;
const longest = 320;

const invalid = (field: string, message: string): Problem => ({ status: 400, code: 'Invalid', field, message: `${field}: ${message}`, rule: '' });

const bytes = (text: string) => new TextEncoder().encode(text).length;

// wanted is the text of a parameter, as it is compared.
const wanted = (query: URLSearchParams, name: string) => (query.get(name) ?? '').trim().toLowerCase();

// search finds pods as the server does: first what begins with the text, then pods without a node, then by name.
function search(all: Found, query: URLSearchParams): Found | Problem {
  const text = wanted(query, 'text');
  if (bytes(text) < 1 || bytes(text) > longest) return invalid('text', `it needs 1 to ${longest} characters`);
  const of = (p: FoundPod) => `${p.namespace}/${p.name}`;
  const rank = (p: FoundPod) => (p.name.startsWith(text) || of(p).startsWith(text) ? 0 : p.node === '' ? 1 : 2);
  const order = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  const found = list(all.pods).filter((p) => of(p).includes(text))
    .sort((a, b) => rank(a) - rank(b) || order(a.name, b.name) || order(a.namespace, b.namespace));
  return { pods: found.slice(0, most), more: Math.max(0, found.length - most), checks: [] }; // the doctor needs a cluster
}

// pendingWith are the workloads with a text, as the server finds them: names has the names of all pods of each workload.
function pendingWith(all: Pending, names: string[][], query: URLSearchParams): Pending | Problem {
  const text = wanted(query, 'find');
  if (bytes(text) > longest) return invalid('find', `it has ${bytes(text)} characters; the limit is ${longest}`);
  const asked = query.get('from') || '0';
  if (!/^\+?\d+$/.test(asked)) return invalid('from', `"${asked}" is not a number from 0 on`);
  const from = Number(asked);
  const has = (g: PendingGroup, i: number) => [`${g.namespace}/${g.name}`, g.kind, g.why].some((shown) => shown.toLowerCase().includes(text))
    || list(names[i]).some((name) => name.includes(text));
  const found = list(all.groups).filter((g, i) => text === '' || has(g, i));
  return { ...all, groups: found.slice(from, from + groups), from, found: found.length };
}

// filtered is the part of an answer that the query asks for.
function filtered(name: string, query: URLSearchParams, all: Pack): unknown {
  const answer = all[name] ?? all[`${name}/explain`];
  if (!answer) return answer;
  if (name === '/costs') return (answer as Record<string, Costs>)[query.get('by') === 'label' ? `label ${query.get('label')}` : 'namespace'];
  if (name === '/search') return search(answer as Found, query);
  if (name === '/pods') {
    const { nodes } = answer as NodePods;
    return { nodes: Object.fromEntries(list(query.get('node')?.split(',')).map((id) => [id, nodes[id] ?? []])) } satisfies NodePods;
  }
  if (name === '/pending') return pendingWith(answer as Pending, list(all['/pending/names'] as string[][]), query);
  const since = query.get('since');
  if (name === '/decisions' && since) {
    const decisions = answer as Decisions;
    return { ...decisions, decisions: list(decisions.decisions).filter((d) => Date.parse(d.at) >= Date.parse(since)) } satisfies Decisions;
  }
  return answer;
}

// beat is how often the stream shows that it is there, in ms, as the server's.
const beat = 10_000;

// stream is the end of the recording as an event, and then beats.
async function stream(signal?: AbortSignal | null): Promise<Response> {
  const fleet = `event: fleet\ndata: ${JSON.stringify((await packOf(present))['/fleet'])}\n\n`;
  const text = new TextEncoder();
  let timer = 0;
  return new Response(new ReadableStream<Uint8Array>({
    start(out) {
      out.enqueue(text.encode(fleet));
      timer = setInterval(() => out.enqueue(text.encode('event: beat\ndata: {}\n\n')), beat);
      signal?.addEventListener('abort', () => {
        clearInterval(timer);
        out.error(signal.reason);
      });
    },
    cancel: () => clearInterval(timer),
  }));
}

// exportedAnswer answers in place of the server.
export async function exportedAnswer(path: string, init: RequestInit): Promise<Response> {
  const asked = path.replace(/^\/api\/v1(\/clusters\/[^/]*(?=\/))?/, '');
  if (asked === '/events') return stream(init.signal);
  if (init.method === 'POST') return Response.json(problem(501, 'NotFound', withoutServer), { status: 501 });
  const answer = await answerOf(asked, packOf);
  init.signal?.throwIfAborted();
  return Response.json(answer, { status: (answer as Problem).code && (answer as Problem).status ? (answer as Problem).status : 200 });
}
