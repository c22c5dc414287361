// The fleet in numbers, in one pass over the nodes: a large fleet is counted anew with each change.

import type { Node } from '../api.gen';
import { type Coloring, binKey } from './colors';

export interface Tally {
  nodes: number;
  inFlight: number;
  notReady: number;
  // cost is $/h by capacity type.
  cost: Map<string, number>;
  // bins are how many nodes each bin of the coloring has.
  bins: Map<string, number>;
}

export function tally(nodes: Iterable<Node>, by: Coloring, now: number): Tally {
  const out: Tally = { nodes: 0, inFlight: 0, notReady: 0, cost: new Map(), bins: new Map() };
  const add = (to: Map<string, number>, key: string, n: number) => to.set(key, (to.get(key) ?? 0) + n);
  for (const n of nodes) {
    out.nodes++;
    if (n.state === 'in flight') out.inFlight++;
    else if (n.state === 'not ready') out.notReady++;
    add(out.cost, n.capacityType, n.hourlyCost ?? 0);
    add(out.bins, binKey(n, by, now), 1);
  }
  return out;
}
