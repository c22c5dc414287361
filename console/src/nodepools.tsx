// NodePools: limits, budgets over a day, drift, and why nodes stay.

import type { BudgetsSchedule, NodePools, PoolreportGoing, PoolreportReport } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { isExported } from './exported';
import { change, clause, clock, count, dollars, list, plural, sentence, shortName } from './format';
import { useLive } from './live';
import { Filter, LongList, filtered } from './longlist';
import { Code, Computing, Empty, Facts, Loaded, Meter } from './parts';
import { PageTime, asOf, recordingOption, timeOf } from './past';
import { type Route, claimHref, href, nodeHref, poolHref } from './route';
import { Glyph } from './states';

const refresh = 60_000;

export function NodePoolsPage({ route }: { route: Route }) {
  const at = timeOf(route);
  const answer = useAnswer<NodePools>(`/nodepools${asOf(at)}`, { every: at ? 0 : refresh });
  const only = route.query.get('pool');
  return (
    <div class="page">
      {only && <p class="crumbs"><a href={href(['nodepools'], { t: at })}>NodePools</a></p>}
      <h1>{only || 'NodePools'}</h1>
      <PageTime at={at} />
      <Loaded answer={answer} loading="Reading NodePools">{(pools) => {
        const names = list(pools.names);
        if (names.length === 0) {
          return (
            <Empty title="The cluster has no NodePool">
              <p>Nodes are launched only for a NodePool. This lists what exists:</p>
              <Code text="kubectl get nodepools.karpenter.sh" />
            </Empty>
          );
        }
        if (only && !names.includes(only)) {
          return (
            <Empty title={`The cluster has no NodePool ${only}`}>
              <p>It may have been deleted. <a href={href(['nodepools'], { t: at })}>{plural(names.length, 'NodePool')} exist{names.length === 1 ? 's' : ''}</a>.</p>
            </Empty>
          );
        }
        const find = route.query.get('find') ?? '';
        const shown = names.filter((n) => n.includes(find.toLowerCase()));
        if (only) return <PoolPage key={`${only} ${at}`} name={only} at={at} nodeClass={pools.classes[only] ?? ''} />;
        return (
          <>
            <p class="lead">{plural(names.length, 'NodePool')}.</p>
            {(names.length > filtered || find) && <Filter what="NodePools" text={find} found={shown.length} />}
            {shown.length === 0 && <p class="dim">No NodePool has this in its name.</p>}
            <LongList
              label="NodePools" count={shown.length} estimate={340} id={(i) => `${shown[i]} ${at}`} render={(i) => <Pool name={shown[i]!} at={at} />}
            />
          </>
        );
      }}</Loaded>
    </div>
  );
}

// PoolPage is one NodePool, and what leads on from it.
function PoolPage({ name, at, nodeClass }: { name: string; at: string; nodeClass: string }) {
  const about = useAbout();
  return (
    <>
      {!at && (
        <p class="lead">
          <a href={href(['fleet'], { color: 'pool', only: name })}>Its nodes on the map</a>
          {!isExported && <> · <a href={href(['what-if'], { pool: name })}>Try an edit</a></>}
          {!isExported && nodeClass && <> · <a href={href(['nodeclasses', nodeClass])}>Node class {nodeClass}</a></>}
        </p>
      )}
      <Pool name={name} at={at} />
      {!at && <Claims pool={name} />}
      <h2 class="sub">In a terminal</h2>
      <Code text={`dovetail explain nodepool ${name}${recordingOption(at, about?.recorded ? about.cluster : '')}`} />
    </>
  );
}

// Claims are the NodeClaims of a NodePool, by name.
function Claims({ pool }: { pool: string }) {
  const claims = useLive((l) => l.nodes && [...l.nodes.values()].filter((n) => n.nodePool === pool && n.nodeClaim).sort((a, b) => (a.nodeClaim < b.nodeClaim ? -1 : 1)));
  if (!claims || claims.length === 0) return null;
  return (
    <>
      <h2 class="sub">NodeClaims <span class="faint">{count(claims.length)}</span></h2>
      <LongList
        class="card" label={`NodeClaims of ${pool}`} count={claims.length} estimate={30} id={(i) => claims[i]!.id} render={(i) => (
          <div class="move">
            <span class="with-glyph"><Glyph state={claims[i]!.state} /><a href={claimHref(claims[i]!.nodeClaim)}>{claims[i]!.nodeClaim}</a></span>
            <span class="dim">{[claims[i]!.instanceType, claims[i]!.capacityType, claims[i]!.zone].filter(Boolean).join(' · ')}</span>
          </div>
        )}
      />
    </>
  );
}

// Pool shows what takes no plan at once. Only NodePools near the screen are asked for.
function Pool({ name, at }: { name: string; at: string }) {
  const path = `/nodepools/${encodeURIComponent(name)}`;
  const answer = useAnswer<PoolreportReport>(`${path}/explain${asOf(at)}`, { every: at ? 0 : refresh });
  const known = useAnswer<PoolreportReport>(at || answer.data || answer.problem ? null : path);
  const early = answer.data || answer.problem ? null : known.data;
  return (
    <section class="card pool" aria-label={`NodePool ${name}`}>
      {early ? <Report report={early} /> : (
        <Loaded answer={answer} loading={`Planning NodePool ${name}`} rows={3}>{(r) => <Report report={r} />}</Loaded>
      )}
    </section>
  );
}

function Report({ report: r }: { report: PoolreportReport }) {
  const bad = list(r.conditions).filter((c) => c.bad);
  return (
    <>
      <div class="card-head">
        <h2><a href={poolHref(r.name)}>{r.name}</a></h2>
        <span class="dim">
          {plural(r.nodes, 'node')}{r.starting > 0 && `, ${r.starting} starting`}{r.nodes + r.starting > 0 && ` · ${dollars(r.hourlyCost)}/h`}
          {r.weight > 0 && ` · weight ${r.weight}`}{r.replicas !== null && r.replicas !== undefined && ` · ${r.replicas} replicas`}
        </span>
      </div>
      <div class="card-body">
        <p><b>{sentence(r.verdict)}</b></p>
        {bad.map((c) => <p class="bad-text">{c.type} is {c.status}: {c.message || c.reason}</p>)}
        <div class="two">
          <div>
            <Limits report={r} />
            <Drift report={r} />
            <section>
              <h3>Instance types <span class="faint">{r.admitted} of {r.types} admitted</span></h3>
              <Facts items={list(r.excluded).slice(0, 6).map((e) => [e.requirement, `excludes ${e.types}`])} />
            </section>
          </div>
          <div>
            <Budgets report={r} />
            <Consolidation report={r} />
          </div>
        </div>
      </div>
    </>
  );
}

function Limits({ report: r }: { report: PoolreportReport }) {
  return (
    <section>
      <h3>Limits</h3>
      {list(r.limits).length === 0 ? <p class="dim">It has none.</p> : (
        <div class="uses">
          {list(r.limits).map((l) => (
            <>
              <span>{l.resource}</span>
              <Meter share={l.share} label={`${l.resource}: ${l.used} of ${l.limit}`} />
              <span class={l.share > 0.95 ? 'num warn' : 'num'}>{l.used} / {l.limit}</span>
            </>
          ))}
        </div>
      )}
    </section>
  );
}

function Drift({ report: r }: { report: PoolreportReport }) {
  return (
    <section>
      <h3>Drift</h3>
      {list(r.drift).length === 0 && <p class="dim">Every node matches its NodePool and node class.</p>}
      <ul class="reasons">
        {list(r.drift).map((d) => (
          <li>
            {plural(d.nodes, 'node')}: {d.reason}
            {list(d.fields).filter((f) => f.old || f.new).map((f) => (
              <div class="mono">{f.object} {f.field}: <del>{f.old || 'none'}</del> → <ins>{f.new || 'none'}</ins></div>
            ))}
            <div class="dim"><Names names={list(d.names)} of={d.nodes} /></div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Budgets({ report: r }: { report: PoolreportReport }) {
  return (
    <section>
      <h3>Disruption budgets, next 24 h <span class="faint">{plural(list(r.disrupted).length, 'node')} disrupted now</span></h3>
      {r.budgetError && <p class="bad-text">{r.budgetError}</p>}
      {list(r.budgets).map((b) => <Strip schedule={b} now={Date.parse(r.now)} />)}
      <p class="faint small">How many nodes may be disrupted at once, from now on, in UTC.</p>
    </section>
  );
}

const day = 24 * 3.6e6;

// Strip is a day of a budget: a run of time with one value is one block, as wide as it is long.
function Strip({ schedule: s, now }: { schedule: BudgetsSchedule; now: number }) {
  const spans = list(s.spans).map((x) => ({ ...x, start: Math.max(now, Date.parse(x.from)), end: Math.min(now + day, Date.parse(x.to)) }))
    .filter((x) => x.end > x.start);
  const words = (v: number) => (v < 0 ? 'no limit' : String(v));
  return (
    <div class="strip">
      <span>{list(s.reasons).join(', ')}</span>
      <span class="blocks" role="img" aria-label={s.text}>
        {spans.map((x) => (
          <i class={x.allowed === 0 ? 'none' : ''} style={{ flex: (x.end - x.start) / day }} title={`${words(x.allowed)} until ${clock(x.to, now)} UTC`}>
            {words(x.allowed)}
          </i>
        ))}
      </span>
    </div>
  );
}

// named is how many nodes of a command are named, listed how many disrupted nodes have a line.
const named = 5;
const listed = 8;

function Names({ names, of = names.length, most = names.length }: { names: string[]; of?: number; most?: number }) {
  const shown = names.slice(0, most);
  return <>{shown.map((n, i) => <>{i > 0 && ', '}<a href={nodeHref(n)}>{shortName(n)}</a></>)}{of > shown.length && ` and ${of - shown.length} more`}</>;
}

interface Command { reason: string; hourlySavings: number; together: number; nodes: string[] }

// commands joins the nodes of one command: each has what the whole command saves. Nodes that go alone stay alone.
function commands(going: PoolreportGoing[]): Command[] {
  const out: Command[] = [];
  for (const g of going) {
    const same = g.together > 1 && out.find((c) => c.reason === g.reason && c.hourlySavings === g.hourlySavings && c.together === g.together);
    if (same) same.nodes.push(g.node);
    else out.push({ ...g, nodes: [g.node] });
  }
  return out;
}

function Consolidation({ report: r }: { report: PoolreportReport }) {
  return (
    <section>
      <h3>What the next passes do</h3>
      {r.computing && <Computing text="Which nodes go, and why the others stay, is being computed" />}
      <ul class="reasons">
        {commands(list(r.going)).map((g) => (
          <li class="with-glyph">
            <Glyph state="planned" />
            <span>{plural(g.nodes.length, 'node goes', 'nodes go')}: {g.reason.toLowerCase()}
              {g.together > g.nodes.length && `, together with ${g.together - g.nodes.length} of other NodePools`} <span class="ok whole">
                {g.hourlySavings ? `${change(-g.hourlySavings)}/h${g.together > g.nodes.length ? ' in all' : ''}` : ''}</span> <span class="dim">
                (<Names names={g.nodes} most={named} />)</span></span>
          </li>
        ))}
        {list(r.disrupted).slice(0, listed).map((d) => (
          <li class="with-glyph"><Glyph state={d.state === 'NotReady' ? 'not ready' : 'draining'} /><span><a href={nodeHref(d.node)}>{shortName(d.node)}</a>: {d.why}</span></li>
        ))}
        {list(r.disrupted).length > listed && <li class="with-glyph"><Glyph state="draining" /><span>{count(list(r.disrupted).length - listed)} more nodes are disrupted</span></li>}
        {list(r.stays).map((s) => (
          <li class="with-glyph">
            <Glyph state="steady" />
            <span>{plural(s.nodes, 'node stays', 'nodes stay')}: {clause(s.message)} <span class="dim">
              (<Names names={list(s.names)} of={s.nodes} />)</span></span>
          </li>
        ))}
      </ul>
      {!r.computing && list(r.going).length + list(r.stays).length + list(r.disrupted).length === 0 && <p class="dim">It has no nodes.</p>}
      {r.stopped && <p class="faint small">The search stopped at its limit before it came to some nodes: more may go.</p>}
    </section>
  );
}
