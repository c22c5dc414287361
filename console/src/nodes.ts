// Nodes of the fleet by name.

import type { Node } from './api.gen';

// named is the node of a name, or of the name of its NodeClaim.
export function named(nodes: ReadonlyMap<string, Node> | null, name: string): Node | null {
  for (const n of nodes?.values() ?? []) if (n.name === name || n.nodeClaim === name) return n;
  return null;
}
