// What-if: an edit, and what it would do: the YAML of a NodePool or a node class, the replicas of a Deployment, or feature gates. Nothing is
// written.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type {
  AssessPassGate, ManifestDeployment, NodeClassReport, NodePoolManifest, NodePools, Problem, WhatIf, WhatIfChoices, WhatIfRequest,
} from './api.gen';
import { get, useAnswer } from './answer';
import { Editor } from './editor';
import { clock, list, plural, sentence } from './format';
import { useLive } from './live';
import { Banner, Code, Empty, Loaded, ProblemText, Skeleton, say, useNow } from './parts';
import { type Route, change as changeRoute } from './route';
import { Glyph } from './states';
import { Effect, headline } from './whatifeffect';

// pause is how long after the last key the edit is computed, in ms.
const pause = 300;

// kinds are what can be edited, by the value of the parameter of in the address.
const kinds: [string, string][] = [['', 'NodePool'], ['class', 'Node class'], ['scale', 'Replicas'], ['gates', 'Feature gates']];

export function WhatIfPage({ route }: { route: Route }) {
  const of = kinds.some(([k]) => k === route.query.get('of')) ? route.query.get('of') ?? '' : '';
  return (
    <div class="page whatif">
      <div class="whatif-head">
        <h1>What-if</h1>
        <div class="segments" role="group" aria-label="What is edited">
          {kinds.map(([k, label]) => (
            <button key={k} aria-pressed={k === of} onClick={() => changeRoute({ of: k || null }, true)}>{label}</button>
          ))}
        </div>
        <span class="dim">Edit, and see what it would do. Nothing is written.</span>
      </div>
      {of === 'scale' || of === 'gates' ? <Choices of={of} route={route} /> : <Manifests classes={of === 'class'} route={route} />}
    </div>
  );
}

// Choices are edits without a manifest.
function Choices({ of, route }: { of: string; route: Route }) {
  const answer = useAnswer<WhatIfChoices>('/what-if/choices');
  return (
    <Loaded answer={answer} loading="Reading Deployments and feature gates">{(c) => (of === 'gates' ? (
      <Gates gates={list(c.gates)} route={route} />
    ) : list(c.deployments).length > 0 ? (
      <Scale deployments={list(c.deployments)} route={route} />
    ) : (
      <Empty title="No Deployment has pods">
        <p>Here, you change the replicas of a Deployment and see which nodes its pods need. This lists what exists:</p>
        <Code text="kubectl get deployments --all-namespaces" />
      </Empty>
    ))}</Loaded>
  );
}

// Manifests are edits of a NodePool or of a node class.
function Manifests({ classes, route }: { classes: boolean; route: Route }) {
  const answer = useAnswer<NodePools>('/nodepools');
  const kind = classes ? 'EC2NodeClass' : 'NodePool';
  const key = classes ? 'class' : 'pool';
  const names = classes ? [...new Set(Object.values(answer.data?.classes ?? {}))].sort() : list(answer.data?.names);
  const asked = route.query.get(key);
  const name = asked && names.includes(asked) ? asked : names[0];
  return (
    <Loaded answer={answer} loading="Reading NodePools">{() => (name === undefined ? (
      <Empty title="The cluster has no NodePool">
        <p>Here, you edit a NodePool and see its cost, drift and moves before you apply it. This lists what exists:</p>
        <Code text="kubectl get nodepools.karpenter.sh" />
      </Empty>
    ) : (
      <>
        {asked && asked !== name && <Banner kind="warn"><b>{classes ? 'No NodePool uses' : 'The cluster has no'} {kind} {asked}.</b> This is {name}.</Banner>}
        <p class="whatif-choice">
          <select aria-label={kind} value={name} onChange={(e) => changeRoute({ [key]: e.currentTarget.value })}>
            {names.map((n) => <option value={n}>{n}</option>)}
          </select>
        </p>
        {classes ? <Class key={name} name={name} /> : <Pool key={name} name={name} />}
      </>
    ))}</Loaded>
  );
}

function Pool({ name }: { name: string }) {
  const answer = useAnswer<NodePoolManifest>(`/nodepools/${encodeURIComponent(name)}/manifest`);
  const apply = `kubectl diff -f ${name}.yaml\nkubectl apply -f ${name}.yaml`;
  return (
    <Loaded answer={answer} loading={`Reading NodePool ${name}`} rows={8}>{(m) => (
      <Edit kind="NodePool" name={name} manifest={m.manifest} request={(manifest) => ({ nodePool: name, manifest })}>{() => (
        <Apply text={apply}>With the copied manifest in a file:</Apply>
      )}</Edit>
    )}</Loaded>
  );
}

function Class({ name }: { name: string }) {
  const answer = useAnswer<NodeClassReport>(`/nodeclasses/${encodeURIComponent(name)}`);
  return (
    <Loaded answer={answer} loading={`Reading EC2NodeClass ${name}`} rows={8}>{(m) => (
      <Edit kind="EC2NodeClass" name={name} manifest={m.manifest} request={(manifest) => ({ nodeClass: name, manifest })}>{(found) => (
        found?.patch ? <Apply text={found.patch}>This makes the edit, and leaves alone what the manifest does not show, such as user data:</Apply> : null
      )}</Edit>
    )}</Loaded>
  );
}

interface Computed { result: WhatIf | null; problem: Problem | null; busy: boolean; of: string }

// useWhatIf computes an edit after a pause; a new one cancels the request of the one before. The last result stays meanwhile.
function useWhatIf(request: WhatIfRequest | null, turn: number): Computed {
  const [state, setState] = useState<Computed>({ result: null, problem: null, busy: true, of: '' });
  const first = useRef(true);
  const body = request && JSON.stringify(request);
  useEffect(() => {
    if (body === null) {
      setState((s) => ({ ...s, busy: false, problem: null }));
      return;
    }
    const abort = new AbortController();
    setState((s) => ({ ...s, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const found = await get<WhatIf>('/what-if', abort.signal, JSON.parse(body));
        if (abort.signal.aborted) return;
        setState((s) => ({
          result: found.comparison ? found : { ...found, comparison: s.result?.comparison ?? null }, problem: null, busy: false, of: body,
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
  }, [body, turn]);
  return state;
}

// Edit is a manifest and its effect.
function Edit({ kind, name, manifest, request, children }: {
  kind: string; name: string; manifest: string; request: (text: string) => WhatIfRequest; children: (found: WhatIf | null) => ComponentChildren;
}) {
  // The text stays as it was when the edit began, whatever changes in the cluster.
  const [before] = useState(manifest);
  const [text, setText] = useState(manifest);
  // The button cannot be pressed again: the focus goes back to the text.
  const reset = () => {
    setText(before);
    document.querySelector<HTMLTextAreaElement>('.editor textarea')?.focus({ preventScroll: true });
  };
  return (
    <Compared request={request(text)} before={request(before)} drifts input={(faults) => (
      <section class="card" aria-label="Manifest">
        <div class="card-head">
          <h2>Manifest</h2><span class="grow" />
          <button class="button" disabled={text === before} onClick={reset}>Reset</button>
          <Copy text={text} />
        </div>
        <Editor label={`Manifest of ${kind} ${name}`} text={text} before={before} wrong={faults} describedBy="faults" onText={setText} />
      </section>
    )}>{children}</Compared>
  );
}

// Compared is an input and the effect of a request. before is the request that edits nothing; null is none yet.
function Compared({ request, before, drifts = false, input, children }: {
  request: WhatIfRequest | null; before: WhatIfRequest; drifts?: boolean; input: (faults: number[]) => ComponentChildren;
  children: (found: WhatIf | null) => ComponentChildren;
}) {
  const [turn, setTurn] = useState(0);
  const { result, problem, busy, of } = useWhatIf(request, turn);
  // What is wrong with a number or a name is a fault of the input, as one of a manifest.
  const wrong = problem && problem.field && ['Invalid', 'NotFound'].includes(problem.code) ? problem : null;
  const faults = wrong ? [{ line: 0, field: '', message: wrong.message }] : list(result?.faults);
  const failed = problem && !wrong;
  const stale = useLive((l) => l.connection === 'lost' || !!l.link?.lost);
  useEffect(() => {
    if (!busy && (result || wrong)) say(faults.length > 0 ? plural(faults.length, 'fault') : result?.comparison ? headline(result.comparison) : '');
  }, [busy, result, wrong]);
  return (
    <div class="whatif-body">
      {input(faults.map((f) => f.line))}
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
        {failed && <div class="card-body"><ProblemText problem={problem} /></div>}
        {!result?.comparison && !problem && faults.length === 0 && busy && <Skeleton rows={6} text="Planning the cluster with and without the edit" />}
        {result?.comparison && !failed && (
          <div class={busy || faults.length > 0 || !request ? 'card-body old' : 'card-body'}>
            {faults.length > 0 && <p class="dim">Of the last edit without faults:</p>}
            <Effect comparison={result.comparison} same={of === JSON.stringify(before)} drifts={drifts} />
            <p class="faint small">Prices: {result.prices}.</p>
          </div>
        )}
        {children(faults.length > 0 ? null : result)}
      </section>
    </div>
  );
}

// Apply is the command that makes the edit.
function Apply({ text, children }: { text: string; children: ComponentChildren }) {
  return (
    <div class="card-body apply">
      <p class="faint small">This page never writes. {children}</p>
      <Code text={text} />
    </div>
  );
}

// Scale is another number of replicas of a Deployment.
function Scale({ deployments, route }: { deployments: ManifestDeployment[]; route: Route }) {
  const nameOf = (d: ManifestDeployment) => `${d.namespace}/${d.name}`;
  const most = deployments.reduce((a, d) => (d.pods > a.pods ? d : a));
  const name = route.query.get('deployment') ?? nameOf(most);
  const now = deployments.find((d) => nameOf(d) === name)?.pods ?? 0;
  const [namespace, own] = name.split('/');
  const text = route.query.get('replicas') ?? String(now);
  const request = (n: string): WhatIfRequest => ({ deployment: name, replicas: Number(n) });
  return (
    <Compared request={text.trim() === '' || Number.isNaN(Number(text)) ? null : request(text)} before={request(String(now))} input={() => (
      <section class="card" aria-label="Replicas">
        <div class="card-head"><h2>Replicas</h2></div>
        <div class="card-body fields">
          <label>Deployment
            <input type="text" list="deployments" spellcheck={false} autocomplete="off" defaultValue={name} key={route.query.get('deployment') ?? ''}
              onChange={(e) => changeRoute({ deployment: e.currentTarget.value.trim(), replicas: null })} />
          </label>
          <datalist id="deployments">{deployments.slice(0, 2000).map((d) => <option value={nameOf(d)}>{plural(d.pods, 'pod')}</option>)}</datalist>
          <label>Replicas
            <input type="number" step={1} value={text} aria-describedby="faults" onInput={(e) => changeRoute({ replicas: e.currentTarget.value || ' ' })} />
          </label>
          <p class="dim">{`It has ${plural(now, 'pod')} now.`} Pods that go are those that its controller removes first; new ones are like its newest.</p>
        </div>
      </section>
    )}>{(found) => found && (
      <Apply text={`kubectl scale deployment ${own} --namespace ${namespace} --replicas ${text}`}>
        A HorizontalPodAutoscaler sets its own number:
      </Apply>
    )}</Compared>
  );
}

// valueOf is the value of the Helm chart for a feature gate. The gates of the AWS provider are apart.
const valueOf = (gate: string) => `settings.${gate === 'RebootForRepair' ? 'awsFeatureGates' : 'featureGates'}.${gate[0]!.toLowerCase()}${gate.slice(1)}`;

// Gates are other values of feature gates. Those that differ are in the address.
function Gates({ gates, route }: { gates: AssessPassGate[]; route: Route }) {
  const switched = new Set((route.query.get('gates') ?? '').split(',').filter(Boolean));
  const wanted = gates.filter((g) => switched.has(g.name)).map((g) => [g.name, !g.on] as const);
  const turn = (name: string, on: boolean) => {
    if (on) switched.add(name);
    else switched.delete(name);
    changeRoute({ gates: [...switched].join(',') });
  };
  return (
    <Compared request={{ gates: Object.fromEntries(wanted) }} before={{ gates: {} }} input={() => (
      <section class="card" aria-label="Feature gates">
        <div class="card-head"><h2>Feature gates</h2></div>
        <div class="card-body fields">
          {gates.map((g) => (
            <label class="check">
              <input type="checkbox" checked={g.on !== switched.has(g.name)} onChange={(e) => turn(g.name, e.currentTarget.checked !== g.on)} />
              <span><b>{g.name}</b>{switched.has(g.name) && <span class="faint"> now {g.on ? 'on' : 'off'}</span>}<br /><span class="dim">{sentence(g.text)}.</span></span>
            </label>
          ))}
          <p class="dim">These are the gates that a pass over the nodes reads.</p>
        </div>
      </section>
    )}>{() => wanted.length > 0 && (
      <Apply text={`helm upgrade dovetail … --reuse-values${wanted.map(([n, on]) => ` \\\n  --set ${valueOf(n)}=${on}`).join('')}`}>
        With the chart and namespace of your installation:
      </Apply>
    )}</Compared>
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
