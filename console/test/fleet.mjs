// Generates the snapshot of a cluster, as `dovetail snapshot` prints one: equal arguments make equal text.

const types = {
  'm7g.xlarge': [4, 16], 'm7g.2xlarge': [8, 32], 'm7g.4xlarge': [16, 64], 'c7g.xlarge': [4, 8], 'c7g.2xlarge': [8, 16], 'c7g.4xlarge': [16, 32],
  'c7g.8xlarge': [32, 64], 'r7g.2xlarge': [8, 64], 'r7g.4xlarge': [16, 128], 'm7g.large': [2, 8], 'm7g.12xlarge': [48, 192],
};

const pools = [
  { name: 'general', share: 0.43, sizes: ['m7g.xlarge', 'm7g.2xlarge', 'm7g.4xlarge', 'c7g.2xlarge', 'c7g.8xlarge'], spot: 0.55 },
  { name: 'batch', share: 0.25, sizes: ['c7g.2xlarge', 'c7g.4xlarge', 'c7g.8xlarge', 'm7g.12xlarge'], spot: 1 },
  { name: 'data', share: 0.15, sizes: ['r7g.2xlarge', 'r7g.4xlarge'], spot: 0 },
  { name: 'ci', share: 0.11, sizes: ['c7g.xlarge', 'c7g.2xlarge'], spot: 0.95 },
  { name: 'system', share: 0.06, sizes: ['m7g.large', 'm7g.xlarge'], spot: 0 },
];

const workloads = {
  general: ['shop/checkout', 'shop/cart', 'search/api', 'search/suggest', 'payments/ledger', 'web/frontend', 'notify/sender'],
  batch: ['etl/orders', 'etl/clickstream', 'ml/features', 'report/render'], data: ['kafka/broker', 'redis/cache', 'opensearch/data'],
  ci: ['ci/runner', 'ci/runner-large'], system: ['kube-system/coredns', 'kube-system/metrics-server', 'ingress/nginx'],
};

const daemons = ['kube-system/aws-node', 'kube-system/kube-proxy', 'observe/agent'];

// random is mulberry32.
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const now = '2026-11-19T14:32:08Z';
const before = (hours) => new Date(Date.parse(now) - hours * 3.6e6).toISOString().replace(/\.\d+Z/, 'Z');

const condition = (type, status = 'True', reason = type, message = '') => ({ type, status, reason, message, lastTransitionTime: before(1) });

function pool({ name }) {
  return {
    apiVersion: 'karpenter.sh/v1', kind: 'NodePool',
    metadata: { name, uid: `pool-${name}`, creationTimestamp: before(400) },
    spec: {
      template: { spec: {
        nodeClassRef: { group: 'karpenter.k8s.aws', kind: 'EC2NodeClass', name: 'default' }, expireAfter: '720h',
        requirements: [
          { key: 'karpenter.sh/capacity-type', operator: 'In', values: ['spot', 'on-demand'] },
          { key: 'kubernetes.io/arch', operator: 'In', values: ['arm64'] },
          { key: 'karpenter.k8s.aws/instance-category', operator: 'In', values: ['c', 'm', 'r'] },
        ],
      } },
      limits: { cpu: '20000' },
      disruption: { consolidationPolicy: 'WhenEmptyOrUnderutilized', consolidateAfter: '1m', budgets: [
        { nodes: '10%' }, { nodes: '0', reasons: ['Drifted'], schedule: '0 8 * * mon-fri', duration: '10h' },
      ] },
    },
    status: { conditions: [condition('Ready'), condition('ValidationSucceeded'), condition('NodeClassReady')] },
  };
}

const nodeClass = {
  apiVersion: 'karpenter.k8s.aws/v1', kind: 'EC2NodeClass', metadata: { name: 'default', uid: 'class', creationTimestamp: before(400) },
  spec: {
    amiSelectorTerms: [{ alias: 'al2023@latest' }], role: 'node', subnetSelectorTerms: [{ tags: { 'karpenter.sh/discovery': 'shop' } }],
    securityGroupSelectorTerms: [{ tags: { 'karpenter.sh/discovery': 'shop' } }],
  },
  status: { conditions: [condition('Ready')] },
};

// snapshot is a cluster with so many nodes.
export function snapshot(nodes, seed = 7) {
  const draw = random(seed);
  const pick = (list) => list[Math.floor(draw() * list.length)];
  const items = [nodeClass, ...pools.map(pool)];
  // suffix is different each time: a number of five digits of base 36, shuffled by a factor without a common divisor.
  let count = 0;
  const suffix = () => ((++count * 23_456_789) % 36 ** 5).toString(36).padStart(5, '0');
  let serial = 0;
  let address = 0;
  const pod = (workload, node, { cpu, memory, owner = 'ReplicaSet', created = 20, extra = {} }) => {
    const [namespace, name] = workload.split('/');
    const hash = '7c9f6d5b4';
    serial++;
    items.push({
      apiVersion: 'v1', kind: 'Pod',
      metadata: {
        namespace, name: owner === 'DaemonSet' ? `${name}-${suffix()}` : `${name}-${hash}-${suffix()}`, uid: `pod-${serial}`,
        creationTimestamp: before(created), labels: { app: name, ...(owner === 'ReplicaSet' && { 'pod-template-hash': hash }) },
        ownerReferences: [{
          apiVersion: 'apps/v1', kind: owner, name: owner === 'ReplicaSet' ? `${name}-${hash}` : name, uid: `${owner}-${workload}`, controller: true,
        }],
        ...extra.metadata,
      },
      spec: {
        ...(node && { nodeName: node }), schedulerName: 'default-scheduler',
        containers: [{ name: 'app', image: 'example.com/app', resources: { requests: { cpu: `${cpu}m`, memory: `${memory}Mi` } } }],
        ...extra.spec,
      },
      status: node ? { phase: 'Running', conditions: [condition('Ready'), condition('PodScheduled')] } : {
        phase: 'Pending', conditions: [condition('PodScheduled', 'False', 'Unschedulable', '0/300 nodes are available')],
      },
    });
  };
  for (const [p, pl] of pools.entries()) {
    const many = p === pools.length - 1 ? nodes - items.filter((i) => i.kind === 'NodeClaim').length : Math.round(nodes * pl.share);
    for (let i = 0; i < many; i++) node(pl);
  }
  function node(pl) {
    const type = pl.sizes[Math.floor(((draw() + draw()) / 2) * pl.sizes.length)];
    const [vcpu, gib] = types[type];
    const zone = `us-east-1${pick(['a', 'b', 'c'])}`;
    const capacity = draw() < pl.spot ? 'spot' : 'on-demand';
    address += 1 + Math.floor(draw() * 12);
    const name = `ip-10-${40 + (address >> 16)}-${(address >> 8) & 255}-${address & 255}.ec2.internal`;
    const claim = `${pl.name}-${suffix()}`;
    const state = draw();
    const age = Math.round(1 + draw() ** 2.3 * 400);
    const id = `aws:///${zone}/i-${suffix()}${suffix()}`;
    const labels = {
      'karpenter.sh/nodepool': pl.name, 'node.kubernetes.io/instance-type': type, 'topology.kubernetes.io/zone': zone,
      'karpenter.sh/capacity-type': capacity, 'kubernetes.io/arch': 'arm64', 'kubernetes.io/os': 'linux', 'kubernetes.io/hostname': name,
      'karpenter.k8s.aws/ec2nodeclass': 'default', 'karpenter.k8s.aws/instance-category': type[0],
    };
    const resources = {
      capacity: { cpu: String(vcpu), memory: `${gib}Gi`, pods: '110' },
      allocatable: { cpu: `${vcpu * 1000 - 80}m`, memory: `${Math.round(gib * 1024 * 0.93)}Mi`, pods: '110' },
    };
    const inFlight = state < 0.015;
    const drifted = state > 0.95;
    items.push({
      apiVersion: 'karpenter.sh/v1', kind: 'NodeClaim',
      metadata: {
        name: claim, uid: `claim-${claim}`, creationTimestamp: before(inFlight ? 0.01 : age), labels, finalizers: ['karpenter.sh/termination'],
        ...(state > 0.015 && state < 0.025 && { deletionTimestamp: now, deletionGracePeriodSeconds: 0 }),
      },
      spec: {
        requirements: [{ key: 'karpenter.sh/nodepool', operator: 'In', values: [pl.name] }], expireAfter: '720h',
        nodeClassRef: { group: 'karpenter.k8s.aws', kind: 'EC2NodeClass', name: 'default' },
      },
      status: {
        providerID: id, ...(inFlight ? {} : { nodeName: name, lastPodEventTime: before(Math.min(age, 0.5)) }), ...resources,
        conditions: [condition('Launched'), ...(inFlight ? [condition('Registered', 'Unknown', 'NodeNotFound', 'Node not registered with cluster')]
          : [condition('Registered'), condition('Initialized'), condition('Ready'), condition('Consolidatable')]),
          ...(drifted ? [condition('Drifted', 'True', 'AMIDrift')] : [])],
      },
    });
    if (inFlight) return;
    items.push({
      apiVersion: 'v1', kind: 'Node',
      metadata: {
        name, uid: `node-${name}`, creationTimestamp: before(age),
        labels: { ...labels, 'karpenter.sh/registered': 'true', 'karpenter.sh/initialized': 'true' },
        annotations: state > 0.025 && state < 0.04 ? { 'karpenter.sh/do-not-disrupt': 'true' } : {},
      },
      spec: { providerID: id, unschedulable: state > 0.04 && state < 0.045 },
      status: { ...resources, conditions: [condition('Ready', state > 0.045 && state < 0.049 ? 'False' : 'True', 'KubeletReady', 'kubelet is posting ready status')] },
    });
    for (const d of daemons) pod(d, name, { cpu: 50 + Math.floor(draw() * 60), memory: 64, owner: 'DaemonSet' });
    let left = (vcpu * 1000 - 300) * (draw() < 0.12 ? 0.2 + 0.3 * draw() : 0.75 + 0.25 * draw());
    let memory = gib * 1024 * 0.85;
    while (left > 150 && memory > 200) {
      const cpu = Math.min(left, Math.round(100 + draw() ** 2 * Math.min(2600, vcpu * 220)));
      const mib = Math.min(memory, Math.round(cpu * (0.7 + draw() * (gib / vcpu))));
      pod(pick(workloads[pl.name]), name, { cpu: Math.round(cpu), memory: Math.round(mib), created: age * draw() });
      left -= cpu;
      memory -= mib;
    }
  }
  const scheduling = (nodeSelector) => ({ spec: { nodeSelector } });
  for (let i = 0; i < 3; i++) pod('search/indexer', '', { cpu: 3000, memory: 4096, created: 0.3, extra: scheduling({ 'topology.kubernetes.io/zone': 'us-east1a' }) });
  pod('ml/trainer', '', { cpu: 900_000, memory: 4096, created: 1.2 });
  for (let i = 0; i < 5; i++) pod('shop/checkout', '', { cpu: 1500, memory: 2048, created: 0.01 });
  return JSON.stringify({ apiVersion: 'v1', kind: 'List', items });
}

// live are the objects of a cluster with so many nodes as they would be now: what was a minute ago in the snapshot is a minute ago.
export function live(nodes, seed) {
  const later = Date.now() - Date.parse(now);
  const moved = (time) => new Date(Date.parse(time) + later).toISOString().replace(/\.\d+Z/, 'Z');
  return JSON.parse(snapshot(nodes, seed).replace(/\d{4}-\d\d-\d\dT[\d:]+Z/g, moved)).items;
}
