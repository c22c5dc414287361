// An API server for tests of the console: it lists and watches objects in memory, as kube-apiserver does, for as many nodes as wanted and
// with whatever names. It takes no writes; the test changes the objects.
import http from 'node:http';
import { once } from 'node:events';

// kinds are those that the console reads: group and version, plural, kind.
const kinds = [
  ['v1', 'nodes', 'Node'], ['v1', 'pods', 'Pod'], ['v1', 'events', 'Event'], ['v1', 'namespaces', 'Namespace'], ['v1', 'persistentvolumes', 'PersistentVolume'],
  ['v1', 'persistentvolumeclaims', 'PersistentVolumeClaim'], ['v1', 'services', 'Service'], ['v1', 'replicationcontrollers', 'ReplicationController'],
  ['apps/v1', 'daemonsets', 'DaemonSet'], ['apps/v1', 'replicasets', 'ReplicaSet'], ['apps/v1', 'statefulsets', 'StatefulSet'],
  ['policy/v1', 'poddisruptionbudgets', 'PodDisruptionBudget'], ['storage.k8s.io/v1', 'csinodes', 'CSINode'],
  ['storage.k8s.io/v1', 'storageclasses', 'StorageClass'], ['karpenter.sh/v1', 'nodepools', 'NodePool'],
  ['karpenter.sh/v1', 'nodeclaims', 'NodeClaim'], ['karpenter.k8s.aws/v1', 'ec2nodeclasses', 'EC2NodeClass'],
  ['resource.k8s.io/v1', 'resourceclaims', 'ResourceClaim'], ['resource.k8s.io/v1', 'resourceclaimtemplates', 'ResourceClaimTemplate'],
  ['resource.k8s.io/v1', 'deviceclasses', 'DeviceClass'], ['resource.k8s.io/v1', 'resourceslices', 'ResourceSlice'],
];
const namespaced = new Set(['pods', 'events', 'persistentvolumeclaims', 'services', 'replicationcontrollers', 'daemonsets', 'replicasets', 'statefulsets',
  'poddisruptionbudgets', 'resourceclaims', 'resourceclaimtemplates']);
const root = (groupVersion) => (groupVersion.includes('/') ? `/apis/${groupVersion}` : `/api/${groupVersion}`);
const keyOf = (o) => `${o.metadata.namespace ?? ''}/${o.metadata.name}`;

// status is an error as kube-apiserver answers one.
const status = (code, reason, message, details = {}) => JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason, message, details });

// selector is whether the text of an object has the values of a field selector, such as involvedObject.name=a.
function selector(text) {
  if (!text) return () => true;
  const fields = text.split(',').map((f) => f.split('='));
  return (object) => fields.every(([path, value]) => path.split('.').reduce((o, key) => o?.[key], JSON.parse(object)) === value);
}

export class ApiServer {
  #version = 1;
  #watches = new Set();
  // objects are the texts of the objects by plural and key.
  #objects = new Map(kinds.map(([, plural]) => [plural, new Map()]));
  // forbidden are plurals that nobody may read.
  forbidden = new Set();
  // silent are plurals for which requests are taken and not answered.
  silent = new Set();

  constructor(items = []) {
    for (const o of items) this.#store(o);
    this.server = http.createServer((request, response) => this.#answer(request, response));
  }

  #plural(o) {
    const found = kinds.find(([groupVersion, , kind]) => kind === o.kind && groupVersion === o.apiVersion);
    if (!found) throw new Error(`${o.apiVersion} ${o.kind} is not served`);
    return found[1];
  }

  #store(o) {
    const plural = this.#plural(o);
    o.metadata.resourceVersion = String(++this.#version);
    const text = JSON.stringify(o);
    this.#objects.get(plural).set(keyOf(o), text);
    return [plural, text];
  }

  #send(plural, type, text) {
    for (const w of this.#watches) if (w.plural === plural) w.response.write(`{"type":"${type}","object":${text}}\n`);
  }

  // put creates or replaces an object, remove deletes one.
  put(o) {
    const known = this.#objects.get(this.#plural(o)).has(keyOf(o));
    const [plural, text] = this.#store(o);
    this.#send(plural, known ? 'MODIFIED' : 'ADDED', text);
  }

  remove(o) {
    const plural = this.#plural(o);
    o.metadata.resourceVersion = String(++this.#version);
    if (this.#objects.get(plural).delete(keyOf(o))) this.#send(plural, 'DELETED', JSON.stringify(o));
  }

  async listen(port = 0) {
    this.server.listen(port, '127.0.0.1');
    await once(this.server, 'listening');
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  // close also ends what is under way, as a server that is killed does. It can listen again.
  async close() {
    if (!this.server.listening) return;
    const closed = once(this.server, 'close');
    this.server.close();
    this.server.closeAllConnections();
    await closed;
  }

  #answer(request, response) {
    const url = new URL(request.url, 'http://api');
    const fail = (code, reason, message, details) => response.writeHead(code, { 'content-type': 'application/json' }).end(status(code, reason, message, details));
    const json = (o) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(o));
    const groups = [...new Set(kinds.map(([groupVersion]) => groupVersion))];
    if (url.pathname === '/api') return json({ kind: 'APIVersions', versions: ['v1'] });
    if (url.pathname === '/apis') {
      return json({ kind: 'APIGroupList', apiVersion: 'v1', groups: groups.filter((g) => g.includes('/')).map((g) => {
        const version = { groupVersion: g, version: g.split('/')[1] };
        return { name: g.split('/')[0], versions: [version], preferredVersion: version };
      }) });
    }
    for (const groupVersion of groups) {
      if (url.pathname !== root(groupVersion)) continue;
      return json({ kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources: kinds.filter(([g]) => g === groupVersion).map(([, name, kind]) => ({
        name, kind, namespaced: namespaced.has(name), singularName: kind.toLowerCase(), verbs: ['get', 'list', 'watch'],
      })) });
    }
    const found = kinds.find(([groupVersion, plural]) => url.pathname === `${root(groupVersion)}/${plural}`);
    if (!found) return fail(404, 'NotFound', `the server could not find ${url.pathname}`);
    const [groupVersion, plural, kind] = found;
    if (this.silent.has(plural)) return;
    if (this.forbidden.has(plural)) {
      const group = groupVersion.includes('/') ? groupVersion.split('/')[0] : '';
      return fail(403, 'Forbidden', `${plural} is forbidden: User "nobody" cannot list resource "${plural}"`, { kind: plural, group });
    }
    if (url.searchParams.get('watch')) this.#watch(url, plural, response, { groupVersion, kind });
    else this.#list(url, plural, response, { groupVersion, kind });
  }

  // #list answers in pages of the limit. The continue token is where the page starts; objects that come or go meanwhile shift it, which no
  // test depends on.
  #list(url, plural, response, { groupVersion, kind }) {
    const limit = Number(url.searchParams.get('limit')) || Infinity;
    const from = Number(url.searchParams.get('continue')) || 0;
    const all = [...this.#objects.get(plural).values()].filter(selector(url.searchParams.get('fieldSelector')));
    const next = from + limit < all.length ? String(from + limit) : '';
    const metadata = JSON.stringify({ resourceVersion: String(this.#version), continue: next });
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(`{"kind":"${kind}List","apiVersion":"${groupVersion}","metadata":${metadata},"items":[${all.slice(from, from + limit).join(',')}]}`);
  }

  // #watch sends all objects first if the client wants them, and then what changes.
  #watch(url, plural, response, { groupVersion, kind }) {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    if (url.searchParams.get('sendInitialEvents') === 'true') {
      for (const text of this.#objects.get(plural).values()) response.write(`{"type":"ADDED","object":${text}}\n`);
      const metadata = { resourceVersion: String(this.#version), annotations: { 'k8s.io/initial-events-end': 'true' } };
      response.write(`${JSON.stringify({ type: 'BOOKMARK', object: { apiVersion: groupVersion, kind, metadata } })}\n`);
    }
    const watch = { plural, response };
    this.#watches.add(watch);
    response.on('close', () => this.#watches.delete(watch));
    response.on('error', () => this.#watches.delete(watch));
  }
}

// kubeconfig is one for a server without a login.
export const kubeconfig = (url) => JSON.stringify({
  apiVersion: 'v1', kind: 'Config', 'current-context': 'test', clusters: [{ name: 'shop', cluster: { server: url } }],
  contexts: [{ name: 'test', context: { cluster: 'shop', user: 'test' } }], users: [{ name: 'test', user: {} }],
});
