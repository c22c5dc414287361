// An EC2NodeClass: what its selectors found, and the way to it in the console of EC2.

import type { NodeClassReport, Resource } from './api.gen';
import { useAnswer } from './answer';
import { list, plural, sentence } from './format';
import { Code, Loaded } from './parts';
import { href, poolHref } from './route';

const refresh = 60_000;

// regionOf is the region of a zone, such as us-west-2 of us-west-2-lax-1a; empty for a text that is no zone.
export const regionOf = (zone: string) => /^[a-z]{2}(?:-[a-z]+)+-\d+/.exec(zone)?.[0] ?? '';

// hosts are those of the console in partitions of their own.
const hosts: [prefix: string, host: string][] = [['cn-', 'console.amazonaws.cn'], ['us-gov-', 'console.amazonaws-us-gov.com']];

// ec2 is the address of a resource in the console of EC2; empty unless the ID and the region are such: both come from the cluster.
export function ec2(view: string, id: string, region: string): string {
  if (!region || regionOf(region) !== region || !/^[a-z]+-[0-9a-f]+$/.test(id)) return '';
  const host = hosts.find(([prefix]) => region.startsWith(prefix))?.[1] ?? `${region}.console.aws.amazon.com`;
  return `https://${host}/${/^(Subnet|sub)/.test(view) ? 'vpcconsole' : 'ec2'}/home?region=${region}#${view}${id}`;
}

export function NodeClassPage({ name }: { name: string }) {
  const answer = useAnswer<NodeClassReport>(`/nodeclasses/${encodeURIComponent(name)}`, { every: refresh });
  return (
    <div class="page">
      <p class="crumbs"><a href={href(['nodepools'])}>NodePools</a></p>
      <h1>EC2NodeClass {name}</h1>
      <Loaded answer={answer} loading="Reading the node class">{(c) => <Report of={c} />}</Loaded>
    </div>
  );
}

function Report({ of: c }: { of: NodeClassReport }) {
  const region = regionOf(list(c.subnets)[0]?.note ?? '');
  const pools = list(c.nodePools);
  const images = list(c.images);
  return (
    <>
      <p class="lead">
        {c.resolved ? `Its selectors found ${plural(images.length, 'image')}, ${plural(list(c.subnets).length, 'subnet')} and ${plural(list(c.securityGroups).length, 'security group')}. `
          : 'What its selectors find is not in its status: it has not been reconciled, or was read from a manifest. '}
        {pools.length === 0 ? 'No NodePool refers to it.' : <>NodePools: {pools.map((p, i) => <>{i > 0 && ', '}<a href={poolHref(p)}>{p}</a></>)}.</>}
      </p>
      {list(c.faults).map((f) => <p class="bad-text"><b>{f.type} is {f.status}:</b> {f.message ? sentence(f.message) : 'no reason is given'}</p>)}
      <div class="report">
        {images.length > 0 && (
          <section>
            <h2 class="sub">Images <span class="faint">the newest first</span></h2>
            <ul class="plain">
              {images.map((i) => (
                <li><Id of={{ id: i.id, note: i.name }} view="ImageDetails:imageId=" region={region} />{i.deprecated && <span class="warn"> deprecated</span>}<div class="faint">{i.for}</div></li>
              ))}
            </ul>
          </section>
        )}
        <Found title="Subnets" of={list(c.subnets)} view="SubnetDetails:subnetId=" region={region} />
        <Found title="Security groups" of={list(c.securityGroups)} view="SecurityGroup:groupId=" region={region} />
        <Found title="Capacity reservations" of={list(c.reservations)} view="CapacityReservationDetails:crId=" region={region} />
        {c.instanceProfile && <section><h2 class="sub">Instance profile</h2><p class="mono">{c.instanceProfile}</p></section>}
        <section><h2 class="sub">Manifest</h2><Code text={c.manifest} label="Copy the manifest" /></section>
        <section><h2 class="sub">In a terminal</h2><Code text={`kubectl describe ec2nodeclass ${c.name}`} /></section>
      </div>
    </>
  );
}

export function Found({ title, of, view, region }: { title: string; of: Resource[]; view: string; region: string }) {
  if (of.length === 0) return null;
  return (
    <section>
      <h2 class="sub">{title} <span class="faint">{of.length}</span></h2>
      <ul class="plain">{of.map((r) => <li><Id of={r} view={view} region={region} /></li>)}</ul>
    </section>
  );
}

// Id is an ID that leads to the console of EC2 in another tab, as far as the region is known.
export function Id({ of: r, view, region }: { of: Resource; view: string; region: string }) {
  const to = ec2(view, r.id, region);
  return <>{to ? <a class="mono" href={to} target="_blank" rel="noreferrer" aria-label={`${r.id} in the EC2 console`}>{r.id}</a> : <span class="mono">{r.id}</span>} <bdi class="dim">{r.note}</bdi></>;
}
