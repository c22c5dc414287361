import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';
import { random } from '../fleet.mjs';

const { Index, Order, boxOf, layout, next, squarify } = await compiled('fleet/layout.ts');
const { partOf } = await compiled('fleet/part.ts');

const node = (id, vcpu, pool = 'general', requested = 0.5) => ({
  id, name: id, nodePool: pool, zone: 'a', instanceType: 'm7g.large', cpuMillicores: { allocatable: vcpu * 1000 - 80, requested: vcpu * 1000 * requested },
  memoryBytes: { allocatable: 1, requested: 0 },
});

// fleet has so many nodes of mixed sizes in four NodePools.
function fleet(n) {
  const sizes = [2, 4, 8, 16, 32, 48, 64, 96];
  return new Map(Array.from({ length: n }, (_, i) => {
    const id = `n${String(i).padStart(5, '0')}`;
    return [id, node(id, sizes[(i * 7) % (i % 3 ? 5 : 8)], `pool-${(i * i) % 4}`, ((i * 37) % 100) / 100)];
  }));
}

test('the area of a box is the vCPU of its node', () => {
  for (const vcpu of [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192]) {
    const box = boxOf(node('a', vcpu));
    assert.equal(box.width * box.height, vcpu);
  }
});

for (const n of [1, 3, 12, 300, 5000]) {
  for (const frame of [{ width: 1060, height: 700 }, { width: 390, height: 440 }]) {
    test(`${n} nodes in ${frame.width} x ${frame.height}: each box once, none over another`, () => {
      const nodes = fleet(n);
      const found = layout(nodes, 'pool', frame, new Order());
      assert.deepEqual(new Set(found.rects.map((r) => r.id)), new Set(nodes.keys()));
      assert.equal(found.rects.length, n);
      const cells = new Set();
      for (const group of found.groups) {
        for (const r of found.rects.filter((x) => group.ids.includes(x.id))) {
          assert.ok(r.x >= group.x - 1e-6 && r.x + r.width <= group.x + group.width + 1e-6, `${r.id} leaves ${group.name}`);
          assert.ok(r.x + r.width <= frame.width + 1e-6, `${r.id} leaves the frame`);
          for (let dy = 0; dy < r.units.height; dy++) {
            for (let dx = 0; dx < r.units.width; dx++) {
              const key = `${group.name} ${Math.round((r.x - group.x) / found.unit) + dx} ${Math.round(r.y / found.unit * 100) / 100 + dy}`;
              assert.ok(!cells.has(key), `${r.id} is over another box`);
              cells.add(key);
            }
          }
        }
      }
    });
  }
}

// firstFit is where boxes of equal sizes come to stand, cell by cell: each in the first gap after the one before it.
function firstFit(boxes, columns) {
  const taken = new Set();
  const cells = ({ width, height }, x, y) => Array.from({ length: width * height }, (_, i) => `${x + (i % width)} ${y + Math.floor(i / width)}`);
  let [x, y, last] = [0, 0, ''];
  return boxes.map((box) => {
    const size = `${box.width}x${box.height}`;
    if (size !== last) [x, y, last] = [0, 0, size];
    for (;; x += box.width === 12 ? 4 : box.width) {
      if (x + box.width > columns) [x, y] = [0, y + box.height];
      if (cells(box, x, y).every((c) => !taken.has(c))) break;
    }
    for (const c of cells(box, x, y)) taken.add(c);
    const found = { id: box.id, x, y };
    x += box.width;
    return found;
  });
}

test('each box stands in the first gap of its size', () => {
  const draw = random(3);
  for (let round = 0; round < 60; round++) {
    const sizes = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512].filter(() => draw() < 0.5);
    const nodes = new Map(Array.from({ length: 1 + Math.floor(draw() * 400) }, (_, i) => {
      const id = `n${i}`;
      return [id, node(id, sizes[Math.floor(draw() * sizes.length)] ?? 4, `pool-${Math.floor(draw() * 4)}`, draw())];
    }));
    const found = layout(nodes, 'pool', { width: 300 + draw() * 1500, height: 300 + draw() * 900 }, new Order());
    for (const group of found.groups) {
      const rects = found.rects.filter((r) => group.ids.includes(r.id));
      const cell = (v) => Math.abs(Math.round(v / found.unit));
      const at = rects.map((r) => ({ id: r.id, x: cell(r.x - group.x), y: cell(r.y - group.y - found.header) }));
      assert.deepEqual(at, firstFit(rects.map((r) => r.units), Math.round(group.width / found.unit)));
    }
  }
});

test('a small fleet fills the map, and no box of it is cut', () => {
  const of = (...vcpus) => new Map(vcpus.map((v, i) => [`n${i}`, node(`n${i}`, v, `pool-${i}`)]));
  for (const [nodes, frame, least] of [
    [of(2), { width: 724, height: 580 }, 300], [of(32, 4, 4), { width: 724, height: 580 }, 75], [of(8, 8, 8, 8), { width: 1030, height: 650 }, 100],
    [of(32, 4, 4), { width: 390, height: 440 }, 40],
  ]) {
    const { unit, rects, height } = layout(nodes, 'pool', frame, new Order());
    assert.ok(unit > least, `${nodes.size} nodes in ${frame.width} x ${frame.height} have a unit of ${unit} px`);
    assert.ok(height <= frame.height);
    for (const r of rects) assert.equal(r.units.width, boxOf(nodes.get(r.id)).width, `${r.id} is cut`);
  }
});

test('a change of a node moves no box', () => {
  const nodes = fleet(300);
  const order = new Order();
  const frame = { width: 1060, height: 700 };
  const before = layout(nodes, 'pool', frame, order);
  for (const n of nodes.values()) n.cpuMillicores.requested = 0;
  assert.deepEqual(layout(nodes, 'pool', frame, order), before);
});

test('every box is found where it is drawn, and reached by arrow keys', () => {
  const found = layout(fleet(300), 'pool', { width: 1060, height: 700 }, new Order());
  const index = new Index(found.rects);
  for (const r of found.rects) assert.equal(index.at(r.x + r.width / 2, r.y + r.height / 2)?.id, r.id);
  assert.equal(index.at(-5, -5), null);
  const reached = new Set([found.rects[0].id]);
  const todo = [found.rects[0]];
  for (let r = todo.pop(); r; r = todo.pop()) {
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      const to = next(found.rects, r, dx, dy);
      if (to && !reached.has(to.id)) {
        reached.add(to.id);
        todo.push(to);
      }
    }
  }
  assert.equal(reached.size, found.rects.length);
});

test('pods fill the box by weight', () => {
  const frame = { x: 10, y: 20, width: 60, height: 40 };
  const cells = squarify([5, 3, 2, 1, 1], (v) => v, frame);
  assert.equal(cells.length, 5);
  for (const c of cells) {
    assert.ok(Math.abs(c.width * c.height - (c.item / 12) * 2400) < 1e-6);
    assert.ok(c.x >= 10 - 1e-9 && c.y >= 20 - 1e-9 && c.x + c.width <= 70 + 1e-6 && c.y + c.height <= 60 + 1e-6);
  }
});

test('a change draws the changed boxes, those that touch them, and the headers of their groups', () => {
  const nodes = fleet(300);
  const found = layout(nodes, 'pool', { width: 1060, height: 700 }, new Order());
  const index = new Index(found.rects);
  const view = { zoom: 1, x: 0, y: 0, width: 1060, height: 700, ratio: 1.25 };
  const one = found.rects[17];
  const part = partOf(new Set([one.id, 'gone']), found, index, view);
  assert.deepEqual(part.groups.map((g) => g.name), [nodes.get(one.id).nodePool]);
  assert.equal(part.areas.length, 2);
  for (const a of part.areas) {
    for (const edge of [a.x, a.y, a.x + a.width, a.y + a.height]) assert.ok(Math.abs(edge * view.ratio - Math.round(edge * view.ratio)) < 1e-6, 'a device pixel is cut');
    const touching = found.rects.filter((r) => r.x <= a.x + a.width && r.x + r.width >= a.x && r.y <= a.y + a.height && r.y + r.height >= a.y);
    assert.deepEqual(new Set(a.boxes), new Set(touching));
  }
  const [box] = part.areas;
  assert.ok(box.x <= one.x && box.y <= one.y && box.x + box.width >= one.x + one.width && box.y + box.height >= one.y + one.height);
  assert.equal(partOf(new Set(nodes.keys()), found, index, view), null, 'all boxes one by one');
  assert.equal(partOf(new Set([one.id]), found, index, { ...view, zoom: 2 }), null, 'below a header');
  assert.deepEqual(partOf(new Set([one.id]), found, index, { ...view, y: -5000 }).areas, [], 'outside of the view');
});
