// The fleet in numbers.

import type { Summary } from '../api.gen';
import { count, differs, dollars, list, percent, plural, span } from '../format';
import { useNow } from '../parts';
import { href } from '../route';
import { readsPrices } from '../nodes';
import type { Tally } from './tally';
import { noBound } from './why';

// SummaryStrip has no numbers of pods that may not be read.
export function SummaryStrip({ tally, summary, noPods }: { tally: Tally; summary: Summary; noPods: boolean }) {
  const { nodes, inFlight, notReady } = tally;
  return (
    <section class="summary" aria-label="Summary">
      <div>
        <div class="key">Nodes</div>
        <div class="value">{count(nodes)}</div>
        <div class="note">{inFlight} in flight, {notReady} NotReady</div>
      </div>
      <div>
        <div class="key">Pods</div>
        <div class="value">{noPods ? '?' : count(summary.pods)}</div>
        <div class="note">{noPods ? 'no permission' : nodes ? `${(summary.pods / nodes).toFixed(1)} per node` : 'no nodes'}</div>
      </div>
      <div>
        <div class="key"><a href={href(['pending'])}>Pending</a></div>
        <div class="value">{noPods ? '?' : count(summary.pending)}</div>
        <div class="note">{noPods ? 'no permission' : summary.pending === 0 ? 'every pod has a node' : summary.planned ? outlook(summary) : 'not planned yet'}</div>
      </div>
      <Spend summary={summary} nodes={nodes} noPods={noPods} />
      <Split cost={tally.cost} reading={readsPrices(summary) && nodes > 0} />
    </section>
  );
}

// outlook is what becomes of the pending pods: what needs somebody comes first.
const outlook = (s: Summary) => {
  if (s.stuck > 0) return `${count(s.stuck)} ${s.stuck === 1 ? 'needs' : 'need'} a change`;
  return s.waiting > 0 ? `${count(s.waiting)} ${s.waiting === 1 ? 'waits' : 'wait'} for kube-scheduler` : `${s.pending === 1 ? 'it gets' : 'all get'} a node`;
};

function Spend({ summary, nodes, noPods }: { summary: Summary; nodes: number; noPods: boolean }) {
  const { hourlyCost: now, plannedHourlyCost: after, lowerBound, unpriced } = summary.cost;
  const reading = readsPrices(summary) && nodes > 0;
  const unknown = reading || (unpriced > 0 && unpriced >= nodes);
  const missing = <small>{reading ? 'reading prices' : 'not known'}</small>;
  const changes = list(summary.changes);
  const age = useNow(5000);
  const largest = Math.max(now, after ?? 0) || 1;
  const at = (v: number) => `${(100 * v) / largest}%`;
  const ago = summary.planned ? age - Date.parse(summary.planned) : 0;
  const planned = !summary.planned ? 'not planned yet' : ago > 0 ? `planned ${span(ago)} ago` : 'planned now';
  return (
    <div class="wide">
      <div class="costs">
        <div><div class="key">Now</div><div class="value">{unknown ? missing : <>{dollars(now)}<small>/h</small></>}</div></div>
        <div>
          <div class="key"><i class="swatch planned" />{changes.length ? `After ${plural(changes.length, 'change')}` : 'After changes'}</div>
          <div class="value">
            {unknown ? missing : after === null ? <small>not known yet</small> : <>{dollars(after)}<small>/h</small></>}
            {!unknown && after !== null && differs(after, now) && (
              <small class={after < now ? 'ok' : 'dim'}> {after < now ? '−' : '+'}{dollars(Math.abs(after - now))}</small>
            )}
          </div>
        </div>
        <div>
          <div class="key"><i class="bound" />Lower bound</div>
          <div class="value">{reading ? missing : lowerBound === null ? <small>{noBound(summary, noPods)}</small> : <>{dollars(lowerBound)}<small>/h</small></>}</div>
        </div>
      </div>
      <div class="spend-bar" aria-hidden="true">
        <i style={{ width: at(Math.min(now, after ?? now)) }} />
        {after !== null && after < now && <b style={{ width: at(now - after) }} />}
        {after !== null && after > now && <s style={{ width: at(after - now) }} />}
        {lowerBound !== null && <u style={{ left: at(Math.min(lowerBound, largest)) }} />}
      </div>
      <div class="note">{planned}{!reading && unpriced > 0 && `; ${plural(unpriced, 'node')} without a known price`}</div>
    </div>
  );
}

const capacities = [['reserved', 'reserved'], ['on-demand', 'on-demand'], ['spot', 'spot'], ['', 'not known']] as const;

function Split({ cost, reading }: { cost: Map<string, number>; reading: boolean }) {
  const sums = capacities.map(([type, label]) => ({ type, label, sum: cost.get(type) ?? 0 })).filter((s) => s.sum > 0);
  const all = sums.reduce((sum, s) => sum + s.sum, 0);
  const swatch = (type: string) => `swatch c-${type || 'unknown'}`;
  return (
    <div class="wide">
      <div class="key">Cost by capacity type</div>
      {all === 0 ? <div class="note">{reading ? 'reading prices' : 'no prices are known'}</div> : (
        <>
          <div class="split" aria-hidden="true">{sums.map((s) => <i class={swatch(s.type)} style={{ flex: s.sum / all }} />)}</div>
          <div class="split-legend">
            {sums.map((s) => <span><i class={swatch(s.type)} />{s.label} <b>{percent(s.sum / all)}</b></span>)}
          </div>
        </>
      )}
    </div>
  );
}
