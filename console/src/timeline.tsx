// Timeline: spend over time against the lower bound, and with a recording the fleet, the pending pods and the decisions of any minute.

import { useEffect, useMemo, useState } from 'preact/hooks';
import type { About, Decisions, Node, Past, RecorderDecision, Spend, SpendPoint } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { SpendChart, gap, priced, total } from './chart';
import { DecisionRow, glyphOf } from './decisions';
import { Forbidden, ForbiddenText, Segments } from './fleet/page';
import { FleetMap } from './fleet/map';
import { clock, count, dollars, list, percent, plural, price, shortName, since, span } from './format';
import { useLive } from './live';
import { Banner, Code, Empty, Facts, Loaded, Skeleton, useNow, useSettled } from './parts';
import { PastBanner } from './past';
import { type Route, change, href, nodeHref, podHref } from './route';
import { Glyph, stateOf } from './states';

const minute = 60_000;
const refresh = 30_000;
// reading is how soon the rest of a recording is asked for, in ms; settle how long the scrubber rests before its minute is read.
const reading = 300;
const settle = 120;
// steps are how many minutes each key moves; around is how many the decisions reach back.
const steps: Record<string, number> = {
  ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -30, PageUp: 30, Home: -Infinity, End: Infinity,
};
const around = 30;

// momentOf is the first millisecond at or after a time, which may have nine decimals: before it, the pass of that time has not been.
const momentOf = (time: string) => Date.parse(time) + (/\.\d{3}\d*[1-9]/.test(time) ? 1 : 0);

const utc = (ms: number) => new Date(ms).toISOString();
const startOf = (ms: number) => Math.floor(ms / minute) * minute;
// endOf is the end of the minute of a time.
const endOf = (ms: number) => startOf(ms) + minute;
const hm = (ms: number) => utc(ms).slice(11, 16);

export function TimelinePage({ route, theme, about }: { route: Route; theme: string; about: About | null }) {
  const [part, setPart] = useState(true);
  const answer = useAnswer<Spend>('/spend', { every: part ? reading : refresh });
  useEffect(() => setPart((answer.data?.read ?? 0) < 1), [answer.data?.read]);
  const link = useLive((l) => l.link);
  if (!about?.decisions && link?.forbidden?.includes('nodes')) return <Forbidden view="Timeline" resource="nodes" rule={link.rule} />;
  return (
    <div class="page timeline">
      <h1>Timeline</h1>
      <Loaded answer={answer} loading="Reading what nodes have cost" rows={6}>{(s) => <Timeline spend={s} route={route} theme={theme} about={about} />}</Loaded>
    </div>
  );
}

const ranges = [{ name: '1', label: '1 h' }, { name: '6', label: '6 h' }, { name: '24', label: '24 h' }];

function Timeline({ spend, route, theme, about }: { spend: Spend; route: Route; theme: string; about: About | null }) {
  const all = list(spend.points);
  const asked = momentOf(route.query.get('t') ?? '');
  const at = Number.isNaN(asked) ? null : asked;
  const hours = ranges.find((r) => r.name === route.query.get('range'))?.name ?? '24';
  const [hovered, setHovered] = useState<number | null>(null);
  const link = useLive((l) => l.link);
  const end = all.length ? Date.parse(all.at(-1)!.at) : 0;
  const points = useMemo(() => all.filter((p) => Date.parse(p.at) > end - Number(hours) * 60 * minute), [spend, hours]);
  if (points.length === 0 && !spend.recorded && link?.loading) return <Skeleton text={link.loading} rows={6} />;
  if (points.length === 0) {
    return (
      <Empty title={spend.recorded ? 'The recording is empty' : 'Nothing is known yet'}>
        <p>{spend.recorded ? 'A controller records a pass once a minute. The first appears here.' : 'The first point appears once the nodes are read, then one a minute.'}</p>
      </Empty>
    );
  }
  const first = startOf(Date.parse(points[0]!.at));
  const last = Math.max(Math.ceil((end + 1) / minute) * minute, first + minute);
  const index = at === null ? points.length - 1 : nearest(points, at);
  const shown = hovered !== null && points[hovered] ? hovered : index;
  // move goes to what was recorded in a minute; to the end from its last one on.
  const move = (ms: number) => seek(ms >= last ? null : minuteOf(points, startOf(Math.max(first, ms))));
  const seek = (ms: number | null) => change({ t: ms === null ? null : utc(Math.min(last, Math.max(first, ms))).slice(0, 19) + 'Z' });
  return (
    <>
      <div class="timeline-head">
        <p class="lead">{spend.read === 1 && sentenceOf(spend, points)}</p>
        {all.length > 1 && <Segments label="Range" items={ranges} value={hours} pick={(range) => change({ range })} />}
      </div>
      {spend.read < 1 && <Banner kind="warn">Reading the recording: {percent(spend.read)}. Later minutes follow.</Banner>}
      {spend.recorded && at !== null && (
        <PastBanner at={utc(at)} back={() => seek(null)}>{spend.read === 1 && `, ${span(Math.max(0, end - at))} before the end of the recording`}</PastBanner>
      )}
      <section class="card" aria-label="Spend">
        <div class="card-head">
          <h2>$/h</h2>
          <span class="keys"><i class="swatch c-reserved" />reserved <i class="swatch c-on-demand" />on-demand <i class="swatch c-spot" />spot <i class="bound-key" />lower bound</span>
        </div>
        <Readout point={points[shown]} at={hovered === null ? at : null} />
        {points.length === 1 && <p class="readout dim">The chart begins with the second point.</p>}
        {points.length > 1 && <SpendChart points={points} from={first} to={last} at={at} theme={theme} hover={setHovered} press={(ms) => seek(minuteOf(points, startOf(ms)))} label={labelOf(points)} />}
        {about?.decisions && <Lanes from={first} to={last} at={at} />}
        <div class="scrub" hidden={points.length === 1}>
          <input
            type="range" min={0} max={(last - first) / minute} step="any" aria-label={spend.recorded ? 'Recorded minute' : 'Minute'}
            value={((at ?? last) - first) / minute} aria-valuetext={valueText(points[index], at, about?.recorded ? 'the end' : 'live')}
            onInput={(e) => {
              move(first + Number(e.currentTarget.value) * minute);
            }}
            onKeyDown={(e) => {
              const minutes = steps[e.key];
              if (!minutes) return;
              e.preventDefault();
              move((at === null ? startOf(last) : minuteShown(points[index]!, at)) + minutes * minute);
            }}
          />
        </div>
        <Table points={points} />
      </section>
      {!spend.recorded && (
        <p class="faint small">
          {about?.file ? 'A snapshot is one moment.' : 'This console has observed it since its start, and forgets it when it stops.'}
          {' '}With a controller’s recording, this view has the last day, with the fleet, the pending pods and the decisions of each minute:
          {' '}<code>dovetail console --recording decisions.rec</code>
        </p>
      )}
      {spend.recorded && <Moment at={at} theme={theme} />}
    </>
  );
}

// nearest is the index of the last point at or before a time, or of the first.
function nearest(points: SpendPoint[], at: number): number {
  let i = points.length - 1;
  while (i > 0 && Date.parse(points[i]!.at) > at) i--;
  return i;
}

// minuteOf is the time of the point in a minute, so that what is shown is what was recorded in it.
function minuteOf(points: SpendPoint[], start: number): number {
  const found = points.find((p) => startOf(Date.parse(p.at)) === start);
  return found ? Math.ceil(Date.parse(found.at) / 1000) * 1000 : start;
}

// minuteShown is the minute of the point that is shown at a time. minuteOf rounds up, so that a point of a minute's last second has a time of
// the next minute.
function minuteShown(point: SpendPoint, at: number): number {
  const of = Date.parse(point.at);
  return startOf(at - of < 1000 ? of : at);
}

function sentenceOf(spend: Spend, points: SpendPoint[]): string {
  const now = points.at(-1)!;
  const missing = points.filter((p, i) => i > 0 && Date.parse(p.at) - Date.parse(points[i - 1]!.at) > gap).length;
  const bounded = [...points].reverse().find((p) => p.lowerBound !== null);
  return [
    priced(now) ? `${dollars(total(now))}/h at the end.` : 'The cost at the end is not known.',
    bounded && `At ${hm(Date.parse(bounded.at))} UTC, no plan for the pods cost less than ${dollars(bounded.lowerBound!)}/h.`,
    points.length === 1 ? `${spend.recorded ? 'Recorded' : 'Observed'} at ${clock(now.at, Date.parse(now.at))} UTC.` : `${spend.recorded ? 'Recorded' : 'Observed'} from ${clock(points[0]!.at, Date.parse(now.at))} to ${clock(now.at, Date.parse(now.at))} UTC`,
    points.length > 1 && (missing > 0 ? `with ${plural(missing, 'gap')}.` : 'without a gap.'),
  ].filter(Boolean).join(' ');
}

function labelOf(points: SpendPoint[]): string {
  const values = points.map(total);
  return `Spend from ${hm(Date.parse(points[0]!.at))} to ${hm(Date.parse(points.at(-1)!.at))} UTC: between ${dollars(Math.min(...values))} and ` +
    `${dollars(Math.max(...values))} an hour, ${dollars(values.at(-1)!)} at the end. The table below has the numbers.`;
}

const valueText = (p: SpendPoint | undefined, at: number | null, end: string) =>
  at === null ? end : `${utc(at).slice(11, 16)} UTC${p ? `, ${dollars(total(p))} an hour, ${plural(p.nodes, 'node')}` : ''}`;

function Readout({ point: p, at }: { point: SpendPoint | undefined; at: number | null }) {
  if (!p) return null;
  if (at !== null && Math.abs(Date.parse(p.at) - at) > gap) return <p class="readout">Nothing is recorded at {hm(at)} UTC.</p>;
  const facts: [string, string][] = [
    ['', `${p.at.slice(11, 19)} UTC`], ['all', priced(p) ? `${dollars(total(p))}/h` : 'not known'],
    ...([['reserved', p.reservedHourlyCost], ['on-demand', p.onDemandHourlyCost], ['spot', p.spotHourlyCost]] as [string, number][])
      .filter(([, v]) => v > 0).map(([k, v]): [string, string] => [k, dollars(v)]),
    ['lower bound', p.lowerBound === null ? 'not computed' : dollars(p.lowerBound)], ['nodes', count(p.nodes)],
    ['pending', p.pending === null ? 'not known' : count(p.pending)],
  ];
  return (
    <p class="readout">
      {facts.map(([k, v]) => <span>{k && <span class="dim">{k} </span>}<b>{v}</b></span>)}
      {p.unpriced > 0 && <span class="warn">{plural(p.unpriced, 'node')} without a price</span>}
    </p>
  );
}

// rows is how many rows the table has at most.
const rows = 60;

function Table({ points }: { points: SpendPoint[] }) {
  const every = Math.ceil(points.length / rows);
  const shown = points.filter((_, i) => (points.length - 1 - i) % every === 0);
  return (
    <details class="numbers-table">
      <summary>Table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="Spend in numbers">
        <table>
          <thead><tr><th>Time (UTC)</th><th class="num">$/h</th><th class="num">Reserved</th><th class="num">On-demand</th><th class="num">Spot</th><th class="num">Lower bound</th><th class="num">Nodes</th><th class="num">Pending</th></tr></thead>
          <tbody>
            {shown.map((p) => (
              <tr>
                <td>{p.at.slice(0, 10)} {p.at.slice(11, 16)}</td><td class="num"><b>{priced(p) ? dollars(total(p)) : 'not known'}</b></td><td class="num">{dollars(p.reservedHourlyCost)}</td>
                <td class="num">{dollars(p.onDemandHourlyCost)}</td><td class="num">{dollars(p.spotHourlyCost)}</td>
                <td class="num">{p.lowerBound === null ? 'not computed' : dollars(p.lowerBound)}</td><td class="num">{count(p.nodes)}</td>
                <td class="num">{p.pending === null ? 'not known' : count(p.pending)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {every > 1 && <p class="faint small">One of {every} points.</p>}
    </details>
  );
}

// bins is how many marks a lane has at most.
const bins = 180;

// markOf is the class of a mark, by the glyph of its decisions.
const markOf: Record<string, string> = { 'in flight': 'launch', drifted: 'drift', draining: 'interrupt', adopted: 'adopt' };

// Lanes count the decisions of each kind over time. The height of a mark is the square root of its count.
function Lanes({ from, to, at }: { from: number; to: number; at: number | null }) {
  const answer = useAnswer<Decisions>('/decisions', { every: refresh });
  const lanes = useMemo(() => {
    const out = new Map<string, Map<number, number>>();
    for (const d of list(answer.data?.decisions)) {
      const bin = Math.floor(((Date.parse(d.at) - from) / (to - from)) * bins);
      if (bin < 0 || bin >= bins) continue;
      const lane = out.get(d.type) ?? new Map<number, number>();
      lane.set(bin, (lane.get(bin) ?? 0) + 1);
      out.set(d.type, lane);
    }
    return [...out].sort(([a], [b]) => (a < b ? -1 : 1));
  }, [answer.data, from, to]);
  if (lanes.length === 0) return null;
  const sum = (m: Map<number, number>) => [...m.values()].reduce((a, b) => a + b, 0);
  return (
    <div class="lanes">
      {lanes.map(([kind, marks]) => (
        <div class="lane">
          <span class="cut">{kind}</span>
          <svg viewBox={`0 0 ${bins} 12`} preserveAspectRatio="none" role="img" aria-label={`${plural(sum(marks), 'decision')} of kind ${kind}`}>
            {[...marks].map(([bin, n]) => {
              const tall = Math.min(12, 5 * Math.sqrt(n));
              return <rect x={bin} y={12 - tall} width={1} height={tall} class={`mark ${markOf[glyphOf(kind)] ?? 'remove'}`} />;
            })}
            {at !== null && <rect x={((at - from) / (to - from)) * bins - 0.12} y={0} width={0.24} height={12} class="mark now" />}
          </svg>
          <span class="num dim">{count(sum(marks))}</span>
        </div>
      ))}
    </div>
  );
}

// Moment is the fleet, the pending pods and the decisions of a recorded minute, or of now.
function Moment({ at, theme }: { at: number | null; theme: string }) {
  const settled = useSettled(at, settle);
  const answer = useAnswer<Past>(settled === null ? null : `/past?at=${encodeURIComponent(utc(settled))}`);
  // The minute before stays until the next is read.
  const [held, setHeld] = useState<Past | null>(null);
  useEffect(() => {
    if (answer.data) setHeld(answer.data);
  }, [answer.data]);
  const decisions = useAnswer<Decisions>('/decisions', { every: refresh });
  const past = at === null ? null : answer.data ?? held;
  return (
    <div class="moment">
      <section class="card" aria-label={at === null ? 'Fleet' : 'Fleet then'}>
        {at === null ? <LiveFleet theme={theme} /> : past && (answer.data || !answer.problem) ? (
          <PastFleet past={past} theme={theme} old={past !== answer.data} />
        ) : (
          <div class="card-body"><Loaded answer={answer} loading="Reading the recording" rows={4}>{() => null}</Loaded></div>
        )}
      </section>
      <section class="card" aria-label="Decisions around it">
        <div class="card-head"><h2>{at === null ? 'Last decisions' : `Decisions until ${hm(endOf(at))} UTC`}</h2></div>
        <Loaded answer={decisions} loading="Reading decisions" rows={3}>{(d) => <Around all={list(d.decisions)} at={at} />}</Loaded>
      </section>
    </div>
  );
}

function Around({ all, at }: { all: RecorderDecision[]; at: number | null }) {
  const now = useNow(5000);
  const shown = (at === null ? all : all.filter((d) => {
    const t = Date.parse(d.at);
    return t < endOf(at) && t > at - around * minute;
  })).slice(0, 30);
  if (shown.length === 0) {
    const before = at === null ? undefined : all.find((d) => Date.parse(d.at) <= at);
    return (
      <div class="card-body"><p class="dim">
        {at === null ? 'The controller has decided nothing in the last day of its recording.' : `Nothing was decided in the ${around} minutes before.`}
        {before && <> The last before was <a href={href(['timeline'], { t: before.at })}>at {hm(Date.parse(before.at))} UTC</a>.</>}
      </p></div>
    );
  }
  return <ol class="decisions narrow">{shown.map((d) => <DecisionRow key={d.id} decision={d} now={at ?? now} />)}</ol>;
}

function LiveFleet({ theme }: { theme: string }) {
  const nodes = useLive((l) => l.nodes?.size ?? null);
  const link = useLive((l) => l.link);
  const about = useAbout();
  const title = about?.recorded ? 'Fleet at the end' : link?.file ? 'Fleet of the snapshot' : 'Fleet now';
  const denied = link?.forbidden?.includes('nodes');
  return (
    <>
      <div class="card-head"><h2>{title}</h2><span class="dim">{nodes !== null ? plural(nodes, 'node') : denied ? 'not known' : 'being read'}</span></div>
      {denied ? <div class="card-body"><ForbiddenText resource="nodes" rule={link!.rule} /></div> : nodes === null ? <Skeleton text={link?.loading || 'Reading nodes'} rows={4} /> : nodes === 0 ? <div class="card-body"><p class="dim">The cluster has no nodes.</p></div> : (
        <FleetMap grouping="pool" coloring="state" highlight={null} selected={null} theme={theme} pick={(n) => n && (location.hash = href(['fleet'], { node: n.name }).slice(1))} />
      )}
      <p class="card-body faint small">Move the scrubber, or press a point of the chart, to see a recorded minute.</p>
    </>
  );
}

function PastFleet({ past, theme, old }: { past: Past; theme: string; old: boolean }) {
  const [selected, setSelected] = useState<string | null>(null);
  const seen = Date.parse(past.seen);
  const nodes = useMemo(() => new Map(list(past.fleet.nodes).map((n) => [n.id, n])), [past]);
  if (Date.parse(past.asked) - seen > gap) {
    return (
      <Empty title={`Nothing is recorded at ${hm(Date.parse(past.asked))} UTC`}>
        <p>The last pass before it was <a href={href(['timeline'], { t: past.seen })}>at {past.seen.slice(11, 19)} UTC</a>. A controller that does not run records nothing.</p>
      </Empty>
    );
  }
  const groups = list(past.pending.groups);
  const node = selected ? nodes.get(selected) : undefined;
  return (
    <div class={old ? 'old' : ''} aria-busy={old}>
      <div class="card-head">
        <h2>Fleet at {past.seen.slice(11, 19)} UTC</h2>
        <span class="dim">
          {plural(nodes.size, 'node')}, {plural(past.fleet.summary.pods, 'pod')}, {count(past.fleet.summary.pending)} pending · {dollars(past.fleet.summary.cost.hourlyCost)}/h
        </span>
      </div>
      {nodes.size === 0 ? <div class="card-body"><p class="dim">The cluster had no nodes.</p></div> : (
        <FleetMap grouping="pool" coloring="state" highlight={null} selected={selected} theme={theme} past={{ nodes, at: seen }} pick={(n) => setSelected(n?.id ?? null)} />
      )}
      {node && <PastNode node={node} at={seen} />}
      <div class="card-body">
        <h3>Pending then <span class="faint">{groups.length > 0 && 'reasons of kube-scheduler'}</span></h3>
        {groups.length === 0 && <p class="dim">Every pod had a node.</p>}
        <ul class="reasons">
          {groups.slice(0, 20).map((g) => (
            <li class="with-glyph"><Glyph state="in flight" /><span><a href={podHref(`${g.namespace}/${list(g.pods)[0] ?? ''}`, past.seen)}>{plural(g.count, 'pod')}</a> of {g.namespace}/{g.name}, waiting for {since(g.since, seen)}{g.why && `: ${g.why}`}</span></li>
          ))}
        </ul>
        {past.pending.found > 20 && <p class="faint small">{count(past.pending.found - 20)} more workloads.</p>}
        <p class="faint small">In a terminal:</p>
        <Code text={`dovetail replay decisions.rec --at ${past.seen.slice(0, 19)}Z`} />
      </div>
    </div>
  );
}

function PastNode({ node: n, at }: { node: Node; at: number }) {
  return (
    <div class="card-body">
      <h3><span class="with-glyph"><Glyph state={n.state} />{shortName(n.name)}</span></h3>
      <Facts items={[
        ['State', stateOf(n.state).label + (n.why ? `: ${n.why}` : '')], ['Type', `${n.instanceType} ${n.capacityType} in ${n.zone}`],
        ['NodePool', n.nodePool], ['Price', price(n.hourlyCost)], ['Pods', count(n.pods)], ['Age then', since(n.created, at)],
      ]} />
      <p class="small"><a href={nodeHref(n.name, utc(at))}>Why it stayed or went</a></p>
    </div>
  );
}
