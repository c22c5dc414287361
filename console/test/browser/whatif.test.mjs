// What-if of node classes, replicas and feature gates, over a snapshot.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { snapshot } from '../fleet.mjs';
import { accessible, directory, fits, picture, refused, startBrowser, startConsole, visit } from './world.mjs';

test('what-if of other things than NodePools', { timeout: 10 * 60_000 }, async (t) => {
  const browser = await startBrowser(t);
  const file = join(directory(), 'shop.json');
  writeFileSync(file, snapshot(24));
  const url = await startConsole(t, ['-f', file]);
  const page = await browser.page(url, { within: t, width: 1280, height: 800, allow: refused });
  const effect = page.getByRole('region', { name: 'Effect' });

  await t.test('a node class: its nodes drift, and the patch makes the edit', async () => {
    await visit(page, '#/what-if?of=class', 'Nothing is edited yet');
    const editor = page.getByRole('textbox', { name: 'Manifest of EC2NodeClass default' });
    const text = await editor.inputValue();
    await editor.fill(`${text.trimEnd()}\n  tags:\n    team: shop\n`);
    await effect.getByText(/^\d+ nodes would drift/).waitFor();
    await effect.getByText('spec.tags').waitFor();
    await effect.getByText(/kubectl patch ec2nodeclasses.karpenter.k8s.aws default --type merge -p '\{"spec":\{"tags":\{"team":"shop"\}\}\}'/).waitFor();
    await accessible(page, 'what-if of a node class');
    await fits(page, 'what-if of a node class');
    await picture(page, 'what-if-class-light-1280');
    await editor.fill(`${text.trimEnd()}\n  tag: {team: shop}\n`);
    await effect.getByText(/^Line \d+: spec.tag there is no such field$/).waitFor();
    assert.equal(await effect.getByText('kubectl patch').count(), 0);
    await editor.fill('spec: [');
    await effect.getByText(/not valid YAML/).waitFor();
    await page.getByRole('button', { name: 'Reset' }).click();
    await effect.getByText('Nothing is edited yet').waitFor();
  });

  await t.test('a Deployment: more replicas need nodes, and what is not a number of a Deployment has its reason', async () => {
    await page.getByRole('button', { name: 'Replicas' }).click();
    await effect.getByText('Nothing is edited yet').waitFor();
    const replicas = page.getByRole('spinbutton', { name: 'Replicas' });
    const now = Number(await replicas.inputValue());
    assert.ok(now > 0, `${now} replicas`);
    await replicas.fill(String(now + 400));
    await effect.getByText(/more: \$/).waitFor();
    assert.match(await effect.locator('.code pre').textContent(), new RegExp(`^kubectl scale deployment \\S+ --namespace \\S+ --replicas ${now + 400}$`));
    assert.match(page.url(), new RegExp(`replicas=${now + 400}`), 'a link shows the same');
    await accessible(page, 'what-if of replicas');
    await fits(page, 'what-if of replicas');
    await picture(page, 'what-if-replicas-light-1280');
    await replicas.fill('-1');
    await effect.getByText('replicas: -1 is not a number from 0 to 10000').waitFor();
    assert.equal(await effect.getByText('kubectl scale').count(), 0);
    await visit(page, '#/what-if?of=scale&deployment=shop/nothing&replicas=3', 'the cluster has no Deployment "shop/nothing"');
  });

  await t.test('feature gates: the next pass with and without them', async () => {
    await visit(page, '#/what-if?of=gates', 'Nothing is edited yet');
    await effect.getByText('The next pass, with and without').waitFor();
    await page.getByRole('checkbox', { name: /^SpotToSpotConsolidation/ }).check();
    await effect.getByText('The next pass with them').waitFor();
    await effect.getByText('The next pass as they are').waitFor();
    assert.match(await effect.locator('.code pre').textContent(), /--set settings\.featureGates\.spotToSpotConsolidation=true$/);
    await accessible(page, 'what-if of feature gates');
    await fits(page, 'what-if of feature gates');
    await picture(page, 'what-if-gates-light-1280');
    await page.reload();
    await effect.getByText('The next pass with them').waitFor();
  });
});
