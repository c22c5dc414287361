// Nodes of the fleet by name.

import type { Node, Summary } from './api.gen';
import { dollars } from './format';

// named is the node of a name, or of the name of its NodeClaim.
export function named(nodes: ReadonlyMap<string, Node> | null, name: string): Node | null {
  for (const n of nodes?.values() ?? []) if (n.name === name || n.nodeClaim === name) return n;
  return null;
}

// readsPrices reports whether prices are still being read: nothing is known to have none until they are.
export const readsPrices = (s: Summary | null) => !s?.cost.prices;

// priceOf is an hourly price in words, and why there is none.
export const priceOf = (v: number | null, reading: boolean) =>
  (v !== null ? `${dollars(v)}/h` : reading ? 'prices are being read' : 'not known: the catalog has no price for it');
