// Why a node stays or goes, and what its removal would do.

import type { DriftedField, Node, NodereportLaunch, NodereportMove, NodereportRemoval, NodereportReport } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { bytes, change, cores, dollars, list, plural, sentence, shortName, since } from './format';
import { share } from './fleet/layout';
import { named, priceOf, readsPrices } from './nodes';
import { useLive } from './live';
import { LongList } from './longlist';
import { Code, Computing, Facts, Loaded, Meter, useNow } from './parts';
import { PageTime, asOf, recordingOption, usePast } from './past';
import { claimHref, href, nodeHref, podHref, poolHref } from './route';
import { Glyph, stateOf } from './states';

// refresh is how often an explanation is made again while it is on the screen, in ms.
const refresh = 30_000;

// NodePage is of a recorded time, or of now if that is empty.
export function NodePage({ name, at }: { name: string; at: string }) {
  const live = useLive((l) => named(l.nodes, name));
  const past = usePast(at);
  const then = list(past.data?.fleet.nodes).find((n) => n.name === name || n.nodeClaim === name) ?? null;
  const node = at ? then : live;
  return (
    <div class="page">
      <p class="crumbs"><a href={at ? href(['timeline'], { t: at }) : href(['fleet'], { node: name })}>{at ? 'Timeline' : 'Fleet'}</a></p>
      <h1 class="with-glyph">{node && <Glyph state={node.state} size={14} />}{name}</h1>
      <PageTime at={at} />
      <div class="report wide-report"><NodeReport name={name} node={node} at={at} /></div>
    </div>
  );
}

export function NodeReport({ name, node, at }: { name: string; node: Node | null; at: string }) {
  const answer = useAnswer<NodereportReport>(`/nodes/${encodeURIComponent(name)}/explain${asOf(at)}`, {
    every: at ? 0 : refresh, trigger: !at && node && `${node.state} ${node.podsHash}`,
  });
  // What takes no plan is there at once.
  const known = useAnswer<NodereportReport>(at || answer.data || answer.problem ? null : `/nodes/${encodeURIComponent(name)}`);
  const early = answer.data || answer.problem ? null : known.data;
  return (
    <>
      {node && <Numbers node={node} at={at} />}
      {early ? <Report report={early} at={at} /> : (
        <Loaded answer={answer} loading="Planning what its removal would do" rows={6}>{(r) => <Report report={r} at={at} />}</Loaded>
      )}
    </>
  );
}

// Numbers are what is known without planning.
function Numbers({ node, at }: { node: Node; at: string }) {
  const clock = useNow(5000);
  const now = at ? Date.parse(at) : clock;
  const reading = useLive((l) => readsPrices(l.summary));
  const { cpuMillicores: cpu, memoryBytes: memory } = node;
  const of = (part: number | null, whole: number, words: (v: number) => string) => `${part === null ? '?' : words(part)} / ${words(whole)}`;
  const row = (label: string, u: typeof cpu, words: (v: number) => string) => (
    <>
      <span>{label}</span>
      <Meter
        share={share(u.requested, u.allocatable)} tick={u.used === null ? null : share(u.used, u.allocatable)}
        label={`${label}: ${of(u.requested, u.allocatable, words)} requested${u.used === null ? '' : `, ${words(u.used)} used`}`}
      />
      <span class="num">{of(u.requested, u.allocatable, words)}</span>
    </>
  );
  return (
    <section>
      <Facts items={[
        ['State', `${stateOf(node.state).label}${node.why ? `: ${node.why}` : ''}`],
        ['Instance', [node.instanceType, node.capacityType, node.zone].filter(Boolean).join(' · ')],
        ['NodePool', node.nodePool && <a href={poolHref(node.nodePool)}>{node.nodePool}</a>],
        ['NodeClaim', node.nodeClaim && <a href={claimHref(node.nodeClaim, at || null)}>{node.nodeClaim}</a>],
        ['Price', priceOf(node.hourlyCost, !at && reading)],
        ['Age', since(node.created, now)],
      ]} />
      <div class="uses">
        {row('cpu', cpu, cores)}
        {row('memory', memory, bytes)}
        <span>pods</span>
        <Meter share={share(node.pods, node.maxPods)} label={`${node.pods} of ${node.maxPods} pods`} />
        <span class="num">{node.pods} / {node.maxPods || '?'}</span>
      </div>
      <p class="faint small">Bar: requested of allocatable. {cpu.used === null ? 'metrics-server reports no use.' : 'Tick: used.'}</p>
    </section>
  );
}

function Report({ report: r, at }: { report: NodereportReport; at: string }) {
  const about = useAbout();
  return (
    <>
      {r.computing ? <Computing text="Whether it stays, and what its removal would do, is being computed" /> : (
        <section class="verdict"><p><b>{sentence(r.verdict.text)}</b></p></section>
      )}
      {list(r.blockers).length > 0 && (
        <section>
          <h2 class="sub">What keeps it</h2>
          <ul class="reasons">
            {list(r.blockers).map((b) => (
              <li>
                {sentence(b.message)}
                {b.object && <div class="faint mono">{b.object} {b.field}</div>}
                {b.until && <div class="dim">Until {b.until.replace('T', ' ').slice(0, 16)} UTC</div>}
                {b.change && <div class="dim">To lift it: {b.change}</div>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {list(r.stages).some((s) => !s.done) && <Stages report={r} />}
      {r.drift && (
        <section>
          <h2 class="sub">Drift <span class="faint">{r.drift.reason}</span></h2>
          <DriftFields fields={list(r.drift.fields)} />
        </section>
      )}
      {r.launch && <Launch report={r} launch={r.launch} />}
      {r.removal ? <Removal removal={r.removal} /> : <Pods report={r} />}
      <section>
        <h2 class="sub">In a terminal</h2>
        <Code text={`dovetail explain ${r.objectKind === 'NodeClaim' ? 'nodeclaim' : 'node'} ${r.name}${recordingOption(at, about?.recorded ? about.cluster : '')}`} />
        <p class="faint small">Prices: {r.prices}.</p>
      </section>
    </>
  );
}

// DriftFields are what differs from what would be launched now.
export const DriftFields = ({ fields }: { fields: DriftedField[] }) => (
  <ul class="reasons">
    {fields.map((f) => (
      <li>
        {f.object} <span class="mono">{f.field}</span>
        {(f.old || f.new) && <div class="mono"><del>{f.old || 'none'}</del> → <ins>{f.new || 'none'}</ins></div>}
      </li>
    ))}
  </ul>
);

function Stages({ report }: { report: NodereportReport }) {
  return (
    <section>
      <h2 class="sub">On its way</h2>
      <ol class="stages">
        {list(report.stages).map((s) => (
          <li class={s.done ? 'done' : ''}>
            <span>{s.done ? '✓' : '○'}<span class="sr">{s.done ? 'done' : 'not done'}</span></span>
            <span>{s.name}{s.message && <span class="dim"> {s.message}</span>}</span>
            <span class="faint num">{s.at?.slice(11, 19)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Launch({ report, launch }: { report: NodereportReport; launch: NodereportLaunch }) {
  const same = (a: { instanceType: string; zone: string; capacityType: string }) =>
    a.instanceType === report.instanceType && a.zone === report.zone && a.capacityType === report.capacityType;
  return (
    <section>
      <h2 class="sub">Why {report.instanceType}, {report.capacityType} <span class="faint">{report.hourlyCost ? `${dollars(report.hourlyCost)}/h` : ''}</span></h2>
      <p>{sentence(launch.reason)}</p>
      {list(launch.alternatives).length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Offerings">
          <table>
            <caption>The cheapest offerings for the pods that are here now</caption>
            <thead><tr><th>Offering</th><th>Zone</th><th class="num">$/h</th></tr></thead>
            <tbody>
              {list(launch.alternatives).map((a) => (
                <tr class={same(a) ? 'on' : ''}>
                  <td>{a.instanceType} <span class="dim">{a.capacityType}</span></td><td>{a.zone}</td><td class="num">{dollars(a.hourlyCost)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {launch.split > 1 && <p class="dim">The pods that are here now would cost least on {launch.split} nodes.</p>}
      {list(launch.excluded).length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Cheaper types that cannot stand in">
          <table>
            <caption>Cheaper types that cannot stand in for it</caption>
            <thead><tr><th>Type</th><th>Rule</th><th class="num">$/h</th></tr></thead>
            <tbody>
              {list(launch.excluded).map((e) => <tr><td class="whole">{e.instanceType}</td><td>{e.rule}</td><td class="num">{dollars(e.hourlyCost)}</td></tr>)}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Move({ move: p }: { move: NodereportMove }) {
  return (
    <div class="move">
      <a href={podHref(p.pod)}>{p.pod}</a>
      <span>{p.why ? <span class="dim">{p.why}</span> : p.new ? `new ${p.node}` : <a href={nodeHref(p.node)}>{shortName(p.node)}</a>}</span>
    </div>
  );
}

function Removal({ removal: r }: { removal: NodereportRemoval }) {
  const launches = list(r.launches);
  const pods = list(r.pods);
  return (
    <section>
      <h2 class="sub">If it were removed <span class="faint">{r.hourlySavings > 0 ? `${change(-r.hourlySavings)}/h` : ''}</span></h2>
      {r.blocks && <p>{sentence(r.blocks)}</p>}
      {!r.accepted && r.why && <p class="dim">{sentence(r.why)}</p>}
      {launches.length > 0 && (
        <p>It would take {plural(launches.length, 'new node')}: {launches.map((l) => `${l.instanceType} ${l.capacityType} in ${l.zone}`).join(', ')}.</p>
      )}
      {pods.length === 0 ? <p class="dim">It has no pods.</p> : (
        <>
          <div class="move head" aria-hidden="true"><span>Pod</span><span>Would run on</span></div>
          <LongList
            label="Pods, and where they would run" count={pods.length} estimate={30} id={(i) => pods[i]!.pod} render={(i) => <Move move={pods[i]!} />}
          />
        </>
      )}
    </section>
  );
}

function Pods({ report }: { report: NodereportReport }) {
  const pods = list(report.pods);
  return (
    <section>
      <h2 class="sub">Pods <span class="faint">{list(report.pods).length}</span></h2>
      {pods.length === 0 ? <p class="dim">It has no pods.</p> : (
        <LongList
          label="Pods" count={pods.length} estimate={30} id={(i) => pods[i]!.name}
          render={(i) => <div class="move"><a href={podHref(pods[i]!.name)}>{pods[i]!.name}</a><span class="dim">{pods[i]!.note}</span></div>}
        />
      )}
    </section>
  );
}

