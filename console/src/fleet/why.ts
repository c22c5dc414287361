// Why nothing is planned, and why there is no lower bound, in words.

import type { Assessment, Summary } from '../api.gen';
import { clause, count, differs, dollars, list, plural } from '../format';

// whyNothing are the sentences beside "Nothing is planned": none if the nodes cost as little as they can.
export function whyNothing(summary: Summary, assessment: Assessment | null): string[] {
  const { hourlyCost: now, lowerBound } = summary.cost;
  if (lowerBound === null || now <= lowerBound || !differs(now, lowerBound)) return [];
  const out: string[] = [];
  const kept = list(summary.kept);
  const stay = kept.reduce((sum, k) => sum + k.nodes, 0);
  if (kept[0]) {
    const who = kept[0].nodes < stay ? `${count(kept[0].nodes)} of ${count(stay)} nodes stay` : stay === 1 ? 'The node stays' : `All ${count(stay)} nodes stay`;
    out.push(`${who} for one reason: ${clause(kept[0].why)}.`);
  }
  out.push(`The nodes cost ${dollars(now - lowerBound)}/h more than the lower bound.`);
  const fresh = list(assessment?.outcomes).find((o) => o.name === 'repacked');
  if (fresh) {
    const less = fresh.hourlySavings > 0 && differs(fresh.hourlySavings, 0) ? `${dollars(fresh.hourlySavings)}/h less, with ${plural(fresh.nodes, 'node')}` : 'no less';
    out.push(`To launch all anew would cost ${dollars(fresh.hourlyCost)}/h, ${less}.`);
  }
  return out;
}

// noBound is why there is no lower bound: no pods cost nothing.
export const noBound = (s: Summary, noPods: boolean) =>
  (noPods ? 'not known' : s.pods === 0 ? 'no pods' : s.planned ? 'not known' : 'not known yet');
