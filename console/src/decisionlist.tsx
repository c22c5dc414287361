// The list of decisions: those of one pass together, filtered by kind, NodePool, outcome and text.

import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import type { RecorderDecision } from './api.gen';
import { change as difference, clock, list, plural } from './format';
import { Filter, LongList } from './longlist';
import { type Route, change } from './route';

// has reports whether a text in lower case is in what a row shows, or in the names of its nodes.
const has = (d: RecorderDecision, text: string) =>
  [d.id, d.pass, d.type, d.what, d.why, d.outcome, d.nodePool, ...list(d.removes).map((n) => n.name)].some((shown) => shown?.toLowerCase().includes(text));

// Field is what decisions are filtered by, with the name of its parameter in the address.
interface Field { key: string; all: string; of: (d: RecorderDecision) => string }

const fields: Field[] = [
  { key: 'kind', all: 'All kinds', of: (d) => d.type },
  { key: 'pool', all: 'All NodePools', of: (d) => d.nodePool || 'without NodePool' },
  { key: 'outcome', all: 'All outcomes', of: (d) => d.outcome || 'not known yet' },
];

// Pass is what was decided at once: the decisions of one pass that are shown, by the index of the first.
interface Pass { at: string; count: number; cost: number }

// passesOf are the passes that begin at an index. A decision without a pass is one of its own.
export function passesOf(shown: RecorderDecision[]): Map<number, Pass> {
  const out = new Map<number, Pass>();
  let pass: Pass | null = null;
  shown.forEach((d, i) => {
    if (!pass || !d.pass || d.pass !== shown[i - 1]!.pass) out.set(i, pass = { at: d.at, count: 0, cost: 0 });
    pass.count++;
    pass.cost += (d.hourlySavings ? -d.hourlySavings : d.hourlyCost) ?? 0;
  });
  return out;
}

// matching are the decisions that have the values of all fields that the address has, and the text.
export function matching(all: RecorderDecision[], query: URLSearchParams): RecorderDecision[] {
  const asked = fields.filter((f) => query.get(f.key)).map((f) => ({ of: f.of, value: query.get(f.key)! }));
  const find = query.get('find')?.toLowerCase() ?? '';
  return all.filter((d) => asked.every((f) => f.of(d) === f.value) && (!find || has(d, find)));
}

export function DecisionList({ all, now, route, row }: {
  all: RecorderDecision[]; now: number; route: Route; row: (d: RecorderDecision) => ComponentChildren;
}) {
  const { query } = route;
  const address = query.toString();
  const shown = useMemo(() => matching(all, query), [all, address]);
  const passes = useMemo(() => passesOf(shown), [shown]);
  return (
    <>
      <div class="list-tools">
        <Filter what="decisions" text={query.get('find') ?? ''} found={shown.length} counted={false} />
        {fields.map((f) => <Values key={f.key} field={f} all={all} value={query.get(f.key) ?? ''} />)}
        {shown.length < all.length && <span class="dim">{plural(shown.length, 'decision')} in {plural(passes.size, 'pass', 'passes')}</span>}
      </div>
      {shown.length === 0 ? <p class="dim">No decision has this in its text or in the names of its nodes, and the chosen kind, NodePool and outcome.</p> : (
        <LongList
          class="card decisions" label="Decisions" count={shown.length} estimate={53} id={(i) => shown[i]!.id}
          render={(i) => <>{passes.has(i) && <PassHead pass={passes.get(i)!} now={now} />}{row(shown[i]!)}</>}
        />
      )}
    </>
  );
}

// Values is the menu of a field, with how many decisions have each value; nothing if all have the same.
function Values({ field, all, value }: { field: Field; all: RecorderDecision[]; value: string }) {
  const counts = useMemo(() => {
    const out = new Map<string, number>();
    for (const d of all) out.set(field.of(d), (out.get(field.of(d)) ?? 0) + 1);
    return [...out].sort(([a], [b]) => (a < b ? -1 : 1));
  }, [all, field]);
  if (counts.length < 2 && !value) return null;
  const known = counts.some(([v]) => v === value);
  return (
    <select value={value} aria-label={field.all} onChange={(e) => change({ [field.key]: e.currentTarget.value || null })}>
      <option value="">{field.all}</option>
      {!known && value && <option value={value}>{value} (0)</option>}
      {counts.map(([v, n]) => <option value={v}>{v} ({n})</option>)}
    </select>
  );
}

// PassHead heads the decisions of one pass. One alone needs none: its row has all.
function PassHead({ pass: p, now }: { pass: Pass; now: number }) {
  if (p.count < 2) return null;
  return (
    <h2 class="pass">
      <span>Pass at {clock(p.at, now)} UTC</span><span class="faint">{plural(p.count, 'decision')}{p.cost !== 0 && ` · ${difference(p.cost)}/h`}</span>
    </h2>
  );
}
