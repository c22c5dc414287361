// What the colors of the map mean. The legend shows the same bins.

import type { Node } from '../api.gen';
import { stateOf, states } from '../states';
import { requested, share } from './layout';

export type Coloring = 'state' | 'use' | 'pool' | 'capacity' | 'age';

export const colorings: { name: Coloring; label: string }[] = [
  { name: 'state', label: 'State' }, { name: 'use', label: 'Utilization' }, { name: 'pool', label: 'NodePool' },
  { name: 'capacity', label: 'Capacity type' }, { name: 'age', label: 'Age' },
];

// Bin is a class of nodes that share a color. State is set if a glyph shows it.
export interface Bin { key: string; label: string; token: string; state?: string; title?: string }

const useLabels = ['0 to 17 %', '17 to 33 %', '33 to 50 %', '50 to 67 %', '67 to 83 %', '83 to 100 %'];
const ages: [hours: number, label: string][] = [
  [1, 'under 1 h'], [6, '1 to 6 h'], [24, '6 to 24 h'], [72, '1 to 3 d'], [240, '3 to 10 d'], [Infinity, 'over 10 d'],
];
const capacities = ['reserved', 'on-demand', 'spot'];

const step = (v: number, bins: number) => Math.min(bins - 1, Math.max(0, Math.floor(v * bins)));

// ramp is the gray of a steady node, by requested share.
export const ramp = (n: Node) => ramps[step((requested(n) - 0.3) / 0.7, 5)]!;

const ramps = [1, 2, 3, 4, 5].map((i) => `--ramp${i}`);

// binKey is the bin of a node.
export function binKey(n: Node, by: Coloring, now: number): string {
  switch (by) {
    case 'state': return stateOf(n.state).name;
    case 'use': return String(step(requested(n), 6));
    case 'pool': return n.nodePool;
    case 'capacity': return capacities.includes(n.capacityType) ? n.capacityType : 'unknown';
    case 'age': return String(ages.findIndex(([hours]) => now - Date.parse(n.created) < hours * 3.6e6));
  }
}

// bins are the classes of a coloring. Pools have eight hues, which then repeat.
export function bins(by: Coloring, pools: string[]): Bin[] {
  switch (by) {
    case 'state': return states.map((s) => ({ key: s.name, label: s.label, token: s.token, state: s.name, title: s.meaning }));
    case 'use': return useLabels.map((label, i) => ({ key: String(i), label, token: `--use${i + 1}` }));
    case 'pool': return pools.map((p, i) => ({ key: p, label: p || 'without NodePool', token: p ? `--p${1 + (i % 8)}` : '--c-unknown' }));
    case 'capacity': return [...capacities, 'unknown'].map((c) => ({
      key: c, label: c === 'unknown' ? 'not known' : c, token: `--c-${c}`,
    }));
    case 'age': return ages.map(([, label], i) => ({ key: String(i), label, token: `--age${i + 1}` }));
  }
}

// poolsOf are the NodePools of the nodes, sorted, with "" last for nodes without one.
export function poolsOf(nodes: Iterable<Node>): string[] {
  return [...new Set([...nodes].map((n) => n.nodePool))].sort((a, b) => (a === '' ? 1 : b === '' ? -1 : a < b ? -1 : 1));
}

// tokenOf is the color of a node's fill.
export function tokenOf(n: Node, by: Coloring, looks: Map<string, Bin>, now: number): string {
  if (by === 'state') {
    const look = stateOf(n.state);
    return look.name === 'steady' || look.waits ? ramp(n) : look.token;
  }
  return looks.get(binKey(n, by, now))?.token ?? '--c-unknown';
}

// dominant is the larger share of the node that a pod requests.
export const dominant = (n: Node, cpu: number, memory: number) => Math.max(
  share(cpu, n.cpuMillicores.allocatable), share(memory, n.memoryBytes.allocatable),
);
