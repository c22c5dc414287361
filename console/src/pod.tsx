// One pod: where it runs, or why it is pending and the smallest change with which it runs.

import { useEffect } from 'preact/hooks';
import type { PodreportChange, PodreportPlace, PodreportPoolReason, PodreportReport } from './api.gen';
import { useAbout } from './about';
import { type Answer, useAnswer } from './answer';
import { dollars, list, shortName } from './format';
import { Code, Loaded } from './parts';
import { PageTime, asOf, recordingOption } from './past';
import { href, nodeHref, poolHref } from './route';

const refresh = 30_000;

// labels are the states of pods in words.
const labels: Record<string, string> = {
  Running: 'Running', Starting: 'Starting', Finished: 'Finished', Deleting: 'Terminating', Gated: 'Pending', Untried: 'Pending', Preempting: 'Pending',
  NodePending: 'Pending', Schedulable: 'Pending', Unschedulable: 'Pending',
};

// PodPage is of a recorded time, or of now if that is empty. A pod with a node belongs to Fleet, one without to Pending.
export function PodPage({ name, at, belongs }: { name: string; at: string; belongs: (view: string) => void }) {
  const answer = usePod(name, at);
  const r = answer.data;
  const label = r && labels[r.state];
  const view = !r ? '' : label === 'Pending' ? 'pending' : 'fleet';
  useEffect(() => {
    if (view) belongs(view);
  }, [view]);
  const node = r?.node && !r.node.new && view === 'fleet' ? r.node.name || r.node.nodeClaim : '';
  return (
    <div class="page">
      <p class="crumbs">
        {at ? <a href={href(['timeline'], { t: at })}>Timeline</a> : view && <a href={href([view])}>{view === 'pending' ? 'Pending' : 'Fleet'}</a>}
        {node && <> / <a href={nodeHref(node)}>{shortName(node)}</a></>}&nbsp;
      </p>
      <h1 class="with-glyph">{name}{label && <span class="tag">{label}</span>}</h1>
      <PageTime at={at} />
      <div class="report"><Explained answer={answer} name={name} at={at} /></div>
    </div>
  );
}

function usePod(name: string, at: string): Answer<PodreportReport> {
  const [namespace = '', pod = ''] = name.split('/');
  const path = `/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}/explain${asOf(at)}`;
  return useAnswer<PodreportReport>(path, { every: at ? 0 : refresh });
}

export const PodReport = ({ name, at = '' }: { name: string; at?: string }) => <Explained answer={usePod(name, at)} name={name} at={at} />;

function Explained({ answer, name, at }: { answer: Answer<PodreportReport>; name: string; at: string }) {
  return (
    <Loaded answer={answer} loading="Planning the cluster with each change that could help" rows={4}>
      {(r) => <Report report={r} name={name} at={at} />}
    </Loaded>
  );
}

// stands is false for states in which a pod runs or will run as it is.
const needsChange = (r: PodreportReport) => r.state === 'Unschedulable';

function Report({ report: r, name, at }: { report: PodreportReport; name: string; at: string }) {
  const about = useAbout();
  return (
    <>
      <section class="verdict"><p><b>{r.cause}</b></p></section>
      <div class={needsChange(r) ? 'two' : ''}>
        <div>
          {r.node && <section><h2 class="sub">Node</h2><p><Place place={r.node} /></p></section>}
          <Sentences title="Why there" items={r.why} />
          {list(r.nodePools).length > 0 && (
            <section>
              <h2 class="sub">Why, for each NodePool</h2>
              <table>
                <tbody>
                  {byReason(list(r.nodePools)).map((p) => (
                    <tr>
                      <th scope="row">
                        {p.pools.map((name, i) => <>{i > 0 && ', '}<a href={poolHref(name)}>{name}</a></>)}
                      </th>
                      <td>{p.message}{p.more ? <span class="faint"> and {p.more} more</span> : ''}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
          <Sentences title="What limits where it may run" items={r.constraints} />
          <Sentences title="What keeps its node" items={r.blocks} />
          <Sentences title="Notes" items={r.notes} />
        </div>
        <div>
          {r.change && <section><h2 class="sub">Smallest change</h2><Change change={r.change} /></section>}
          {needsChange(r) && !r.change && (
            <section>
              <h2 class="sub">Smallest change</h2>
              <p>No change of one or two fields was found with which it gets a node{r.search && `, of ${r.search.candidates} that were tried`}.</p>
            </section>
          )}
          {list(r.alternatives).length > 0 && (
            <details><summary>{list(r.alternatives).length} other changes work, too</summary>
              {list(r.alternatives).map((c) => <section><Change change={c} /></section>)}
            </details>
          )}
        </div>
      </div>
      <section>
        <h2 class="sub">In a terminal</h2>
        <Code text={`dovetail explain pod ${name}${recordingOption(at, about?.recorded ? about.cluster : '')}`} />
        <p class="faint small">Each change was planned by the engine for this cluster. Prices: {r.prices}.</p>
      </section>
    </>
  );
}

// byReason joins the NodePools that exclude the pod by the same rule.
function byReason(all: PodreportPoolReason[]) {
  const out: { message: string; more: number; pools: string[] }[] = [];
  for (const p of all) {
    const same = out.find((o) => o.message === p.message && o.more === (p.more ?? 0));
    if (same) same.pools.push(p.nodePool);
    else out.push({ message: p.message, more: p.more ?? 0, pools: [p.nodePool] });
  }
  return out;
}

function Sentences({ title, items }: { title: string; items: string[] | null }) {
  if (list(items).length === 0) return null;
  return <section><h2 class="sub">{title}</h2><ul class="reasons">{list(items).map((s) => <li>{s}</li>)}</ul></section>;
}

function Place({ place: p }: { place: PodreportPlace }) {
  const words = [p.instanceType, p.capacityType, p.zone].filter(Boolean).join(' · ');
  const cost = p.hourlyCost ? `, ${dollars(p.hourlyCost)}/h` : '';
  if (p.new) return <>A new node: {words}{cost}{p.nodePool && ` (NodePool ${p.nodePool})`}</>;
  const name = p.name || p.nodeClaim || '';
  return <><a href={nodeHref(name)}>{name}</a>{words && ` (${words})`}</>;
}

function Change({ change: c }: { change: PodreportChange }) {
  return (
    <div class="change">
      <p><b>{c.summary}</b></p>
      {c.node && <p class="dim">Then it runs here: <Place place={c.node} /></p>}
      {list(c.edits).map((e) => (
        <>
          {list(e.fields).length > 0 && (
            <div class="diff" role="group" aria-label={`Change of ${e.kind} ${e.name}`}>
              {list(e.fields).map((f) => (
                <>
                  <div class="faint">{e.kind} {e.namespace ? `${e.namespace}/` : ''}{e.name} {f.field}</div>
                  {f.old && <div class="minus">− {f.old}</div>}
                  {f.new && <div class="plus">+ {f.new}</div>}
                </>
              ))}
            </div>
          )}
          {e.action === 'recreate' && (
            <p class="dim">
              {e.kind === 'Pod' ? 'A pod cannot change in place, and no controller creates this one again. This replaces it:' : `It cannot change in place: create ${e.kind} ${e.name} anew.`}
            </p>
          )}
          {e.command ? <Code text={e.command} /> : e.manifest && <Code text={e.manifest} label="Copy YAML" />}
        </>
      ))}
    </div>
  );
}
