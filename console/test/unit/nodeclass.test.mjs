import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';

globalThis.sessionStorage = { getItem: () => null }; // the page has one
const { ec2, regionOf } = await compiled('nodeclass.tsx');

test('links to the console of EC2 are of its region and partition, and of nothing else', () => {
  const view = 'ImageDetails:imageId=';
  assert.equal(ec2(view, 'ami-0a1', regionOf('us-east-1a')), 'https://us-east-1.console.aws.amazon.com/ec2/home?region=us-east-1#ImageDetails:imageId=ami-0a1');
  assert.equal(regionOf('us-west-2-lax-1a'), 'us-west-2');
  assert.match(ec2(view, 'ami-0a1', 'cn-north-1'), /^https:\/\/console\.amazonaws\.cn\/ec2\//);
  assert.match(ec2(view, 'ami-0a1', regionOf('us-gov-west-1b')), /^https:\/\/console\.amazonaws-us-gov\.com\/ec2\//);
  assert.match(ec2('SubnetDetails:subnetId=', 'subnet-1', 'eu-west-1'), /\/vpcconsole\/home/);
  for (const [id, region] of [['ami-1', ''], ['ami-1', 'evil.com/'], ['javascript:alert(1)', 'us-east-1'], ['"><b>', 'us-east-1'], ['ami-1', 'us-east-1.evil']]) {
    assert.equal(ec2(view, id, region), '', `${id} in ${region}`);
  }
});

test('an instance has a link only if its ID is one', () => {
  assert.equal(ec2('InstanceDetails:instanceId=', 'i-0abc', 'eu-west-1'), 'https://eu-west-1.console.aws.amazon.com/ec2/home?region=eu-west-1#InstanceDetails:instanceId=i-0abc');
  for (const id of ['', 'i-', 'i-0abc"', 'fargate-ip-10-0-0-1', 'javascript:alert(1)']) assert.equal(ec2('InstanceDetails:instanceId=', id, 'eu-west-1'), '', id);
});
