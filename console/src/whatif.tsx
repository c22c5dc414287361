// What-if: the YAML of a NodePool to edit, and what the edit would do. Nothing is written.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { AssessComparison, AssessProspect, NodePoolManifest, NodePools, Problem, WhatIf } from './api.gen';
import { get, useAnswer } from './answer';
import { Editor } from './editor';
import { change, clock, count, dollars, list, plural, shortName } from './format';
import { useLive } from './live';
import { Banner, Code, Empty, Loaded, ProblemText, Skeleton, say, useNow } from './parts';
import { type Route, change as changeRoute, nodeHref } from './route';
import { Glyph } from './states';

// pause is how long after the last key the edit is computed, in ms.
const pause = 300;

export function WhatIfPage({ route }: { route: Route }) {
  const answer = useAnswer<NodePools>('/nodepools');
  const names = list(answer.data?.names);
  const asked = route.query.get('pool');
  const name = asked && names.includes(asked) ? asked : names[0];
  return (
    <div class="page whatif">
      <div class="whatif-head">
        <h1>What-if</h1>
        {names.length > 0 && (
          <select aria-label="NodePool" value={name} onChange={(e) => changeRoute({ pool: e.currentTarget.value })}>
            {names.map((n) => <option value={n}>{n}</option>)}
          </select>
        )}
        <span class="dim">Edit a NodePool, and see what it would do. Nothing is written.</span>
      </div>
      <Loaded answer={answer} loading="Reading NodePools">{() => (name === undefined ? (
        <Empty title="The cluster has no NodePool">
          <p>Here, you edit a NodePool and see its cost, drift and moves before you apply it. This lists what exists:</p>
          <Code text="kubectl get nodepools.karpenter.sh" />
        </Empty>
      ) : (
        <>
          {asked && asked !== name && <Banner kind="warn"><b>The cluster has no NodePool {asked}.</b> This is {name}.</Banner>}
          <Pool key={name} name={name} />
        </>
      ))}</Loaded>
    </div>
  );
}

function Pool({ name }: { name: string }) {
  const answer = useAnswer<NodePoolManifest>(`/nodepools/${encodeURIComponent(name)}/manifest`);
  return <Loaded answer={answer} loading={`Reading NodePool ${name}`} rows={8}>{(m) => <Edit name={name} manifest={m.manifest} />}</Loaded>;
}

interface Computed { result: WhatIf | null; problem: Problem | null; busy: boolean; text: string }

// useWhatIf computes a text after a pause; a new text cancels the request of the one before. The last result stays meanwhile.
function useWhatIf(nodePool: string, manifest: string, turn: number): Computed {
  const [state, setState] = useState<Computed>({ result: null, problem: null, busy: true, text: '' });
  const first = useRef(true);
  useEffect(() => {
    const abort = new AbortController();
    setState((s) => ({ ...s, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const found = await get<WhatIf>('/what-if', abort.signal, { nodePool, manifest });
        if (abort.signal.aborted) return;
        setState((s) => ({
          result: found.comparison ? found : { ...found, comparison: s.result?.comparison ?? null }, problem: null, busy: false, text: manifest,
        }));
      } catch (e) {
        if (!abort.signal.aborted) setState((s) => ({ ...s, problem: e as Problem, busy: false }));
      }
    }, first.current ? 0 : pause);
    first.current = false;
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [nodePool, manifest, turn]);
  return state;
}

function Edit({ name, manifest }: { name: string; manifest: string }) {
  // The text stays as it was when the edit began, whatever changes in the cluster.
  const [before] = useState(manifest);
  const [text, setText] = useState(manifest);
  const [turn, setTurn] = useState(0);
  const { result, problem, busy, text: planned } = useWhatIf(name, text, turn);
  const faults = list(result?.faults);
  // The button cannot be pressed again: the focus goes back to the text.
  const reset = () => {
    setText(before);
    document.querySelector<HTMLTextAreaElement>('.editor textarea')?.focus({ preventScroll: true });
  };
  const stale = useLive((l) => l.connection === 'lost' || !!l.link?.lost);
  useEffect(() => {
    if (!busy && result) say(faults.length > 0 ? plural(faults.length, 'fault') : result.comparison ? headline(result.comparison) : '');
  }, [busy, result]);
  return (
    <div class="whatif-body">
      <section class="card" aria-label="Manifest">
        <div class="card-head">
          <h2>Manifest</h2><span class="grow" />
          <button class="button" disabled={text === before} onClick={reset}>Reset</button>
          <Copy text={text} />
        </div>
        <Editor label={`Manifest of NodePool ${name}`} text={text} before={before} wrong={faults.map((f) => f.line)} describedBy="faults" onText={setText} />
      </section>
      <section class="card effect" aria-label="Effect" aria-busy={busy}>
        <div class="card-head">
          <h2>Effect</h2><span class="grow" />
          <Status busy={busy} result={result} stale={stale} again={() => setTurn((t) => t + 1)} />
        </div>
        <div id="faults">
          {faults.map((f) => (
            <p class="fault"><Glyph state="not ready" /><span>{f.line > 0 && <b>Line {f.line}: </b>}{f.field && <code>{f.field}</code>} {f.message}</span></p>
          ))}
        </div>
        {problem && <div class="card-body"><ProblemText problem={problem} /></div>}
        {!result?.comparison && !problem && faults.length === 0 && <Skeleton rows={6} text="Planning the cluster with and without the edit" />}
        {result?.comparison && !problem && (
          <div class={busy || faults.length > 0 ? 'card-body old' : 'card-body'}>
            {faults.length > 0 && <p class="dim">Of the last manifest without faults:</p>}
            <Effect comparison={result.comparison} same={planned === before} />
            <p class="faint small">Prices: {result.prices}.</p>
          </div>
        )}
        <div class="card-body apply">
          <p class="faint small">This page never writes. With the copied manifest in a file:</p>
          <Code text={`kubectl diff -f ${name}.yaml\nkubectl apply -f ${name}.yaml`} />
        </div>
      </section>
    </div>
  );
}

function Copy({ text }: { text: string }) {
  const [copied, setCopied] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission: the text is selected instead
      document.querySelector<HTMLTextAreaElement>('.editor textarea')?.select();
      say('The manifest is selected: copy it with the keyboard');
      return;
    }
    setCopied(text);
    say('Copied the manifest');
  };
  return <button class="button" onClick={copy}>{copied === text ? 'Copied' : 'Copy YAML'}</button>;
}

function Status({ busy, result, stale, again }: { busy: boolean; result: WhatIf | null; stale: boolean; again: () => void }) {
  const now = useNow();
  if (busy) return <span class="dim">Planning …</span>;
  if (!result?.comparison) return null;
  return (
    <span class={stale ? 'warn' : 'dim'}>
      {stale ? 'The cluster does not answer; state' : 'Cluster'} of {clock(result.at, now)} UTC
      {' '}<button class="link" onClick={again}>Plan again</button>
    </span>
  );
}

const difference = (c: AssessComparison) => c.after.hourlyCost - c.before.hourlyCost;

// cent is a tenth of one, in $/h: smaller differences are rounding.
const cent = 0.0005;

// headline is the effect in one sentence.
function headline(c: AssessComparison): string {
  const d = difference(c);
  if (Math.abs(d) < cent) return 'The cost stays the same';
  return `${dollars(Math.abs(d))}/h ${d < 0 ? 'less' : 'more'}: ${dollars(c.after.hourlyCost)}/h instead of ${dollars(c.before.hourlyCost)}/h`;
}

function Effect({ comparison: c, same }: { comparison: AssessComparison; same: boolean }) {
  const d = difference(c);
  const drifts = list(c.drift).reduce((n, g) => n + g.nodes, 0);
  return (
    <>
      <p class="headline"><b class={d < -cent ? 'ok' : d > cent ? 'warn' : ''}>{headline(c)}.</b></p>
      <p class="dim">
        {same ? 'Nothing is edited yet. ' : ''}
        {drifts > 0 ? `${plural(drifts, 'node')} would drift. ` : same ? '' : 'No node would drift. '}
        {c.fixed > 0 && `${plural(c.fixed, 'drifted node')} would match again. `}
      </p>
      <Numbers comparison={c} />
      <Drift comparison={c} />
      <Stuck after={c.after} />
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

function Moves({ title, prospect: p }: { title: string; prospect: AssessProspect }) {
  const moves = list(p.moves);
  return (
    <section>
      <h3>{title} <span class="faint">{plural(p.steps, 'move')}: {plural(p.removed, 'node')} removed, {count(p.launched)} launched</span></h3>
      {moves.length === 0 && <p class="dim">The engine would change nothing.</p>}
      <ol class="moves">
        {moves.slice(0, 12).map((m) => {
          const removed = list(m.removed);
          const launched = list(m.launched);
          const types = [...new Set(launched.map((n) => `${n.instanceType} ${n.capacityType}`))];
          return (
            <li>
              <Glyph state={removed.length === 0 ? 'in flight' : m.reason === 'drifted' ? 'drifted' : 'planned'} />
              <span>
                {removed.length === 0 ? `${plural(launched.length, 'node')} for pending pods` : (
                  <>{removed.length === 1 ? <a href={nodeHref(removed[0]!)}>{shortName(removed[0]!)}</a> : plural(removed.length, 'node')} {m.reason}
                    {launched.length > 0 ? ` → ${plural(launched.length, 'new node')}` : ', removed'}</>
                )}
                {types.length > 0 && <span class="dim"> {types.slice(0, 3).join(', ')}{types.length > 3 && ' …'}</span>}
                {m.evictions > 0 && <span class="dim">; {plural(m.evictions, 'pod')} move</span>}
              </span>
              <span class={m.hourlyCost < 0 ? 'num ok' : 'num'}>{change(m.hourlyCost)}/h</span>
            </li>
          );
        })}
      </ol>
      {p.steps > 12 && <p class="faint small">{count(p.steps - 12)} more moves.</p>}
      <p class="faint small">
        Pending pods, then drift, then one pass of consolidation, without disruption budgets: these decide how long it takes.
        {p.cut && ' Later passes of consolidation would go on.'}
      </p>
    </section>
  );
}
