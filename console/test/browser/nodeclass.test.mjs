// The page of a node class: what its selectors found, whatever is in their names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { live } from '../fleet.mjs';
import { accessible, fits, picture, refused, served, settled, startBrowser, visit } from './world.mjs';

test('a NodePool leads to its node class, and that to the console of EC2', { timeout: 5 * 60_000 }, async (t) => {
  const items = live(3);
  const at = new Date().toISOString().replace(/\.\d+Z/, 'Z');
  items.find((o) => o.kind === 'EC2NodeClass').status = {
    amis: [{ id: 'ami-0abc12', name: 'amazon-eks-node-al2023-arm64-standard-1.34-v20261101', requirements: [{ key: 'kubernetes.io/arch', operator: 'In', values: ['arm64'] }] },
      { id: 'ami-0abc11', name: 'old', deprecated: true, requirements: [] }],
    subnets: [{ id: 'subnet-0a', zone: 'us-east-1a' }, { id: 'subnet-0b', zone: 'us-east-1b' }],
    securityGroups: [{ id: 'sg-0a', name: '<img src=x onerror="window.owned=1"> \u202Eevil' }, { id: '"><b>', name: 'x'.repeat(200) }],
    conditions: [{ type: 'Ready', status: 'False', reason: 'X', message: 'no <b>instance</b> profile', lastTransitionTime: at }],
  };
  const { url } = await served(t, items);
  const browser = await startBrowser(t);
  for (const width of [390, 1280]) {
    for (const theme of width === 390 ? ['light'] : ['light', 'dark']) {
      const page = await browser.page(url, { width, theme, within: t, allow: refused });
      await visit(page, '#/nodepools?pool=general', 'Node class default');
      await page.getByRole('link', { name: 'Node class default' }).focus();
      await page.keyboard.press('Enter');
      await page.getByText('2 images, 2 subnets and 2 security groups').waitFor();
      await page.getByText('Ready is False:').waitFor();
      await settled(page);
      assert.equal(await page.getByRole('link', { name: 'ami-0abc12 in the EC2 console' }).getAttribute('href'),
        'https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1#ImageDetails:imageId=ami-0abc12');
      assert.equal(await page.locator('main a[target=_blank]').count(), 5, 'what is no ID has no link');
      assert.equal(await page.evaluate(() => window.owned), undefined);
      await accessible(page, `a node class at ${width} px`);
      await fits(page, 'a node class');
      await picture(page, `nodeclass-${theme}-${width}`);
      await visit(page, '#/nodeclasses/gone', 'Not found');
      await page.goBack();
    }
  }
});
