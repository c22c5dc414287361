// What could be saved: why nothing is planned beside a gap, the largest switch, and all of them in one place.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { snapshot } from '../fleet.mjs';
import { accessible, directory, fits, picture, recording, settled, startBrowser, startConsole, visit } from './world.mjs';

// spot is a fleet of spot nodes of one type that are used by half, so that only the feature gate lets consolidation replace them.
function spot() {
  const { items, ...rest } = JSON.parse(snapshot(10));
  const pods = new Map();
  const kept = items.filter((o) => {
    if (o.kind !== 'Pod') return true;
    if (!o.spec.nodeName || o.metadata.ownerReferences[0].kind === 'DaemonSet') return false;
    const before = pods.get(o.spec.nodeName) ?? 0;
    pods.set(o.spec.nodeName, before + 1);
    o.spec.containers[0].resources.requests = { cpu: '8200m', memory: '20Gi' };
    return before === 0;
  });
  const at = items.find((o) => o.kind === 'NodePool').metadata.creationTimestamp;
  for (const o of kept) {
    if (o.kind !== 'Node' && o.kind !== 'NodeClaim') continue;
    Object.assign(o.metadata.labels, { 'karpenter.sh/capacity-type': 'spot', 'node.kubernetes.io/instance-type': 'm7g.4xlarge', 'karpenter.sh/nodepool': 'general' });
    o.metadata.creationTimestamp = at;
    delete o.metadata.deletionTimestamp;
    if (o.metadata.annotations) o.metadata.annotations = {};
    o.status.allocatable = { cpu: '15920m', memory: '60Gi', pods: '110' };
    o.status.capacity = { cpu: '16', memory: '64Gi', pods: '110' };
    o.status.conditions = o.status.conditions.filter((c) => c.type !== 'Drifted');
    for (const c of o.status.conditions) c.status = 'True';
    if (o.kind === 'Node') o.spec.unschedulable = false;
  }
  return JSON.stringify({ ...rest, items: kept });
}

test('a fleet of spot nodes states why nothing is planned, and which switch would save most', { timeout: 8 * 60_000 }, async (t) => {
  const file = join(directory(), 'shop.json');
  writeFileSync(file, spot());
  const url = await startConsole(t, ['-f', file, '--recording', recording]);
  const browser = await startBrowser(t);
  const { summary } = await (await fetch(`${url}/api/v1/fleet`)).json();
  const assessed = await (await fetch(`${url}/api/v1/assessment`)).json();
  assert.equal(summary.changes.length, 0, JSON.stringify(summary.changes));
  assert.ok(summary.cost.hourlyCost > summary.cost.lowerBound + 0.001 && summary.kept.length > 0, 'there is no gap');
  assert.match(assessed.switch, /SpotToSpotConsolidation: \$\d+.* a month \(\d+ %\) less/);
  for (const [width, theme] of [[1280, 'light'], [390, 'dark']]) {
    const page = await browser.page(url, { width, theme, within: t });
    await visit(page, '#/fleet', 'Group by');
    const next = page.getByRole('complementary', { name: 'Planned changes' });
    await next.getByText('Nothing is planned: no node would be').waitFor();
    await next.getByText(new RegExp(`^(All )?${summary.kept[0].nodes} .*nodes stay.*for one reason: .*more than the lower bound`)).waitFor();
    await next.getByText(/To launch all anew would cost \$\d/).waitFor();
    await page.locator('.largest').getByText(assessed.switch).waitFor();
    await settled(page);
    await accessible(page, `the fleet with its headline at ${width} px`);
    await fits(page, 'the fleet with its headline');
    await picture(page, `savings-fleet-${theme}-${width}`);
    await page.locator('.largest a').click();
    await page.getByRole('heading', { name: 'Savings' }).waitFor();
    await page.getByText(assessed.switch).waitFor();
    await page.getByRole('cell', { name: /^SpotToSpotConsolidation feature gate/ }).waitFor();
    await page.getByRole('heading', { name: 'Realized' }).waitFor();
    await settled(page);
    await accessible(page, `savings at ${width} px`);
    await fits(page, 'savings');
    await picture(page, `savings-${theme}-${width}`);
  }
});
