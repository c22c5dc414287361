// Recorded decisions, and one of them with its evidence.

import type { Decisions, RecorderAlternative, RecorderDecision } from './api.gen';
import { useAnswer } from './answer';
import { useDecisions, useRecorded } from './decisionfeed';
import { DecisionList } from './decisionlist';
import { change, clock, dollars, list, plural, sentence, shortNames } from './format';
import { Code, Empty, Facts, Loaded, useNow } from './parts';
import { type Route, href, nodeHref } from './route';
import { Glyph } from './states';

// refresh is how often a decision is read again, in ms.
const refresh = 10_000;

const glyphs: Record<string, string> = { launch: 'in flight', drifted: 'drifted', interrupted: 'draining', adoption: 'adopted' };

// glyphOf is the glyph of a kind of decisions. Kinds without their own remove nodes.
export const glyphOf = (kind: string) => glyphs[kind] ?? 'planned';

export function DecisionsPage({ route }: { route: Route }) {
  const answer = useDecisions();
  return (
    <div class="page">
      <h1>Decisions</h1>
      <Loaded answer={answer} loading="Reading the recording">{(d) => <List decisions={d} route={route} />}</Loaded>
    </div>
  );
}

function List({ decisions: d, route }: { decisions: Decisions; route: Route }) {
  const now = useNow(5000);
  const all = list(d.decisions);
  if (all.length === 0) {
    return <Empty title="No decisions"><p>The controller has decided nothing in the last day of its recording.</p></Empty>;
  }
  const { hourlySavings: hourly, totalSavings: saved } = d.realized;
  return (
    <>
      <p class="lead">
        {plural(all.length, 'decision')} in the last day of the recording, which ends {d.to && clock(d.to, now)} UTC.
        {hourly !== 0 && ` Those that have finished ${hourly > 0 ? `save ${dollars(hourly)}` : `cost ${dollars(-hourly)}`}/h now.`}
        {saved !== 0 && ` In all, they have ${saved > 0 ? 'saved' : 'cost'} ${dollars(Math.abs(saved))}.`}
        {d.more > 0 && ` ${plural(d.more, 'older decision')} left out.`}
      </p>
      <DecisionList all={all} now={now} route={route} row={(x) => <DecisionLink decision={x} now={now} />} />
    </>
  );
}

// DecisionRow links to a decision. The time that its age is counted from may be another day.
export const DecisionRow = (props: { decision: RecorderDecision; now: number }) => <li><DecisionLink {...props} /></li>;

function DecisionLink({ decision: x, now }: { decision: RecorderDecision; now: number }) {
  return (
    <a href={href(['decisions', x.id])}>
      <span class="faint">{clock(x.at, now)}</span>
      <Glyph state={glyphOf(x.type)} />
      <span><b>{shortNames(sentence(x.what))}</b><br /><span class="dim">{sentence(x.why)}{otherThanPlanned(x) && `. EC2 gave ${otherThanPlanned(x)}`}</span></span>
      <span class="dim">{x.outcome || 'not known yet'}</span>
      <Amount decision={x} />
    </a>
  );
}

// Amount is what a decision changes, in $/h: by what EC2 gave once that is known, and until then as planned.
function Amount({ decision: { realized, hourlySavings, hourlyCost, type } }: { decision: RecorderDecision }) {
  const launch = type === 'launch';
  const real = launch ? realized?.hourlyCost : realized?.hourlySavings;
  const amount = real === undefined || real === null ? (launch ? hourlyCost : -(hourlySavings ?? 0)) : launch ? real : -real;
  if (!amount) return <span class="num" />;
  return <span class={amount < 0 ? 'num ok' : 'num'}>{change(amount)}/h</span>;
}

type Given = NonNullable<NonNullable<RecorderDecision['realized']>['launched']>[number];

// gave is what EC2 gave for a decision.
const gave = (d: RecorderDecision) => given(list(d.realized?.launched));

// otherThanPlanned is what EC2 gave, if the plan's first choice is something else.
const otherThanPlanned = (d: RecorderDecision) => given(list(d.realized?.launched)
  .filter((i) => !list(d.launches).some((l) => list(l.instanceTypes)[0] === i.instanceType && l.zone === i.zone)));

const given = (instances: Given[]) => instances
  .map((i) => `${i.instanceType} ${i.capacityType} in ${i.zone}${i.hourlyCost ? `, ${dollars(i.hourlyCost)}/h` : ', price not known'}`).join('; ');

// againstPlan is how the price of what EC2 gave differs from the plan's.
const againstPlan = (above?: number | null) => {
  if (above === undefined || above === null) return '';
  return Math.abs(above) < 0.00005 ? 'the same price' : `${dollars(Math.abs(above))}/h ${above > 0 ? 'more' : 'less'}`;
};

export function DecisionPage({ id }: { id: string }) {
  const answer = useAnswer<RecorderDecision>(`/decisions/${encodeURIComponent(id)}`, { every: refresh, trigger: useRecorded() });
  return (
    <div class="page">
      <p class="crumbs"><a href={href(['decisions'])}>Decisions</a></p>
      <h1>{answer.data ? sentence(answer.data.what) : id}</h1>
      <Loaded answer={answer} loading="Reading the recording">{(d) => <Decision decision={d} />}</Loaded>
    </div>
  );
}

// Alternatives is what else could have been decided. A column that has no values is left out.
function Alternatives({ items }: { items: RecorderAlternative[] }) {
  const priced = items.some((a) => a.hourlyCost);
  const saving = items.some((a) => a.hourlySavings);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Alternatives">
      <table>
        <thead>
          <tr><th>What</th>{priced && <th class="num">$/h</th>}{saving && <th class="num">Saves $/h</th>}<th>Why not</th></tr>
        </thead>
        <tbody>
          {items.map((a) => (
            <tr class={a.chosen ? 'on' : ''}>
              <td>{shortNames(sentence(a.what))}</td>
              {priced && <td class="num">{a.hourlyCost ? dollars(a.hourlyCost) : ''}</td>}
              {saving && <td class="num">{a.hourlySavings ? dollars(a.hourlySavings) : ''}</td>}
              <td>{a.chosen ? 'Chosen' : a.whyNot && sentence(a.whyNot)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Decision({ decision: d }: { decision: RecorderDecision }) {
  const offset = (at: string) => `+${((Date.parse(at) - Date.parse(d.at)) / 1000).toFixed(1)} s`;
  return (
    <div class="report">
      <section class="verdict"><p><b>{sentence(d.why)}.</b></p></section>
      <section>
        <Facts items={[
          ['Decided', `${d.at.replace('T', ' ').slice(0, 19)} UTC`], ['Kind', d.type], ['NodePool', d.nodePool && <a href={href(['nodepools'], { pool: d.nodePool, t: d.at })}>{d.nodePool}</a>],
          ['Saving', d.hourlySavings ? `${dollars(d.hourlySavings)}/h` : ''], ['Cost', d.hourlyCost ? `${dollars(d.hourlyCost)}/h` : ''],
          ['EC2 gave', gave(d)], ['Against the plan', againstPlan(d.realized?.abovePlanHourlyCost)],
          ['Realized saving', typeof d.realized?.hourlySavings === 'number' ? `${dollars(d.realized.hourlySavings)}/h` : ''],
          ['Saved so far', typeof d.realized?.totalSavings === 'number' ? dollars(d.realized.totalSavings) : ''],
          ['Evictions', d.evictions], ['Outcome', d.outcome],
          ['Seen', d.inputs && `${plural(d.inputs.nodes, 'node')}, ${plural(d.inputs.pods, 'pod')}, ${d.inputs.pending} pending`],
        ]} />
      </section>
      {d.rule.text && <section><h2 class="sub">Rule</h2><p>{sentence(d.rule.text)}.</p></section>}
      {list(d.removes).length > 0 && (
        <section><h2 class="sub">Removes</h2><ul class="plain">
          {list(d.removes).map((n) => <li><a href={nodeHref(n.name, d.at)}>{n.name}</a> <span class="dim">{n.instanceType} {n.capacityType} {n.zone} {dollars(n.hourlyCost)}/h</span></li>)}
        </ul></section>
      )}
      {list(d.launches).length > 0 && (
        <section><h2 class="sub">Launches</h2><ul class="plain">
          {list(d.launches).map((l) => (
            <li>{list(l.instanceTypes)[0]} {l.capacityType} in {l.zone}, {dollars(l.hourlyCost)}/h <span class="dim">for {plural(list(l.pods).length, 'pod')}, NodePool {l.nodePool}</span></li>
          ))}
        </ul></section>
      )}
      {list(d.alternatives).length > 0 && (
        <section>
          <h2 class="sub">Alternatives</h2>
          <Alternatives items={list(d.alternatives)} />
          {!!d.moreAlternatives && <p class="faint small">{d.moreAlternatives} more were examined.</p>}
        </section>
      )}
      {list(d.steps).length > 0 && (
        <section>
          <h2 class="sub">What became of it</h2>
          <ol class="stages">
            {list(d.steps).map((s) => <li class="done"><span class="faint num">{offset(s.at)}</span><span>{s.what} {s.object}</span><span class="dim">{s.message}</span></li>)}
          </ol>
        </section>
      )}
      <section><h2 class="sub">In a terminal</h2><Code text={`dovetail recording show -f decisions.rec ${d.id}`} /></section>
    </div>
  );
}
