// Several clusters: one overview over all, and what switches between them.

import { useEffect } from 'preact/hooks';
import type { Cluster, Clusters } from './api.gen';
import { useAnswer } from './answer';
import { count, list, plural, sentence } from './format';
import { Banner, Empty, Loaded } from './parts';
import { clusterHref, clusterOf, go, href, parse } from './route';
import { Glyph } from './states';

// useClusters are the names of the clusters; none before they are known.
export function useClusters(): { names: string[]; known: boolean } {
  const { data, problem } = useAnswer<Clusters>('/clusters');
  return { names: list(data?.clusters).map((c) => c.name), known: !!(data || problem) };
}

// Picker names the cluster. With several, it chooses one; an address without one leads to the overview.
export function Picker({ name, all }: { name: string | undefined; all: string[] }) {
  const chosen = clusterOf(location.hash);
  const view = parse(location.hash).path[0];
  useEffect(() => {
    if (all.length > 1 && !chosen && view !== 'clusters') location.replace(href(['clusters']));
  }, [all.length, chosen, view]);
  if (all.length < 2) return <b class="cut">{name}</b>;
  return (
    <select
      class="picker" aria-label="Cluster" value={chosen}
      onChange={(e) => go(e.currentTarget.value ? clusterHref(e.currentTarget.value) : '#/clusters')}
    >
      <option value="">All {plural(all.length, 'cluster')}</option>
      {all.map((c) => <option value={c}>{c}</option>)}
    </select>
  );
}

export function ClustersPage() {
  const answer = useAnswer<Clusters>('/clusters', { every: 5_000 });
  return (
    <div class="page">
      <h1>Clusters</h1>
      <Loaded answer={answer} loading="Reading the clusters">{(d) => <Overview clusters={list(d.clusters)} />}</Loaded>
    </div>
  );
}

// stateOf is what to say of a cluster, by how much it matters.
function stateOf(c: Cluster): { glyph: string; text: string; why: string } {
  if (c.link.lost) return { glyph: 'not ready', text: c.read ? 'Stale' : 'Not reached', why: c.link.lostWhy };
  if (!c.read) return { glyph: 'in flight', text: c.link.loading || 'Connecting', why: '' };
  if (list(c.link.forbidden).length) return { glyph: 'blocked', text: 'Incomplete', why: `${list(c.link.missing).map(sentence).join('. ')}.` };
  return { glyph: 'steady', text: 'Live', why: '' };
}

const money = (v: number | null | undefined) => (v === null || v === undefined ? '?' : `$${v.toFixed(2)}`);
const number = (v: number | null | undefined) => (v === null || v === undefined ? '?' : count(v));

function Overview({ clusters }: { clusters: Cluster[] }) {
  const read = clusters.filter((c) => c.read);
  const away = clusters.filter((c) => c.link.lost);
  const sum = (of: (c: Cluster) => number) => read.reduce((n, c) => n + of(c), 0);
  if (clusters.length === 0) return <Empty title="No clusters" />;
  const [pending, stuck, unpriced] = [sum((c) => c.pending), sum((c) => c.stuck), sum((c) => c.cost.unpriced)];
  const planned = read.every((c) => c.changes !== null);
  return (
    <>
      {read.length === 0 ? <p class="lead">No cluster has been read yet.</p> : (
        <p class="lead">
          {plural(sum((c) => c.nodes), 'node')} in {plural(read.length, 'cluster')} cost {money(sum((c) => c.cost.hourlyCost))} an hour
          {unpriced > 0 && `, without ${plural(unpriced, 'node')} whose price is not known`}.
          {' '}{pending === 0 ? 'No pod is pending.' : `${plural(pending, 'pod')} ${pending === 1 ? 'is' : 'are'} pending`}
          {pending > 0 && (planned ? `: ${count(stuck)} of them ${stuck === 1 ? 'needs' : 'need'} a change to run.` : '.')}
        </p>
      )}
      {away.length > 0 && (
        <Banner kind="warn"><b>{plural(away.length, 'cluster')} cannot be reached.</b> The sums have the last state of each, and leave out what was never read.</Banner>
      )}
      <div class="card scroll" tabIndex={0} role="group" aria-label="Clusters">
        <table class="clusters">
          <thead>
            <tr>
              <th scope="col">Cluster</th><th scope="col">State</th><th scope="col" class="num">Nodes</th><th scope="col" class="num">Pods</th>
              <th scope="col" class="num">Pending</th><th scope="col" class="num">Need a change</th><th scope="col" class="num">$/h</th>
              <th scope="col" class="num">Changes</th><th scope="col" class="num">$/h after</th><th scope="col" class="num">Lower bound</th>
              <th scope="col" class="num">Errors</th><th scope="col" class="num">Warnings</th>
            </tr>
          </thead>
          <tbody>{clusters.map((c) => <Row key={c.name} cluster={c} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function Row({ cluster: c }: { cluster: Cluster }) {
  const state = stateOf(c);
  const denied = list(c.link.forbidden);
  const known = (v: number) => (c.read ? count(v) : '?');
  const knownPods = (v: number) => (denied.includes('pods') ? '?' : known(v));
  return (
    <tr>
      <th scope="row"><a href={clusterHref(c.name)}>{c.name}</a></th>
      <td><div class="with-glyph"><Glyph state={state.glyph} />{state.text}</div>{state.why && <div class="faint small">{state.why}</div>}</td>
      <td class="num">{known(c.nodes)}</td>
      <td class="num">{knownPods(c.pods)}</td>
      <td class="num">{c.pending > 0 ? <a href={clusterHref(c.name, 'pending')}>{count(c.pending)}</a> : knownPods(0)}</td>
      <td class="num">{c.changes === null ? '?' : knownPods(c.stuck)}</td>
      <td class="num">{c.read && (c.nodes === 0 || c.cost.unpriced < c.nodes) ? money(c.cost.hourlyCost) : '?'}</td>
      <td class="num">{number(c.changes)}</td>
      <td class="num">{money(c.cost.plannedHourlyCost)}</td>
      <td class="num">{money(c.cost.lowerBound)}</td>
      <td class="num">{c.errors ? <a class="bad" href={clusterHref(c.name, 'doctor')}>{count(c.errors)}</a> : number(c.errors)}</td>
      <td class="num">{c.warnings ? <a href={clusterHref(c.name, 'doctor')}>{count(c.warnings)}</a> : number(c.warnings)}</td>
    </tr>
  );
}
