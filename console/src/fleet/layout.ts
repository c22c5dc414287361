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

// Run is boxes of one size that stand one after the other.
interface Run { width: number; height: number; count: number }

// Sized is a group with its boxes in order. heights are how many units it is tall, by its columns, as far as that is known.
interface Sized { name: string; boxes: Box[]; runs: Run[]; area: number; widest: number; heights: Map<number, number> }

interface Ranked { box: Box; rank: number }

// sized are the groups, the largest first, with their boxes in order: size, then rank, then ID.
function sized(nodes: Iterable<Node>, by: Grouping, order: Order): Sized[] {
  const groups = new Map<string, Ranked[]>();
  for (const node of nodes) {
    const name = groupName(node, by);
    const entry = { box: boxOf(node), rank: order.rank(node) };
    const group = groups.get(name);
    if (group) group.push(entry);
    else groups.set(name, [entry]);
  }
  const out: Sized[] = [];
  for (const [name, entries] of groups) {
    entries.sort((a, b) => b.box.height - a.box.height || b.box.width - a.box.width || b.rank - a.rank || (a.box.id < b.box.id ? -1 : 1));
    out.push(groupOf(name, entries.map((e) => e.box)));
  }
  return out.sort((a, b) => b.area - a.area || (a.name < b.name ? -1 : 1));
}

function groupOf(name: string, boxes: Box[]): Sized {
  const out: Sized = { name, boxes, runs: [], area: 0, widest: 0, heights: new Map() };
  for (const { width, height } of boxes) {
    out.area += width * height;
    out.widest = Math.max(out.widest, width);
    const last = out.runs.at(-1);
    if (last?.width === width && last.height === height) last.count++;
    else out.runs.push({ width, height, count: 1 });
  }
  return out;
}

// Grid is a strip of cells that grows downwards, with one bit for each cell that is taken.
class Grid {
  private words: number;
  private bits = new Int32Array(4096);
  // band has the cells that are taken in any of the rows that a box would cover.
  private band: Int32Array;

  constructor(readonly columns: number) {
    this.words = Math.ceil(columns / 32);
    this.band = new Int32Array(this.words);
  }

  // look makes the band of the rows of boxes that begin in a row.
  private look(y: number, height: number) {
    const { words, band } = this;
    if ((y + height) * words > this.bits.length) {
      const bits = new Int32Array(2 * (y + height) * words);
      bits.set(this.bits);
      this.bits = bits;
    }
    band.fill(0);
    for (let i = y * words, end = i + height * words; i < end; i += words) for (let k = 0; k < words; k++) band[k]! |= this.bits[i + k]!;
  }

  // pack puts boxes of one size into the first free places, row by row, and passes each place to put. It returns the last row, plus one.
  pack(run: Run, put: ((x: number, y: number) => void) | null): number {
    const { words, band } = this;
    const width = Math.min(run.width, this.columns);
    // Boxes of twelve columns also begin at every fourth.
    const step = width === 12 ? 4 : width;
    const mask = width >= 32 ? -1 : (1 << width) - 1;
    let y = 0;
    this.look(y, run.height);
    for (let x = 0, left = run.count; left > 0;) {
      if (x + width > this.columns) {
        x = 0;
        y += run.height;
        this.look(y, run.height);
      }
      const [at, shift] = [x >> 5, x & 31];
      if (band[at] === -1) { // no box begins in a full word
        x += step * Math.ceil((32 - shift) / step);
        continue;
      }
      const first = mask << shift;
      const second = shift + width > 32 ? mask >>> (32 - shift) : 0;
      if (band[at]! & first || (second && band[at + 1]! & second)) {
        x += step;
        continue;
      }
      for (let row = y; row < y + run.height; row++) {
        this.bits[row * words + at]! |= first;
        if (second) this.bits[row * words + at + 1]! |= second;
      }
      band[at]! |= first;
      if (second) band[at + 1]! |= second;
      put?.(x, y);
      x += width;
      left--;
    }
    return y + run.height;
  }
}

// packed places the boxes of a group in order, at most so many columns wide, and returns its height. Equal boxes fill rows; boxes of twelve
// columns leave holes of four, which smaller ones fill.
function packed(g: Sized, columns: number, put: ((box: Box, x: number, y: number) => void) | null): number {
  const grid = new Grid(columns);
  let next = 0;
  let height = 0;
  for (const run of g.runs) height = Math.max(height, grid.pack(run, put && ((x, y) => put(g.boxes[next++]!, x, y))));
  return height;
}

// heightOf is packed for its height alone, which the search for the unit asks for again and again.
function heightOf(g: Sized, columns: number): number {
  let height = g.heights.get(columns);
  if (height === undefined) g.heights.set(columns, height = packed(g, columns, null));
  return height;
}

// leastHeight is what heightOf is at least, without placing a box: that of the area. Narrow groups cut boxes.
const leastHeight = (g: Sized, columns: number) => (columns < g.widest ? 0 : Math.ceil(g.area / columns));

export interface Frame { width: number; height: number }

const padding = 12;
const header = 24;
const gap = 8;
const narrow = 520;

// few is below how many nodes the map is a small one, largest how large a unit of it is at most, in px; usual that of other maps. At a larger
// unit than the usual one, no box is cut for want of columns.
const few = 20;
const largest = 360;
const usual = 34;

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

// Place is where a group stands: x and columns in units, y and height in pixels and units.
interface Place { group: Sized; x: number; columns: number; y: number; height: number }

interface Placed { places: Place[]; height: number }

// stacked places all groups at a unit of so many pixels, with the heights that a function gives them.
function stacked(rows: Sized[][], frame: Frame, unit: number, heightOf: (g: Sized, columns: number) => number): Placed {
  const columns = Math.max(2, Math.floor((frame.width - 2 * padding) / unit));
  const places: Place[] = [];
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
      const height = heightOf(g, wide);
      places.push({ group: g, x, columns: wide, y, height });
      x += wide + between;
      tallest = Math.max(tallest, height);
    });
    y += header + tallest * unit + gap;
  }
  return { places, height: y };
}

// laidOut has the boxes of groups that are placed.
function laidOut(placed: Placed, unit: number): Layout {
  const out: Layout = { unit, groups: [], rects: [], height: placed.height, header };
  for (const p of placed.places) {
    const at = { x: padding + p.x * unit, y: p.y };
    out.groups.push({ name: p.group.name, ids: p.group.boxes.map((b) => b.id), ...at, width: p.columns * unit, height: p.height * unit });
    packed(p.group, p.columns, (box, x, y) => {
      const width = Math.min(box.width, p.columns);
      out.rects.push({
        id: box.id, units: width === box.width ? box : { ...box, width }, x: at.x + x * unit, y: at.y + header + y * unit, width: width * unit,
        height: box.height * unit,
      });
    });
  }
  return out;
}

// abreast puts so many groups side by side.
const abreast = (groups: Sized[], many: number): Sized[][] =>
  Array.from({ length: Math.ceil(groups.length / many) }, (_, i) => groups.slice(i * many, (i + 1) * many));

// layout is the largest at which all boxes fit the frame. A small fleet may stand in other rows for it. Its cost is that of the heights of
// all groups at those of 14 units that their area allows, and of one placement of all boxes; six times that for a small fleet.
export function layout(nodes: ReadonlyMap<string, Node>, by: Grouping, frame: Frame, order: Order): Layout {
  const groups = sized(nodes.values(), by, order);
  const low = nodes.size > 2000 ? 1.2 : 2.2;
  const rows = [rowsOf(groups, frame)];
  if (nodes.size < few) for (let many = 1; many <= Math.min(5, groups.length); many++) rows.push(abreast(groups, many));
  let best: { unit: number; placed: Placed } | null = null;
  for (const r of rows) {
    const found = largestOf(r, frame, low, nodes.size < few ? largest : usual);
    if (found && found.unit > (best?.unit ?? 0) + 1) best = found; // a pixel is not worth other rows
  }
  return best ? laidOut(best.placed, best.unit) : laidOut(stacked(rows[0]!, frame, low, heightOf), low);
}

// largestOf is the largest unit between two at which the rows fit the frame, and where they then are; null if not even the smallest does.
function largestOf(rows: Sized[][], frame: Frame, low: number, high: number): { unit: number; placed: Placed } | null {
  const fitting = (unit: number) => {
    if (stacked(rows, frame, unit, leastHeight).height > frame.height) return null;
    const placed = stacked(rows, frame, unit, heightOf);
    const whole = unit <= usual || placed.places.every((p) => p.columns >= p.group.widest && (p.x + p.columns) * unit <= frame.width - 2 * padding);
    return whole && placed.height <= frame.height ? placed : null;
  };
  const most = fitting(high);
  if (most) return { unit: high, placed: most };
  let best = fitting(low);
  if (!best) return null;
  for (let i = 0; i < 12; i++) {
    const middle = (low + high) / 2;
    const placed = fitting(middle);
    if (placed) [low, best] = [middle, placed];
    else high = middle;
  }
  return { unit: low, placed: best };
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
  private named: Map<string, Rect> | null = null;
  private known: Map<number, Rect[]> | null = null;

  constructor(private rects: Rect[], private size = 64) {}

  // byId and cells are made when they are first asked for: the frame that changes the layout has enough to do.
  get byId(): ReadonlyMap<string, Rect> {
    return (this.named ??= new Map(this.rects.map((r) => [r.id, r])));
  }

  private get cells(): Map<number, Rect[]> {
    if (this.known) return this.known;
    const out = new Map<number, Rect[]>();
    for (const r of this.rects) {
      for (let y = this.cell(r.y); y <= this.cell(r.y + r.height); y++) {
        for (let x = this.cell(r.x); x <= this.cell(r.x + r.width); x++) {
          const key = y * 65536 + x;
          const cell = out.get(key);
          if (cell) cell.push(r);
          else out.set(key, [r]);
        }
      }
    }
    return (this.known = out);
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
