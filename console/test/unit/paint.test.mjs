import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compiled } from '../compiled.mjs';
import { random } from '../fleet.mjs';

const { Index, Order, layout } = await compiled('fleet/layout.ts');
const { partOf } = await compiled('fleet/part.ts');
const { bins } = await compiled('fleet/colors.ts');
const { Painter, groupNumbers, visible } = await compiled('fleet/paint.ts');

// Raster stands for a canvas: each pixel identifies what was drawn over it, in order. A pixel belongs to what covers its center.
class Raster {
  constructor(width, height) {
    Object.assign(this, { width, height, pixels: new Int32Array(width * height), saved: [], lineWidth: 1, globalAlpha: 1, fillStyle: '', strokeStyle: '', font: '' });
    this.clipped = { x: 0, y: 0, width, height };
  }

  #over(x, y, width, height, what) {
    const c = this.clipped;
    const id = what === null ? 0 : idOf(what);
    const mixed = what !== null && this.globalAlpha !== 1;
    const alpha = Math.round(1000 * this.globalAlpha);
    const [left, right] = [Math.max(c.x, Math.ceil(x - 0.5)), Math.min(c.x + c.width, Math.ceil(x + width - 0.5))];
    for (let py = Math.max(c.y, Math.ceil(y - 0.5)); py < Math.min(c.y + c.height, Math.ceil(y + height - 0.5)); py++) {
      for (let px = left; px < right; px++) {
        const at = py * this.width + px;
        this.pixels[at] = mixed ? Math.imul(this.pixels[at] ^ id, 0x01000193) + alpha : id;
      }
    }
  }

  setTransform() {}
  setLineDash() {}
  save() { this.saved.push({ clipped: this.clipped, lineWidth: this.lineWidth, globalAlpha: this.globalAlpha, fillStyle: this.fillStyle, strokeStyle: this.strokeStyle }); }
  restore() { Object.assign(this, this.saved.pop()); }
  beginPath() { this.path = []; }
  rect(x, y, width, height) { this.box = { x, y, width, height }; }
  clip() { // of whole pixels, or within one that is
    const { x, y, width, height } = this.box;
    const c = this.clipped;
    const [left, top] = [Math.max(c.x, Math.ceil(x - 0.5)), Math.max(c.y, Math.ceil(y - 0.5))];
    this.clipped = { x: left, y: top, width: Math.min(c.x + c.width, Math.ceil(x + width - 0.5)) - left, height: Math.min(c.y + c.height, Math.ceil(y + height - 0.5)) - top };
  }
  moveTo(x, y) { this.path.push([x, y]); }
  lineTo(x, y) { this.path.push([x, y]); }
  #along(style) {
    const [xs, ys] = [this.path.map((p) => p[0]), this.path.map((p) => p[1])];
    this.#over(Math.min(...xs), Math.min(...ys), Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), `${style} ${this.path.map(([x, y]) => `${x - xs[0]},${y - ys[0]}`)}`);
  }
  fill() { this.#along(this.fillStyle); }
  stroke() { this.#along(this.strokeStyle); }
  clearRect(x, y, width, height) { this.#over(x, y, width, height, null); }
  fillRect(x, y, width, height) { this.#over(x, y, width, height, this.fillStyle); }
  strokeRect(x, y, width, height) {
    const [half, what] = [this.lineWidth / 2, `line ${this.strokeStyle}`];
    for (const [left, top, wide, tall] of [[x, y, width, 0], [x, y + height, width, 0], [x, y, 0, height], [x + width, y, 0, height]]) {
      this.#over(left - half, top - half, wide + 2 * half, tall + 2 * half, what);
    }
  }
  measureText(text) { return { width: 6 * text.length }; }
  fillText(text, x, y, most) { this.#over(x, y - 5, Math.min(6 * text.length, most ?? Infinity), 10, `${text} ${this.font} ${this.fillStyle}`); }
}

const ids = new Map();

function idOf(what) {
  if (!ids.has(what)) ids.set(what, ids.size + 1);
  return ids.get(what);
}

const states = ['steady', 'steady', 'in flight', 'planned', 'draining', 'drifted', 'blocked', 'cordoned', 'not ready'];

function drawn(draw, i, name = `n${String(i).padStart(5, '0')}`) {
  const pick = (list) => list[Math.floor(draw() * list.length)];
  const vcpu = pick([2, 4, 8, 16, 32, 48]);
  return {
    id: name, name, nodePool: `pool-${i % 4}`, zone: pick(['a', 'b']), instanceType: 'm7g.large', capacityType: 'spot', state: states[Math.floor(draw() * states.length)],
    created: '2026-11-19T12:00:00Z', pods: 9, podsHash: String(draw()), hourlyCost: draw() < 0.1 ? null : draw(),
    cpuMillicores: { allocatable: vcpu * 1000, requested: vcpu * 1000 * draw() }, memoryBytes: { allocatable: 1e9, requested: 1e9 * draw() },
  };
}

const podsOf = (draw) => Array.from({ length: 1 + Math.floor(draw() * 9) }, (_, i) => ({
  namespace: 'shop', name: `p${i}`, workload: 'a-workload-with-a-name'.slice(0, 3 + Math.floor(draw() * 20)), cpuMillicores: 10 + 900 * draw(), memoryBytes: 1e6, daemon: draw() < 0.2,
}));

// fleet is nodes with a layout, and a scene of them.
function fleet(draw, count, frame) {
  const nodes = new Map(Array.from({ length: count }, (_, i) => drawn(draw, i)).map((n) => [n.id, n]));
  const pods = new Map([...nodes.keys()].map((id) => [id, podsOf(draw)]));
  const found = layout(nodes, 'pool', frame, new Order());
  const coloring = draw() < 0.7 ? 'state' : 'use';
  const scene = {
    layout: found, nodes, coloring, highlight: draw() < 0.3 ? 'steady' : null, bins: new Map(bins(coloring, []).map((b) => [b.key, b])), now: 0,
    pods: (n) => pods.get(n.id), numbers: (g) => groupNumbers(g.ids, nodes),
  };
  return { nodes, pods, scene, index: new Index(found.rects) };
}

const tokens = (name) => (name.startsWith('--s-') ? `#a0b0${name.charCodeAt(4)}` : name.length % 2 ? '#101010' : '#e0e0e0');
const wide = { width: 900, height: 520 };
const whole = { zoom: 1, x: 0, y: 0, ratio: 1, ...wide };

function painted(scene, view) {
  const raster = new Raster(view.width, view.height);
  new Painter(raster, tokens).paint(scene, view);
  return raster;
}

for (const count of [3, 40, 300, 2500]) {
  test(`${count} nodes: changes of some draw what all of the map would`, () => {
    const draw = random(count);
    for (let round = 0; round < 4; round++) {
      const { nodes, pods, scene, index } = fleet(draw, count, wide);
      const raster = new Raster(wide.width, wide.height);
      const painter = new Painter(raster, tokens);
      painter.paint(scene, whole);
      const before = raster.pixels.slice();
      const changed = new Set([...nodes.keys()].filter(() => draw() < 30 / count));
      for (const id of changed) {
        const next = drawn(draw, 0, id);
        nodes.set(id, { ...nodes.get(id), state: next.state, cpuMillicores: { ...nodes.get(id).cpuMillicores, requested: next.cpuMillicores.requested }, hourlyCost: next.hourlyCost });
        pods.set(id, podsOf(draw));
      }
      const part = partOf(changed, scene.layout, index, whole);
      assert.ok(part, 'the change is small');
      painter.paint(scene, whole, part);
      assert.deepEqual(raster.pixels, painted(scene, whole).pixels);
      if (changed.size > 0) assert.notDeepEqual(raster.pixels, before, 'a change that is seen');
    }
  });

  test(`${count} nodes: a map that is dragged and zoomed looks as if it was drawn first there`, () => {
    const draw = random(count + 1);
    const { scene } = fleet(draw, count, wide);
    const raster = new Raster(wide.width, wide.height);
    const painter = new Painter(raster, tokens);
    let view = whole;
    for (let step = 0; step < 12; step++) {
      const zoom = step % 3 ? view.zoom : 1 + draw() * 9;
      view = { ...view, zoom, x: -draw() * wide.width * (zoom - 1), y: -draw() * wide.height * (zoom - 1) };
      painter.paint(scene, view);
      assert.deepEqual(raster.pixels, painted(scene, view).pixels, `zoom ${zoom}`);
    }
  });
}

test('a box is visible exactly if it touches the canvas', () => {
  const draw = random(5);
  for (let i = 0; i < 2000; i++) {
    const r = { x: draw() * 900, y: draw() * 520, width: 1 + draw() * 60, height: 1 + draw() * 60 };
    const view = { ...whole, zoom: 1 + draw() * 9, x: -draw() * 4000, y: -draw() * 4000 };
    const [left, top] = [r.x * view.zoom + view.x, r.y * view.zoom + view.y];
    const touches = left <= 900 && top <= 520 && left + r.width * view.zoom >= 0 && top + r.height * view.zoom >= 0;
    assert.equal(visible(r, view), touches);
  }
});
