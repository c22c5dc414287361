// The effect of an edit: what it costs, what drifts, which pods no longer fit, and the moves.

import type { AssessComparison, AssessProspect, AssessStep } from './api.gen';
import { change, count, dollars, list, plural, shortName } from './format';
import { nodeHref } from './route';
import { Glyph } from './states';

const difference = (c: AssessComparison) => c.after.hourlyCost - c.before.hourlyCost;

// cent is a tenth of one, in $/h: smaller differences are rounding.
const cent = 0.0005;

// headline is the effect in one sentence.
export function headline(c: AssessComparison): string {
  const d = difference(c);
  if (Math.abs(d) < cent) return 'The cost stays the same';
  return `${dollars(Math.abs(d))}/h ${d < 0 ? 'less' : 'more'}: ${dollars(c.after.hourlyCost)}/h instead of ${dollars(c.before.hourlyCost)}/h`;
}

export function Effect({ comparison: c, same, drifts: canDrift }: { comparison: AssessComparison; same: boolean; drifts: boolean }) {
  const d = difference(c);
  const drifts = list(c.drift).reduce((n, g) => n + g.nodes, 0);
  return (
    <>
      <p class="headline"><b class={d < -cent ? 'ok' : d > cent ? 'warn' : ''}>{headline(c)}.</b></p>
      <p class="dim">
        {same ? 'Nothing is edited yet. ' : ''}
        {drifts > 0 ? `${plural(drifts, 'node')} would drift. ` : same || !canDrift ? '' : 'No node would drift. '}
        {c.fixed > 0 && `${plural(c.fixed, 'drifted node')} would match again. `}
      </p>
      <Numbers comparison={c} />
      <Drift comparison={c} />
      <Stuck after={c.after} />
      {c.next && <NextPass before={list(c.next.before)} after={list(c.next.after)} />}
      <Moves title="With the edit" prospect={c.after} />
      {list(c.notes).length > 0 && <section><h3>Not considered</h3><ul class="plain">{list(c.notes).slice(0, 8).map((n) => <li>{n}</li>)}</ul></section>}
    </>
  );
}

function Numbers({ comparison: c }: { comparison: AssessComparison }) {
  const stuck = (p: AssessProspect) => list(p.stuck).reduce((n, s) => n + s.pods, 0);
  const plain = (v: number) => count(v);
  const rows: [string, number | null, number, number, (v: number) => string, (v: number) => string][] = [
    ['$/h after the moves below', c.now.hourlyCost, c.before.hourlyCost, c.after.hourlyCost, dollars, change],
    ['Nodes', c.now.nodes, c.before.nodes, c.after.nodes, plain, signed],
    ['Pods that move', null, c.before.evictions, c.after.evictions, plain, signed],
    ['Pods without a node', null, stuck(c.before), stuck(c.after), plain, signed],
    ['$/h if all nodes were launched anew', null, c.before.newNodesHourlyCost, c.after.newNodesHourlyCost, dollars, change],
    ['$/h, lower bound', null, c.before.lowerBound, c.after.lowerBound, dollars, change],
  ];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Numbers">
      <table class="numbers">
        <thead><tr><th>Measure</th><th class="num">Now</th><th class="num">Without the edit</th><th class="num">With it</th><th class="num">Difference</th></tr></thead>
        <tbody>
          {rows.map(([label, now, before, after, text, sign]) => (
            <tr>
              <td>{label}</td><td class="num dim">{now === null ? '' : text(now)}</td><td class="num">{text(before)}</td><td class="num"><b>{text(after)}</b></td>
              <td class={`num ${label.startsWith('$') && after < before - cent ? 'ok' : after > before + cent ? 'warn' : 'dim'}`}>
                {Math.abs(after - before) < cent ? '0' : sign(after - before)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const signed = (v: number) => (v < 0 ? `−${count(-v)}` : `+${count(v)}`);

function Drift({ comparison: c }: { comparison: AssessComparison }) {
  const groups = list(c.drift);
  if (groups.length === 0) return null;
  const kept = list(c.after.kept).filter((k) => k.new);
  return (
    <section>
      <h3>Drift <span class="faint">{c.budgetError || (c.budget === null ? 'no budget bounds it' : `budgets allow ${plural(c.budget, 'node')} at once now`)}</span></h3>
      <ul class="reasons">
        {groups.map((g) => (
          <li class="with-glyph">
            <Glyph state="drifted" />
            <div>
              <b>{plural(g.nodes, 'node')}</b>: {g.reason}
              {list(g.fields).map((f) => (
                <div class="mono">{f.field}{(f.old || f.new) && <>: <del>{f.old || 'none'}</del> → <ins>{f.new || 'none'}</ins></>}</div>
              ))}
              <div class="dim">{list(g.names).map((n, i) => <>{i > 0 && ', '}<a href={nodeHref(n)}>{shortName(n)}</a></>)}{g.nodes > list(g.names).length && ' and more'}</div>
            </div>
          </li>
        ))}
        {kept.length > 0 && (
          <li class="with-glyph">
            <Glyph state="blocked" />
            <details class="kept">
              <summary>{kept.length === 1 ? '1 of them cannot be replaced' : `${count(kept.length)} of them cannot be replaced`}</summary>
              <ul class="plain">{kept.slice(0, 20).map((k) => <li><a href={nodeHref(k.node)}>{shortName(k.node)}</a>: {k.why}</li>)}</ul>
              {kept.length > 20 && <p class="faint small">{count(kept.length - 20)} more.</p>}
            </details>
          </li>
        )}
      </ul>
    </section>
  );
}

function Stuck({ after }: { after: AssessProspect }) {
  const more = list(after.stuck).filter((s) => s.more > 0);
  if (more.length === 0) return null;
  return (
    <section>
      <h3>Pods that would no longer fit</h3>
      <ul class="reasons">
        {more.slice(0, 10).map((s) => (
          <li class="with-glyph"><Glyph state="not ready" /><span><b>{plural(s.more, 'pod')}</b> of {s.namespace}/{s.workload}: {s.why}</span></li>
        ))}
      </ul>
      {more.length > 10 && <p class="faint small">{count(more.length - 10)} more workloads.</p>}
    </section>
  );
}

// how is a step that is not done in the usual order.
const how: Record<string, string> = { reboot: ', rebooted', 'terminate first': ', terminated before its replacement' };

function StepRow({ step: m }: { step: AssessStep }) {
  const removed = list(m.removed);
  const launched = list(m.launched);
  const types = [...new Set(launched.map((n) => `${n.instanceType} ${n.capacityType}`))];
  const becomes = launched.length > 0 ? ` → ${plural(launched.length, 'new node')}` : how[m.how] ?? ', removed';
  return (
    <li>
      <Glyph state={removed.length === 0 ? 'in flight' : m.reason === 'drifted' ? 'drifted' : 'planned'} />
      <span>
        {removed.length === 0 ? `${plural(launched.length, 'node')} for pending pods` : (
          <>{removed.length === 1 ? <a href={nodeHref(removed[0]!)}>{shortName(removed[0]!)}</a> : plural(removed.length, 'node')} {m.reason}{becomes}</>
        )}
        {types.length > 0 && <span class="dim"> {types.slice(0, 3).join(', ')}{types.length > 3 && ' …'}</span>}
        {m.evictions > 0 && <span class="dim">; {plural(m.evictions, 'pod')} move</span>}
      </span>
      <span class={m.hourlyCost < 0 ? 'num ok' : 'num'}>{change(m.hourlyCost)}/h</span>
    </li>
  );
}

// NextPass is what the next pass starts within the budgets: with other feature gates, and as they are.
function NextPass({ before, after }: { before: AssessStep[]; after: AssessStep[] }) {
  const alike = JSON.stringify(before) === JSON.stringify(after);
  const one = (title: string, steps: AssessStep[]) => (
    <>
      <h3>{title} <span class="faint">{plural(steps.length, 'command')}, within budgets</span></h3>
      {steps.length === 0 && <p class="dim">It would start nothing.</p>}
      <ol class="moves">{steps.slice(0, 8).map((s) => <StepRow step={s} />)}</ol>
      {steps.length > 8 && <p class="faint small">{count(steps.length - 8)} more.</p>}
    </>
  );
  return (
    <section>
      {one(alike ? 'The next pass, with and without' : 'The next pass with them', after)}
      {!alike && one('The next pass as they are', before)}
    </section>
  );
}

function Moves({ title, prospect: p }: { title: string; prospect: AssessProspect }) {
  const moves = list(p.moves);
  return (
    <section>
      <h3>{title} <span class="faint">{plural(p.steps, 'move')}: {plural(p.removed, 'node')} removed, {count(p.launched)} launched</span></h3>
      {moves.length === 0 && <p class="dim">The engine would change nothing.</p>}
      <ol class="moves">{moves.slice(0, 12).map((m) => <StepRow step={m} />)}</ol>
      {p.steps > 12 && <p class="faint small">{count(p.steps - 12)} more moves.</p>}
      <p class="faint small">
        Pending pods, then drift, then one pass of consolidation, without disruption budgets: these decide how long it takes.
        {p.cut && ' Later passes of consolidation would go on.'}
      </p>
    </section>
  );
}
