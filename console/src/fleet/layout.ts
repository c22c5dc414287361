// Where each box of the map is: pure geometry over plain values.

import type { Node } from '../api.gen';

export type Grouping = 'pool' | 'zone' | 'type';

// Box is a node in units of the grid; Rect is one on the map, in pixels at zoom 1.
export interface Box { id: string; width: number; height: number }
export interface Rect { id: string; x: number; y: number; width: number; height: number; units: Box }

export interface Group {
  name: string;
  ids: string[];
  x: number; y: number; width: number; height: number;
}

export interface Layout { unit: number; groups: Group[]; rects: Rect[]; height: number; header: number }

// sizes are the boxes by vCPU: an area of one unit for each, in shapes that tessellate.
const sizes: [vcpu: number, width: number, height: number][] = [
  [1, 1, 1], [2, 2, 1], [4, 2, 2], [8, 4, 2], [16, 4, 4], [32, 8, 4], [48, 12, 4], [64, 8, 8], [96, 12, 8], [128, 16, 8], [192, 24, 8],
  [256, 16, 16], [512, 32, 16],
];

// unknown is the size of a node whose capacity is not known yet.
const unknown = sizes[1]!;

export function boxOf(node: Node): Box {
  const vcpu = Math.ceil(node.cpuMillicores.allocatable / 1000);
  const [, width, height] = vcpu === 0 ? unknown : sizes.find(([n]) => n >= vcpu) ?? sizes[sizes.length - 1]!;
  return { id: node.id, width, height };
}

export function groupName(node: Node, by: Grouping): string {
  switch (by) {
    case 'pool': return node.nodePool || 'without NodePool';
    case 'zone': return node.zone || 'zone not known';
    case 'type': return node.instanceType.split('.')[0] || 'type not known';
  }
}

export const share = (part: number | null, whole: number) => (part === null || whole <= 0 ? 0 : part / whole);

// requested is the larger requested share of the node.
export const requested = (n: Node) => Math.max(
  share(n.cpuMillicores.requested, n.cpuMillicores.allocatable), share(n.memoryBytes.requested, n.memoryBytes.allocatable),
);

// Order keeps the place of each box: it ranks a node by its share when it is first seen, so that a change never moves a box.
export class Order {
  private ranks = new Map<string, number>();

  rank(n: Node): number {
    let rank = this.ranks.get(n.id);
    if (rank === undefined) {
      rank = requested(n);
      this.ranks.set(n.id, rank);
    }
    return rank;
  }

  // keep forgets the nodes that are gone.
  keep(ids: ReadonlyMap<string, unknown>) {
    for (const id of this.ranks.keys()) if (!ids.has(id)) this.ranks.delete(id);
  }
}

interface Sized { name: string; boxes: Box[]; area: number }

// sized are the groups, the largest first, with their boxes in order: size, then rank, then ID.
function sized(nodes: Iterable<Node>, by: Grouping, order: Order): Sized[] {
  const groups = new Map<string, { node: Node; box: Box }[]>();
  for (const node of nodes) {
    const name = groupName(node, by);
    const entry = { node, box: boxOf(node) };
    const group = groups.get(name);
    if (group) group.push(entry);
    else groups.set(name, [entry]);
  }
  const out: Sized[] = [];
  for (const [name, entries] of groups) {
    entries.sort((a, b) => b.box.height - a.box.height || b.box.width - a.box.width || order.rank(b.node) - order.rank(a.node) ||
      (a.node.id < b.node.id ? -1 : 1));
    out.push({ name, boxes: entries.map((e) => e.box), area: entries.reduce((sum, e) => sum + e.box.width * e.box.height, 0) });
  }
  return out.sort((a, b) => b.area - a.area || (a.name < b.name ? -1 : 1));
}

// Grid is a strip of cells that grows downwards.
class Grid {
  private rows: Uint8Array[] = [];

  constructor(readonly columns: number) {}

  private row(y: number) {
    while (this.rows.length <= y) this.rows.push(new Uint8Array(this.columns));
    return this.rows[y]!;
  }

  free(x: number, y: number, box: Box): boolean {
    for (let dy = 0; dy < box.height; dy++) {
      const row = this.row(y + dy);
      for (let dx = 0; dx < box.width; dx++) if (row[x + dx]) return false;
    }
    return true;
  }

  take(x: number, y: number, box: Box) {
    for (let dy = 0; dy < box.height; dy++) this.row(y + dy).fill(1, x, x + box.width);
  }
}

interface Placed { box: Box; x: number; y: number }

// place puts boxes, the largest first, into the first gap of their size: smaller ones fill what larger ones leave.
function place(boxes: Box[], columns: number): { placed: Placed[]; height: number } {
  const grid = new Grid(columns);
  const placed: Placed[] = [];
  let height = 0;
  let last = '';
  let x = 0;
  let y = 0;
  for (const wanted of boxes) {
    const box = { ...wanted, width: Math.min(wanted.width, columns) };
    const size = `${box.width}x${box.height}`;
    if (size !== last) [last, x, y] = [size, 0, 0];
    const step = box.width === 12 ? 4 : box.width;
    for (;;) {
      if (x + box.width > columns) {
        x = 0;
        y += box.height;
      }
      if (grid.free(x, y, box)) break;
      x += step;
    }
    grid.take(x, y, box);
    placed.push({ box, x, y });
    height = Math.max(height, y + box.height);
    x += box.width;
  }
  return { placed, height };
}

export interface Frame { width: number; height: number }

const padding = 12;
const header = 24;
const gap = 8;
const narrow = 520;

// rowsOf puts groups below 17 % of the area side by side.
function rowsOf(groups: Sized[], frame: Frame): Sized[][] {
  const total = groups.reduce((sum, g) => sum + g.area, 0);
  const most = frame.width < narrow ? 2 : 3;
  const rows: Sized[][] = [];
  let shared: Sized[] | null = null;
  for (const g of groups) {
    if (g.area > total * 0.17 || (groups.length < 3 && frame.width < narrow)) {
      rows.push([g]);
      continue;
    }
    if (!shared || shared.length >= most) {
      shared = [];
      rows.push(shared);
    }
    shared.push(g);
  }
  return rows;
}

// laidOut places all groups at a unit of so many pixels.
function laidOut(rows: Sized[][], frame: Frame, unit: number): Layout {
  const columns = Math.max(2, Math.floor((frame.width - 2 * padding) / unit));
  const out: Layout = { unit, groups: [], rects: [], height: 0, header };
  let y = padding - 4;
  for (const row of rows) {
    const between = row.length > 1 ? Math.ceil(16 / unit) : 0;
    const room = columns - between * (row.length - 1);
    const area = row.reduce((sum, g) => sum + g.area, 0);
    const least = Math.min(Math.floor(room / row.length), Math.max(12, Math.ceil(150 / unit)));
    let left = room;
    let x = 0;
    let tallest = 0;
    row.forEach((g, i) => {
      const rest = least * (row.length - 1 - i);
      let wide = i === row.length - 1 ? left : Math.max(least, Math.min(left - rest, Math.round((room * g.area) / area)));
      wide = Math.max(2, wide & ~1);
      left -= wide;
      const { placed, height } = place(g.boxes, wide);
      const at = { x: padding + x * unit, y };
      out.groups.push({ name: g.name, ids: g.boxes.map((b) => b.id), ...at, width: wide * unit, height: height * unit });
      for (const p of placed) {
        out.rects.push({
          id: p.box.id, units: p.box, x: at.x + p.x * unit, y: at.y + header + p.y * unit, width: p.box.width * unit,
          height: p.box.height * unit,
        });
      }
      x += wide + between;
      tallest = Math.max(tallest, height);
    });
    y += header + tallest * unit + gap;
  }
  out.height = y;
  return out;
}

// layout is the largest at which all boxes fit the frame. Its cost is that of 14 placements of all boxes.
export function layout(nodes: ReadonlyMap<string, Node>, by: Grouping, frame: Frame, order: Order): Layout {
  const rows = rowsOf(sized(nodes.values(), by, order), frame);
  let low = nodes.size > 2000 ? 1.2 : 2.2;
  let high = nodes.size < 20 ? (frame.width < narrow ? 30 : 74) : 34;
  const largest = laidOut(rows, frame, high);
  if (largest.height <= frame.height) return largest;
  let best = laidOut(rows, frame, low);
  if (best.height > frame.height) return best;
  for (let i = 0; i < 12; i++) {
    const middle = (low + high) / 2;
    const tried = laidOut(rows, frame, middle);
    if (tried.height <= frame.height) [low, best] = [middle, tried];
    else high = middle;
  }
  return best;
}

// next is the nearest box in a direction; null if there is none.
export function next(rects: Rect[], from: Rect, dx: number, dy: number): Rect | null {
  const x = from.x + from.width / 2;
  const y = from.y + from.height / 2;
  let best: Rect | null = null;
  let least = Infinity;
  for (const r of rects) {
    if (r.id === from.id) continue;
    const ax = r.x + r.width / 2 - x;
    const ay = r.y + r.height / 2 - y;
    const along = ax * dx + ay * dy;
    if (along <= 1) continue;
    const distance = along + 3 * (Math.abs(ax * dy) + Math.abs(ay * dx));
    if (distance < least) [best, least] = [r, distance];
  }
  return best;
}

// Index finds boxes by their ID or place, by cells of the size of the largest boxes.
export class Index {
  readonly byId = new Map<string, Rect>();
  private cells = new Map<number, Rect[]>();

  constructor(rects: Rect[], private size = 64) {
    for (const r of rects) {
      this.byId.set(r.id, r);
      for (let y = this.cell(r.y); y <= this.cell(r.y + r.height); y++) {
        for (let x = this.cell(r.x); x <= this.cell(r.x + r.width); x++) {
          const key = y * 65536 + x;
          const cell = this.cells.get(key);
          if (cell) cell.push(r);
          else this.cells.set(key, [r]);
        }
      }
    }
  }

  private cell(v: number) {
    return Math.max(0, Math.floor(v / this.size));
  }

  at(x: number, y: number): Rect | null {
    const cell = this.cells.get(this.cell(y) * 65536 + this.cell(x)) ?? [];
    return cell.find((r) => x >= r.x && x < r.x + r.width && y >= r.y && y < r.y + r.height) ?? null;
  }

  // within are the boxes that touch a rectangle.
  within(x: number, y: number, width: number, height: number): Rect[] {
    const out = new Set<Rect>();
    for (let cy = this.cell(y); cy <= this.cell(y + height); cy++) {
      for (let cx = this.cell(x); cx <= this.cell(x + width); cx++) {
        for (const r of this.cells.get(cy * 65536 + cx) ?? []) {
          if (r.x <= x + width && r.x + r.width >= x && r.y <= y + height && r.y + r.height >= y) out.add(r);
        }
      }
    }
    return [...out];
  }
}

export interface Cell<T> { x: number; y: number; width: number; height: number; item: T }

// squarify fills a rectangle with cells of areas proportional to weights, as square as possible (Bruls, Huizing, van Wijk 2000).
export function squarify<T>(items: T[], weight: (item: T) => number, frame: { x: number; y: number; width: number; height: number }) {
  const out: Cell<T>[] = [];
  let { x, y, width, height } = frame;
  const total = items.reduce((sum, i) => sum + weight(i), 0);
  if (total <= 0 || width <= 0 || height <= 0) return out;
  const scale = (width * height) / total;
  for (let i = 0; i < items.length;) {
    const side = Math.min(width, height);
    let sum = 0;
    let worst = Infinity;
    let smallest = Infinity;
    let largest = 0;
    let end = i;
    while (end < items.length) {
      const area = weight(items[end]!) * scale;
      const all = sum + area;
      const [small, large] = [Math.min(smallest, area), Math.max(largest, area)];
      const ratio = Math.max((side * side * large) / (all * all), (all * all) / (side * side * small));
      if (ratio > worst) break;
      [worst, sum, smallest, largest] = [ratio, all, small, large];
      end++;
    }
    const thick = sum / side;
    let along = 0;
    for (; i < end; i++) {
      const length = (weight(items[i]!) * scale) / thick;
      out.push(width >= height
        ? { x, y: y + along, width: thick, height: length, item: items[i]! }
        : { x: x + along, y, width: length, height: thick, item: items[i]! });
      along += length;
    }
    if (width >= height) [x, width] = [x + thick, width - thick];
    else [y, height] = [y + thick, height - thick];
  }
  return out;
}
