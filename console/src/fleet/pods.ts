// The pods of the boxes that are large enough to show them, fetched when they come into view and again when they change.

import type { Node, NodePods, Pod } from '../api.gen';
import { get } from '../answer';
import { list } from '../format';

// batch is how many nodes one request asks for.
const batch = 200;
// pause collects the boxes that come into view together, in ms; failed is how long the next attempt waits.
const pause = 40;
const failed = 3_000;

export class PodCache {
  private known = new Map<string, { hash: string; pods: Pod[] }>();
  private wanted = new Map<string, string>();
  private timer = 0;
  private busy = false;

  // changed is called with the IDs of nodes that have other pods to draw.
  constructor(private changed: (ids: string[]) => void) {}

  // of returns the pods of a node, and fetches them if it does not have them as they are now. Old ones are better than none.
  of(n: Node): Pod[] | null {
    const found = this.known.get(n.id);
    if (found?.hash !== n.podsHash && n.pods > 0) {
      this.wanted.set(n.id, n.podsHash);
      this.schedule(pause);
    }
    return n.pods > 0 ? found?.pods ?? null : [];
  }

  private schedule(wait: number) {
    if (!this.timer && !this.busy) this.timer = setTimeout(() => void this.fetch(), wait);
  }

  private async fetch() {
    this.timer = 0;
    this.busy = true;
    const asked = [...this.wanted].slice(0, batch);
    this.wanted.clear();
    let wait = pause;
    try {
      const found = await get<NodePods>(`/pods?node=${asked.map(([id]) => id).join(',')}`);
      for (const [id, hash] of asked) this.known.set(id, { hash, pods: list(found.nodes[id]) });
    } catch {
      wait = failed;
    }
    this.busy = false;
    if (wait === pause) this.changed(asked.map(([id]) => id));
    else this.schedule(wait);
  }

  // keep forgets nodes that are gone.
  keep(nodes: ReadonlyMap<string, Node>) {
    for (const id of this.known.keys()) if (!nodes.has(id)) this.known.delete(id);
  }
}
