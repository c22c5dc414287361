// The fleet view: summary, map or table, and a panel with what comes next or with the selected node.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Decisions, Node, Summary, TopChange } from '../api.gen';
import { useAbout } from '../about';
import { useAnswer } from '../answer';
import { useRecorded } from '../decisionfeed';
import { DecisionRow } from '../decisions';
import { change as difference, count, list, plural, sentence, shortName } from '../format';
import { clusterNow, useLive } from '../live';
import { LongList } from '../longlist';
import { NodeReport } from '../node';
import { named } from '../nodes';
import { Banner, Code, Empty, Icon, Skeleton } from '../parts';
import { type Route, change, href, nodeHref } from '../route';
import { useAssessment } from '../savings';
import { Glyph } from '../states';
import { type Coloring, binKey, bins, colorings, poolsOf } from './colors';
import type { Grouping } from './layout';
import { CostTable } from './costs';
import { FleetMap } from './map';
import { SummaryStrip } from './summary';
import { FleetTable } from './table';
import { type Tally, tally } from './tally';
import { whyNothing } from './why';

const groupings: { name: Grouping; label: string }[] = [
  { name: 'pool', label: 'NodePool' }, { name: 'zone', label: 'Zone' }, { name: 'type', label: 'Instance family' },
];

const oneOf = <T extends string>(value: string | null, known: { name: T }[]): T =>
  known.find((k) => k.name === value)?.name ?? known[0]!.name;

export function FleetPage({ route, theme }: { route: Route; theme: string }) {
  const live = useLive((l) => l);
  if (live.link?.forbidden?.includes('nodes')) return <Forbidden view="Fleet" resource="nodes" rule={live.link.rule} />;
  if (!live.nodes || !live.summary) return <Loading text={live.link?.loading || 'Connecting'} />;
  const { nodes } = live;
  if (nodes.size === 0) return <NoNodes summary={live.summary} />;
  return <Fleet nodes={nodes} summary={live.summary} route={route} theme={theme} />;
}

function Fleet({ nodes, summary, route, theme }: { nodes: ReadonlyMap<string, Node>; summary: Summary; route: Route; theme: string }) {
  const grouping = oneOf(route.query.get('group'), groupings);
  const coloring = oneOf(route.query.get('color'), colorings);
  const table = route.query.get('view') === 'table';
  const costs = table ? route.query.get('by') : null;
  const highlight = route.query.get('only');
  const chosen = route.query.get('node');
  const selected = chosen ? named(nodes, chosen) : null;
  const counted = tally(nodes.values(), coloring, clusterNow());
  const denied = list(useLive((l) => l.link?.forbidden));
  return (
    <div class="fleet-view">
      <SummaryStrip tally={counted} summary={summary} noPods={denied.includes('pods')} />
      <Headline />
      {chosen && !selected && (
        <Banner kind="warn">
          <b>The cluster has no node {chosen}.</b> It may have been removed since. <a href={href(['fleet'])}>All nodes</a>
        </Banner>
      )}
      <div class="toolbar">
        <h1>Fleet</h1>
        {!table && <span class="hint">Box: vCPU. Fill: requested share. Cells: pods.</span>}
        <span class="grow" />
        {!table && <Choice label="Group by" items={groupings} value={grouping} pick={(group) => change({ group })} />}
        <Choice label="Color by" phone items={colorings} value={coloring} pick={(color) => change({ color, only: null })} />
        <span class="label" id="color-by">Color by</span>
        <Segments by="color-by" items={colorings} value={coloring} pick={(color) => change({ color, only: null })} />
        <Segments
          by="" label="View" items={[{ name: 'map', label: 'Map' }, { name: 'table', label: 'Table' }]} value={table ? 'table' : 'map'}
          pick={(view) => change({ view: view === 'table' ? view : null })}
        />
      </div>
      <div class={table && !selected ? 'fleet-body one' : 'fleet-body'}>
        <div class="fleet-main">
          {costs ? <CostTable by={costs} route={route} /> : table ? <FleetTable nodes={filtered(nodes, coloring, highlight)} selected={selected?.id ?? null} route={route} /> : (
            <FleetMap
              grouping={grouping} coloring={coloring} highlight={highlight} selected={selected?.id ?? null} theme={theme}
              pick={(n) => change({ node: n?.name ?? null }, n !== null && !selected)}
            />
          )}
          {!costs && <Legend nodes={nodes} counted={counted} coloring={coloring} highlight={highlight} />}
        </div>
        {selected ? <Panel key={selected.id} node={selected} /> : !table && <Next summary={summary} />}
      </div>
    </div>
  );
}

const filtered = (nodes: ReadonlyMap<string, Node>, by: Coloring, bin: string | null): Node[] => {
  const all = [...nodes.values()];
  return bin === null ? all : all.filter((n) => binKey(n, by, clusterNow()) === bin);
};

// Choice is a menu. One that is for phones stands there for the segments that wider pages have.
function Choice<T extends string>({ label, items, value, pick, phone = false }: {
  label: string; items: { name: T; label: string }[]; value: T; pick: (v: T) => void; phone?: boolean;
}) {
  return (
    <label class={phone ? 'choice phone' : 'choice'}>
      <span>{label}</span>
      <select value={value} onChange={(e) => pick(e.currentTarget.value as T)}>
        {items.map((i) => <option value={i.name}>{i.label}</option>)}
      </select>
    </label>
  );
}

export function Segments<T extends string>({ items, value, pick, by, label }: {
  items: { name: T; label: string }[]; value: T; pick: (v: T) => void; by?: string; label?: string;
}) {
  return (
    <span class="segments" role="group" aria-labelledby={by || undefined} aria-label={label}>
      {items.map((i) => <button aria-pressed={i.name === value} onClick={() => pick(i.name)}>{i.label}</button>)}
    </span>
  );
}

function Legend({ nodes, counted, coloring, highlight }: {
  nodes: ReadonlyMap<string, Node>; counted: Tally; coloring: Coloring; highlight: string | null;
}) {
  const counts = counted.bins;
  const pools = coloring === 'pool' ? poolsOf(nodes.values()) : [];
  const shown = bins(coloring, pools).filter((b) => counts.has(b.key) || b.key === highlight);
  return (
    <div class="legend" role="group" aria-label="Legend. Press an entry to show only its nodes.">
      {shown.map((b) => (
        <button aria-pressed={b.key === highlight} title={b.title} onClick={() => change({ only: b.key === highlight ? null : b.key })}>
          {b.state ? <Glyph state={b.state} /> : <i class="swatch" style={{ background: `var(${b.token})` }} />}
          <span class="cut">{b.label}</span> <b>{count(counts.get(b.key) ?? 0)}</b>
        </button>
      ))}
    </div>
  );
}

// Panel explains the selected node. Focus moves to it when it opens, and back to where it was when it closes.
function Panel({ node }: { node: Node }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const from = document.activeElement as HTMLElement | null;
    heading.current?.focus({ preventScroll: true });
    return () => from?.isConnected && from.focus({ preventScroll: true });
  }, []);
  return (
    <aside class="panel sheet" aria-label="Selected node">
      <header>
        <Glyph state={node.state} size={14} />
        <h2 ref={heading} tabIndex={-1}>{shortName(node.name)}</h2>
        <a class="page-link" href={nodeHref(node.name)}>Page</a>
        <button class="icon-button" aria-label="Close" onClick={() => change({ node: null })}><Icon name="close" /></button>
      </header>
      <NodeReport name={node.name} node={node} at="" />
    </aside>
  );
}

// Next is what the engine would do now.
function Next({ summary }: { summary: Summary }) {
  const changes = list(summary.changes);
  const saving = changes.reduce((sum, c) => sum + c.hourlySavings, 0);
  const begun = changes.filter((c) => c.progress).length;
  const about = useAbout();
  return (
    <aside class="panel" aria-label="Planned changes">
      <header><h2>Next</h2><span class="faint">{changes.length ? `${begun ? `${count(begun)} of ${plural(changes.length, 'change')} begun` : plural(changes.length, 'change')}, ${difference(-saving)}/h` : ''}</span></header>
      {changes.length === 0 && (summary.planned ? <Nothing summary={summary} /> : <p class="panel-text">The first plan is being computed.</p>)}
      {changes.length > 0 && (
        <LongList
          class="changes" label="Planned changes" count={changes.length} estimate={53}
          id={(i) => `${changes[i]!.action} ${list(changes[i]!.nodes)[0] ?? i}`} render={(i) => <ChangeRow change={changes[i]!} />}
        />
      )}
      <p class="panel-text faint">
        Computed by Dovetail’s engine for the cluster as it is, within budgets. Nothing is changed by it.
      </p>
      {list(summary.notes).length > 0 && (
        <details class="panel-text">
          <summary>{plural(list(summary.notes).length, 'note')} on what was planned</summary>
          <ul class="reasons">{list(summary.notes).map((n) => <li class="dim">{n}</li>)}</ul>
        </details>
      )}
      {about?.decisions && <LastDecisions />}
    </aside>
  );
}

// Nothing is why nothing is planned, as far as the nodes cost more than they have to.
function Nothing({ summary }: { summary: Summary }) {
  const why = whyNothing(summary, useAssessment().data);
  return (
    <>
      <p class="panel-text">Nothing is planned: no node would be launched, removed or replaced.</p>
      {why.length > 0 && <p class="panel-text">{why.join(' ')} <a href={href(['savings'])}>What would save more</a></p>}
    </>
  );
}

// Headline is the largest saving by one switch, in the words of dovetail assess; nothing where there is none.
function Headline() {
  const text = useAssessment().data?.switch;
  return text ? <p class="largest">{text} <a href={href(['savings'])}>Savings</a></p> : null;
}

// lately is how far back the decisions beside the map reach, in ms; often how soon they are read again in a fleet at rest, most how many are
// shown.
const lately = 6 * 3.6e6;
const often = 60_000;
const most = 12;

// LastDecisions are what the recording has last.
function LastDecisions() {
  const [since] = useState(() => `${new Date(clusterNow() - lately).toISOString().slice(0, 19)}Z`);
  const all = list(useAnswer<Decisions>(`/decisions?since=${since}`, { every: often, trigger: useRecorded() }).data?.decisions);
  if (all.length === 0) return null;
  return (
    <section class="last" aria-labelledby="last-decisions">
      <header><h2 id="last-decisions">Last decisions</h2><a href={href(['decisions'])}>All</a></header>
      <ol class="decisions narrow">{all.slice(0, most).map((d) => <DecisionRow decision={d} now={clusterNow()} />)}</ol>
    </section>
  );
}

// verbs are for what is planned, and for what has begun.
const verbs: Record<string, [string, string]> = { remove: ['Remove', 'Removing'], replace: ['Replace', 'Replacing'] };

function ChangeRow({ change: c }: { change: TopChange }) {
  const nodes = list(c.nodes);
  const into = list(c.launches).map((l) => `${l.instanceType} ${l.capacityType} in ${l.zone}`).join(', ');
  const names = nodes.slice(0, 3).map((n, i) => <>{i > 0 && ', '}<a href={nodeHref(n)}>{shortName(n)}</a></>);
  return (
    <div>
      <Glyph state={c.action === 'launch' ? 'in flight' : c.progress ? 'draining' : 'planned'} />
      <div>
        <div>
          {c.action === 'launch' ? `${c.progress ? 'Launching' : 'Launch'} ${into}` : <>{verbs[c.action]?.[c.progress ? 1 : 0]} {names}</>}
          {nodes.length > 3 && ` and ${nodes.length - 3} more`}
        </div>
        <div class="dim">
          {[c.progress, c.reason, c.pods > 0 && `${plural(c.pods, 'pod')}`, c.action === 'replace' && `by ${into}`].filter(Boolean).join(' · ')}
        </div>
      </div>
      <span class={c.hourlySavings > 0 ? 'ok num' : 'num'}>{difference(-c.hourlySavings)}</span>
    </div>
  );
}

function Loading({ text }: { text: string }) {
  return (
    <div class="fleet-view">
      <div class="toolbar"><h1>Fleet</h1></div>
      <Skeleton text={text} rows={8} />
    </div>
  );
}

export function Forbidden({ view, resource, rule }: { view: string; resource: string; rule: string }) {
  return <div class="page"><h1>{view}</h1><ForbiddenText resource={resource} rule={rule} /></div>;
}

// ForbiddenText names a resource that may not be read, and what lets the user read it.
export function ForbiddenText({ resource, rule }: { resource: string; rule: string }) {
  return (
    <Empty title={`No permission to list and watch ${resource}`}>
      <p>Without it, there is nothing to show here. A ClusterRole with these rules, bound to your user, shows it:</p>
      <Code text={rule} label="Copy the rules" />
    </Empty>
  );
}

function NoNodes({ summary }: { summary: Summary }) {
  return (
    <div class="fleet-view">
      <div class="toolbar"><h1>Fleet</h1></div>
      <Empty title="The cluster has no nodes">
        <p>
          {summary.pending > 0
            ? `${plural(summary.pending, 'pod')} wait for one. Pending shows why.`
            : 'A node is launched when a pod is pending and a NodePool admits it.'}
        </p>
        <Code text="kubectl get nodepools,nodeclaims,pods -A" />
      </Empty>
    </div>
  );
}

// Missing is what the user may not read, and what is not shown for it.
function Missing({ items }: { items: string[] }) {
  if (items.length === 1) return <><b>Incomplete:</b> {items[0]}.</>;
  return <><b>Incomplete:</b><ul>{items.map((m) => <li>{sentence(m)}.</li>)}</ul></>;
}

export function StaleBanner() {
  const link = useLive((l) => l.link);
  const connection = useLive((l) => l.connection);
  const why = useLive((l) => l.lostWhy);
  if (connection === 'lost' && why) {
    return <Banner kind="bad"><b>Not live: {why}.</b> What you see is the last state. It connects again by itself.</Banner>;
  }
  if (connection === 'lost') {
    return (
      <Banner kind="bad">
        <b>The console’s own server does not answer.</b> What you see is the last state. It reconnects by itself once <code>dovetail console</code> runs
        again.
      </Banner>
    );
  }
  if (!link) return null;
  return (
    <>
      {link.lost && (
        <Banner kind="warn">
          <b>The API server has not answered since {link.lost.slice(11, 19)} UTC</b> ({link.lostWhy}). What you see is the state of then. It is
          tried again all the time; check it with <code>kubectl get --raw /readyz</code>.
        </Banner>
      )}
      {link.notPlanned && list(link.missing).length === 0 && <Banner kind="warn"><b>Nothing is planned:</b> {link.notPlanned}.</Banner>}
      {list(link.missing).length > 0 && <Banner kind="warn"><Missing items={list(link.missing)} /></Banner>}
    </>
  );
}
