// The page of a NodeClaim: its instance, what became of it, and the ways to it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, refused, served, settled, startBrowser, visit } from './world.mjs';

test('a node, its NodePool and the search lead to its NodeClaim, and that to the console of EC2', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(6);
  const at = new Date().toISOString().replace(/\.\d+Z/, 'Z');
  const claim = items.find((o) => o.kind === 'NodeClaim' && o.status.nodeName);
  const name = claim.metadata.name;
  const zone = claim.status.providerID.split('/')[3];
  const instance = `i-${'0'.repeat(17 - 6)}abc123`;
  const node = items.find((o) => o.kind === 'Node' && o.spec.providerID === claim.status.providerID);
  node.spec.providerID = claim.status.providerID = `aws:///${zone}/${instance}`;
  claim.status.imageID = 'ami-0abc12';
  claim.status.conditions.push({ type: 'Drifted', status: 'True', reason: 'AMIDrift', message: 'AMIDrift', lastTransitionTime: at });
  claim.metadata.annotations = { 'example.com/note': '<img src=x onerror="window.owned=1">' };
  items.find((o) => o.kind === 'EC2NodeClass').status = {
    amis: [{ id: 'ami-0abc12', name: 'amazon-eks-node-al2023-arm64-standard-1.34-v20261101', requirements: [] }],
    subnets: [{ id: 'subnet-0a', zone }, { id: 'subnet-0b', zone: 'us-east-1z' }], securityGroups: [{ id: 'sg-0a', name: 'nodes' }],
    conditions: [{ type: 'Ready', status: 'True', reason: 'Ready', message: '', lastTransitionTime: at }],
  };
  const event = (of, uid, reason, message, type = 'Normal') => ({
    apiVersion: 'v1', kind: 'Event', metadata: { namespace: 'default', name: `event-${uid}`, uid: `event-${uid}`, creationTimestamp: at }, type, reason, message,
    involvedObject: { kind: 'NodeClaim', name: of }, firstTimestamp: at, lastTimestamp: at, count: 3,
  });
  const { url, api } = await served(t, [
    ...items, event(name, 'a', 'DisruptionBlocked', 'a <b>budget</b> of NodePool general holds it back', 'Warning'), event('other', 'b', 'OfAnother', 'not this one'),
  ]);
  const browser = await startBrowser(t);
  for (const [width, theme] of [[1280, 'light'], [390, 'dark']]) {
    const page = await browser.page(url, { width, theme, within: t, allow: refused });
    await visit(page, `#/nodes/${claim.status.nodeName}`, 'NodeClaim');
    await page.getByRole('link', { name, exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: `NodeClaim ${name}` }).waitFor();
    await page.getByText('DisruptionBlocked').waitFor();
    await settled(page);
    assert.equal(await page.getByRole('link', { name: `${instance} in the EC2 console` }).getAttribute('href'),
      `https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1#InstanceDetails:instanceId=${instance}`);
    for (const text of ['amazon-eks-node-al2023-arm64', 'subnet-0a', 'sg-0a', 'AMIDrift', 'kind: NodeClaim', '<b>budget</b>', '/h']) {
      await page.locator('main').getByText(text).first().waitFor();
    }
    assert.equal(await page.getByText('OfAnother').count() + await page.getByText('subnet-0b').count(), 0, 'events or subnets of others are shown');
    assert.equal(await page.evaluate(() => window.owned), undefined);
    await accessible(page, `a NodeClaim at ${width} px`);
    await fits(page, 'a NodeClaim');
    await picture(page, `nodeclaim-${theme}-${width}`);
    await visit(page, `#/nodepools?pool=${claim.metadata.labels['karpenter.sh/nodepool']}`, 'NodeClaims');
    await page.getByRole('link', { name, exact: true }).click();
    await page.getByRole('heading', { name: `NodeClaim ${name}` }).waitFor();
    await page.keyboard.press('/');
    await page.getByRole('combobox', { name: /^Search/ }).fill(name);
    await page.getByRole('option', { name: `NodeClaim ${name}` }).waitFor();
    await page.keyboard.press('Escape');
    await visit(page, '#/nodeclaims/gone', 'Not found');
  }
  api.forbidden.add('events');
  const page = await browser.page(url, { within: t, allow: refused, hash: `#/nodeclaims/${name}` });
  await page.getByText('resources: [events]').waitFor();
  await page.getByText('kind: NodeClaim').waitFor();
});
