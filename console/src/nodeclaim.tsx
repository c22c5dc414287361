// A NodeClaim: its instance and what that is made of, its conditions, and what became of it.

import type { NodeClaimReport, ObjectEvent } from './api.gen';
import { useAnswer } from './answer';
import { clock, list, plural, sentence, since } from './format';
import { named, priceOf } from './nodes';
import { useLive } from './live';
import { Found, Id, regionOf } from './nodeclass';
import { DriftFields } from './node';
import { Code, Facts, Loaded, useNow } from './parts';
import { PageTime, asOf } from './past';
import { href, nodeHref, poolHref } from './route';
import { Glyph, stateOf } from './states';

const refresh = 30_000;

// NodeClaimPage is of a recorded time, or of now if that is empty.
export function NodeClaimPage({ name, at }: { name: string; at: string }) {
  const live = useLive((l) => named(l.nodes, name));
  const node = at ? null : live;
  const answer = useAnswer<NodeClaimReport>(`/nodeclaims/${encodeURIComponent(name)}${asOf(at)}`, {
    every: at ? 0 : refresh, trigger: node && `${node.state} ${node.name}`,
  });
  return (
    <div class="page">
      <p class="crumbs"><a href={at ? href(['timeline'], { t: at }) : href(['fleet'])}>{at ? 'Timeline' : 'Fleet'}</a></p>
      <h1 class="with-glyph">{node && <Glyph state={node.state} size={14} />}NodeClaim {name}</h1>
      <PageTime at={at} />
      <Loaded answer={answer} loading="Reading the NodeClaim">{(c) => <Report of={c} at={at} state={node ? `${stateOf(node.state).label}${node.why ? `: ${node.why}` : ''}` : ''} />}</Loaded>
    </div>
  );
}

function Report({ of: c, at, state }: { of: NodeClaimReport; at: string; state: string }) {
  const clockNow = useNow(5000);
  const now = at ? Date.parse(at) : clockNow;
  const region = regionOf(c.zone);
  const subnets = list(c.subnets);
  const groups = list(c.securityGroups);
  const faults = list(c.conditions).filter((x) => x.status === 'False');
  return (
    <>
      <p class="lead">
        {c.instance ? `Its instance is a ${c.instanceType || 'machine of unknown type'}${c.capacityType && ` (${c.capacityType})`}${c.zone && ` in ${c.zone}`}.` : 'It has no instance yet.'}
        {c.deleted && ' It is being deleted.'}
      </p>
      {faults.map((f) => <p class="bad-text"><b>{f.type} is False:</b> {f.message ? sentence(f.message) : f.reason || 'no reason is given'}</p>)}
      <div class="report">
        <section>
          <Facts items={[
            ['State', state],
            ['Instance', c.instance && <Id of={{ id: c.instance, note: '' }} view="InstanceDetails:instanceId=" region={region} />],
            ['Node', c.node ? <a href={nodeHref(c.node)}>{c.node}</a> : 'none has registered'],
            ['NodePool', c.nodePool && <a href={poolHref(c.nodePool)}>{c.nodePool}</a>],
            ['EC2NodeClass', c.nodeClass && <a href={href(['nodeclasses', c.nodeClass])}>{c.nodeClass}</a>],
            ['Instance type', c.instanceType], ['Capacity type', c.capacityType], ['Zone', c.zone],
            ['Price', priceOf(c.hourlyCost, false)],
            ['Image', c.image.id && <Id of={c.image} view="ImageDetails:imageId=" region={region} />],
            ['Age', since(c.created, now)],
          ]} />
        </section>
        {c.drift && (
          <section>
            <h2 class="sub">Drift <span class="faint">{c.drift.reason}</span></h2>
            <DriftFields fields={list(c.drift.fields)} />
          </section>
        )}
        <section>
          <h2 class="sub">Conditions <span class="faint">{list(c.conditions).length}</span></h2>
          {list(c.conditions).length === 0 ? <p class="dim">It has none yet.</p> : (
            <div class="scroll" tabIndex={0} role="region" aria-label="Conditions">
              <table>
                <thead><tr><th>Type</th><th>Status</th><th>Since</th><th>Why</th></tr></thead>
                <tbody>
                  {list(c.conditions).map((x) => (
                    <tr>
                      <th scope="row">{x.type}</th><td class={x.status === 'False' ? 'bad' : ''}>{x.status}</td>
                      <td class="whole">{since(x.since, now)}</td><td>{x.message || (x.reason !== x.type && x.reason)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </section>
        <Events of={c} now={now} />
        <Found title={subnets.length === 1 ? 'Subnet' : `Subnets in ${c.zone || 'its zone'}, one of which it is in`} of={subnets} view="SubnetDetails:subnetId=" region={region} />
        <Found title={`Security groups of EC2NodeClass ${c.nodeClass}`} of={groups} view="SecurityGroup:groupId=" region={region} />
        <section><h2 class="sub">YAML</h2><Code text={c.manifest} label="Copy the YAML" /></section>
        <section><h2 class="sub">In a terminal</h2><Code text={`dovetail explain nodeclaim ${c.name}`} /></section>
      </div>
    </>
  );
}

const idOf = (e: ObjectEvent) => `${e.at} ${e.objectKind} ${e.reason} ${e.message}`;

function Events({ of: c, now }: { of: NodeClaimReport; now: number }) {
  const events = list(c.events);
  return (
    <section>
      <h2 class="sub">Events <span class="faint">{events.length > 0 && plural(events.length, 'event')}</span></h2>
      {c.noEvents && <p class="dim">{sentence(c.noEvents)}.</p>}
      {c.eventsRule && <Code text={c.eventsRule} label="Copy the rule" />}
      {!c.noEvents && events.length === 0 && <p class="dim">The API server has none: it keeps those of the last hour.</p>}
      {events.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Events">
          <table>
            <thead><tr><th>Last seen</th><th>Of</th><th>Reason</th><th>Message</th></tr></thead>
            <tbody>
              {events.map((e) => (
                <tr key={idOf(e)}>
                  <td class="whole" title={`${clock(e.at, now)} UTC`}>{since(e.at, now)} ago{e.count > 1 && <span class="faint"> ×{e.count}</span>}</td>
                  <td>{e.objectKind}</td><td class={e.warning ? 'warn' : ''}>{e.reason}</td><td>{e.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
