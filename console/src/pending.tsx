// Pending pods by workload, each with its cause, and on demand the smallest fix.

import { useRef, useState } from 'preact/hooks';
import type { Pending, PendingGroup } from './api.gen';
import { useAnswer } from './answer';
import { bytes, cores, list, plural, sentence, since } from './format';
import { Forbidden } from './fleet/page';
import { useLive } from './live';
import { Filter, LongList, filtered } from './longlist';
import { Empty, Icon, Loaded, useNow } from './parts';
import { PodReport } from './pod';
import { type Route, change, podHref } from './route';
import { Glyph } from './states';

// long is how long a pod may wait until its time is marked, in ms: a node joins in less.
const long = 5 * 60_000;

// part is how many workloads an answer has: as many as the server gives.
const part = 200;

// usePending is what the screen shows of the pending workloads that have a text: the part of the list that is on it, and those before as they
// were. Group is null for one that has not been read yet.
function usePending(find: string, trigger: unknown) {
  const [parts, setParts] = useState([0, 0]);
  const path = (n: number) => `/pending?from=${n * part}${find && `&find=${encodeURIComponent(find)}`}`;
  const first = useAnswer<Pending>(path(parts[0]!), { trigger });
  const second = useAnswer<Pending>(parts[1] === parts[0] ? null : path(parts[1]!), { trigger });
  const held = useRef({ find, groups: new Map<number, PendingGroup>(), last: null as Pending | null });
  for (const { data } of [first, second]) {
    if (!data) continue;
    if (held.current.find !== find) held.current = { find, groups: new Map(), last: null };
    held.current.last = data;
    list(data.groups).forEach((g, i) => held.current.groups.set(data.from + i, g));
  }
  const { last, groups } = held.current;
  return {
    answer: { ...first, data: last, problem: first.problem ?? second.problem },
    group: (i: number) => groups.get(i) ?? null,
    seen: (from: number, to: number) => setParts([Math.floor(from / part), Math.floor(Math.max(from, to - 1) / part)]),
  };
}

export function PendingPage({ route }: { route: Route }) {
  const link = useLive((l) => l.link);
  const tick = useLive((l) => `${Math.floor(l.sequence / 2)}`);
  const find = route.query.get('find') ?? '';
  const { answer, group, seen } = usePending(find, tick);
  if (link?.forbidden?.includes('pods')) return <Forbidden view="Pending" resource="pods" rule={link.rule} />;
  return (
    <div class="page">
      <h1>Pending</h1>
      <Loaded answer={answer} loading={link?.loading || 'Reading pods'}>{(p) => (p.unknown
        ? <p class="lead">{link?.loading || 'Pods have not been read yet.'}</p>
        : <Groups pending={p} find={find} group={group} seen={seen} open={route.query.get('open')} />)}</Loaded>
    </div>
  );
}

const idOf = (g: PendingGroup) => `${g.namespace}/${g.kind}/${g.name}${g.fits ? '' : g.waiting ? '?' : '!'}`;

function Groups({ pending, find, group, seen, open }: {
  pending: Pending; find: string; group: (i: number) => PendingGroup | null; seen: (from: number, to: number) => void; open: string | null;
}) {
  const { stuck, fits: fit, waiting, workloads, found } = pending;
  if (workloads === 0) {
    return (
      <Empty title="Every pod has a node">
        <p>A pod that kube-scheduler finds no node for appears here with its cause and the smallest change that makes it run.</p>
      </Empty>
    );
  }
  const parts = [
    stuck > 0 && `${plural(stuck, 'pod')} ${stuck === 1 ? 'needs' : 'need'} a change to run`,
    fit > 0 && `${plural(fit, 'pod')} ${fit === 1 ? 'gets' : 'get'} a node as ${fit === 1 ? 'it is' : 'they are'}`,
    waiting > 0 && `${plural(waiting, 'pod')} ${waiting === 1 ? 'waits' : 'wait'} for kube-scheduler`,
  ].filter(Boolean).join('; ');
  return (
    <>
      <p class="lead">
        {parts}. {pending.planned ? 'Each change was planned by the engine for this cluster.' : 'Until the first plan, causes are kube-scheduler’s.'}
      </p>
      {(workloads > filtered || find) && <Filter what="workloads" text={find} found={found} />}
      {found === 0 ? <p class="dim">No workload has this in its name, its pods or its cause.</p> : (
        <div class="card">
          <div class="pending-row head" aria-hidden="true"><span /><span>Workload</span><span class="num">Pods</span><span class="num">Waiting</span><span>Cause</span><span>Status</span></div>
          <LongList
            count={found} estimate={54} label="Pending workloads" seen={seen}
            id={(i) => {
              const g = group(i);
              return g && idOf(g);
            }}
            render={(i) => {
              const g = group(i);
              return g ? <Group group={g} open={open === idOf(g)} /> : <div class="pending-row unread">Reading</div>;
            }}
          />
        </div>
      )}
    </>
  );
}

function Group({ group: g, open }: { group: PendingGroup; open: boolean }) {
  const now = useNow(5000);
  const first = list(g.pods)[0] ?? '';
  const waits = now - Date.parse(g.since);
  const id = `group-${g.namespace}-${g.kind}-${g.name}-${g.fits}-${g.waiting}`;
  return (
    <section class="group">
      <button class="pending-row" aria-expanded={open} aria-controls={id} onClick={() => change({ open: open ? null : idOf(g) })}>
        <Icon name="open" turned={open} />
        <span><b>{g.name}</b> <span class="dim">{g.namespace} · {g.kind}</span></span>
        <span class="num">{g.count}<span class="sr"> pods</span></span>
        <span class={waits > long ? 'num warn' : 'num'}>{since(g.since, now)}</span>
        <span class="cause">{sentence(g.why)}</span>
        <span class="with-glyph"><Glyph state={g.fits ? 'in flight' : g.waiting ? 'steady' : 'blocked'} />{g.fits ? 'gets a node' : g.waiting ? 'waiting' : 'change needed'}</span>
      </button>
      {open && (
        <div class="detail" id={id}>
          <p class="dim">
            {cores(g.cpuMillicores)} cpu and {bytes(g.memoryBytes)} memory each.{' '}
            {list(g.pods).slice(0, 6).map((p, i) => <>{i > 0 && ', '}<a href={podHref(`${g.namespace}/${p}`)}>{p}</a></>)}
            {g.count > 6 && ` and ${g.count - 6} more`}
          </p>
          <PodReport name={`${g.namespace}/${first}`} />
        </div>
      )}
    </section>
  );
}
