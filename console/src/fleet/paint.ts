// Draws the map on a canvas. It reads values and keeps none.

import type { Node, Pod } from '../api.gen';
import { count, dollars, percent, plural, shortName } from '../format';
import { stateOf } from '../states';
import { type Bin, type Coloring, binKey, dominant, tokenOf } from './colors';
import { type Group, type Layout, type Rect, requested, squarify } from './layout';
import type { Part } from './part';

export interface View { zoom: number; x: number; y: number; width: number; height: number; ratio: number }

export interface Scene {
  layout: Layout;
  nodes: ReadonlyMap<string, Node>;
  coloring: Coloring;
  bins: Map<string, Bin>;
  // highlight dims all boxes outside of a bin; null for none.
  highlight: string | null;
  pods: (n: Node) => Pod[] | null;
  // numbers are those of groupNumbers.
  numbers: (g: Group) => string[];
  now: number;
}

// Tokens are the colors of the theme by name.
export type Tokens = (name: string) => string;

// readTokens reads each token when it is first needed.
export function readTokens(): Tokens {
  const style = getComputedStyle(document.documentElement);
  const known = new Map<string, string>();
  return (name) => {
    let value = known.get(name);
    if (value === undefined) known.set(name, value = style.getPropertyValue(name).trim());
    return value;
  };
}

// podDetail is the shorter side of a box in pixels from which its pods are drawn.
export const podDetail = 30;

// visible reports whether a box is on the screen.
export function visible(r: Rect, { zoom, x, y, width, height }: View): boolean {
  return r.x * zoom + x <= width && r.y * zoom + y <= height && (r.x + r.width) * zoom + x >= 0 && (r.y + r.height) * zoom + y >= 0;
}

const inkCache = new Map<string, boolean>();

// darkInk reports whether black reads better than white on a color.
function darkInk(color: string): boolean {
  let dark = inkCache.get(color);
  if (dark === undefined) {
    const channel = (i: number) => {
      const v = parseInt(color.slice(i, i + 2), 16) / 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    };
    dark = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) > 0.22;
    inkCache.set(color, dark);
  }
  return dark;
}

// spaceBeside is what a box leaves free between itself and the next, in px, by its shorter side on the screen.
export const spaceBeside = (shorter: number) => (shorter < 6 ? 0.6 : shorter < 16 ? 1 : shorter < 60 ? 2 : 3);

// PodCell is the cell of a pod, by the corner of those of its node. name is empty where it has no room, squeezed the width into which it is
// squeezed.
interface PodCell { x: number; y: number; width: number; height: number; daemon: boolean; name: string; squeezed?: number }

// mostWidths bounds the widths of texts that are kept: those of names, prices and shares of a few screens.
const mostWidths = 5000;

export class Painter {
  private cells = new WeakMap<Pod[], { node: Node; width: number; height: number; cells: PodCell[] }>();
  private widths = new Map<string, number>();

  constructor(private g: CanvasRenderingContext2D, private tokens: Tokens) {}

  // paint draws the whole map, or only a part of it.
  paint(scene: Scene, view: View, part: Part | null = null) {
    const { g } = this;
    g.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    g.textBaseline = 'middle';
    if (!part) {
      g.clearRect(0, 0, view.width, view.height);
      this.boxes(scene, view, scene.layout.rects);
      this.headers(scene, view, scene.layout.groups);
      return;
    }
    for (const area of part.areas) {
      g.save();
      g.beginPath();
      g.rect(area.x, area.y, area.width, area.height);
      g.clip();
      g.clearRect(area.x, area.y, area.width, area.height);
      this.boxes(scene, view, area.boxes);
      g.restore();
    }
    this.headers(scene, view, part.groups);
  }

  // boxes draws those of the boxes that are on the screen. There may be ten thousand: each as a cell costs two rectangles, and allocates
  // nothing.
  private boxes(scene: Scene, view: View, rects: Rect[]) {
    const { g, tokens } = this;
    const flat = scene.layout.unit * view.zoom < 3.3;
    for (const rect of rects) {
      if (!visible(rect, view)) continue;
      const node = scene.nodes.get(rect.id);
      if (!node) continue;
      const width = rect.width * view.zoom;
      const height = rect.height * view.zoom;
      const shorter = Math.min(width, height);
      const space = spaceBeside(shorter);
      const x = rect.x * view.zoom + view.x + space / 2;
      const y = rect.y * view.zoom + view.y + space / 2;
      const dim = scene.highlight !== null && binKey(node, scene.coloring, scene.now) !== scene.highlight;
      if (dim) g.globalAlpha = 0.16;
      const fill = tokens(tokenOf(node, scene.coloring, scene.bins, scene.now)) || '#888888';
      if (flat || shorter < 8) {
        g.fillStyle = fill;
        g.fillRect(x, y, width - space, height - space);
        if (scene.coloring === 'state' && shorter >= 4.5) this.inset(node, x, y, width - space, height - space);
      } else this.detailed(scene, node, { x, y, width: width - space, height: height - space, shorter, fill });
      if (dim) g.globalAlpha = 1;
    }
  }

  // inset shows a state that waits in a box of a few pixels.
  private inset(node: Node, x: number, y: number, width: number, height: number) {
    const look = stateOf(node.state);
    if (!look.waits) return;
    const by = Math.max(1, Math.min(width, height) * 0.22);
    this.g.fillStyle = this.tokens(look.token);
    this.g.fillRect(x + by, y + by, width - 2 * by, height - 2 * by);
  }

  private detailed(scene: Scene, node: Node, b: Painted) {
    const { g, tokens } = this;
    const byState = scene.coloring === 'state';
    const look = stateOf(node.state);
    const label = b.width > 84 && b.height > 56 ? (b.width > 150 && b.height > 110 ? 34 : 18) : 0; // px: a line, or one more with the name
    const alpha = g.globalAlpha;
    g.fillStyle = tokens('--sunken');
    g.fillRect(b.x, b.y, b.width, b.height);
    if (byState && look.name === 'in flight') g.globalAlpha = alpha * 0.35;
    const inner = { x: b.x + 1, y: b.y + 1 + label, width: b.width - 2, height: b.height - 2 - label };
    const full = Math.min(1, requested(node));
    const filled = { ...inner, y: inner.y + inner.height * (1 - full), height: inner.height * full };
    const pods = b.shorter >= podDetail ? scene.pods(node) : null;
    if (pods?.length) this.pods(node, pods, { ...filled, fill: b.fill, shorter: b.shorter });
    else {
      g.fillStyle = b.fill;
      g.fillRect(filled.x, filled.y, filled.width, filled.height);
    }
    g.globalAlpha = alpha;
    if (byState && look.name === 'draining') this.hatch(b);
    g.lineWidth = byState && look.waits ? 2 : byState && look.name !== 'steady' ? 1.5 : 1;
    g.strokeStyle = tokens(byState && look.name !== 'steady' ? look.token : '--line2');
    if (look.name === 'in flight') g.setLineDash([3, 2]);
    g.strokeRect(b.x + 0.5, b.y + 0.5, b.width - 1, b.height - 1);
    g.setLineDash([]);
    const badge = byState && b.shorter >= 15 && !['steady', 'in flight', 'draining'].includes(look.name);
    if (badge) this.badge(look.name, tokens(look.token), { ...b, y: b.y + (label ? 1 : 0) });
    if (label) this.label(node, b, badge ? 32 : 18, label > 18);
  }

  private pods(node: Node, pods: Pod[], b: Painted) {
    const { g, tokens } = this;
    const alpha = g.globalAlpha;
    g.fillStyle = b.fill;
    let named = false;
    const cells = this.cellsOf(node, pods, b);
    for (const c of cells) {
      g.globalAlpha = alpha * (c.daemon ? 0.5 : 1);
      g.fillRect(b.x + c.x, b.y + c.y, c.width, c.height);
      named ||= c.name !== '';
    }
    g.globalAlpha = alpha;
    if (!named || alpha < 0.5) return;
    g.font = `10.5px ${tokens('--font')}`;
    g.fillStyle = darkInk(b.fill) ? '#10151c' : '#ffffff';
    for (const c of cells) {
      if (c.name) g.fillText(c.name, b.x + c.x + 4, b.y + c.y + Math.min(c.height / 2, 9) + 0.5, c.squeezed);
    }
  }

  // cellsOf are the cells of pods in a box of this size, which stay while the map is dragged.
  private cellsOf(node: Node, pods: Pod[], { width, height, shorter }: Painted): PodCell[] {
    const known = this.cells.get(pods);
    if (known?.node === node && known.width === width && known.height === height) return known.cells;
    // The smallest pods still get a cell that can be seen: a hundredth of the largest.
    const weights = new Map(pods.map((p) => [p, dominant(node, p.cpuMillicores, p.memoryBytes)]));
    const floor = Math.max(...weights.values()) / 100 || 1;
    const sorted = pods.toSorted((x, y) => Number(x.daemon) - Number(y.daemon) || weights.get(y)! - weights.get(x)!);
    const line = shorter > 90 ? 1 : 0.6;
    const cells: PodCell[] = [];
    for (const c of squarify(sorted, (p) => Math.max(floor, weights.get(p)!), { x: 0, y: 0, width, height })) {
      const cell: PodCell = { x: c.x, y: c.y, width: c.width - line, height: c.height - line, daemon: c.item.daemon, name: '' };
      if (cell.width < 0.4 || cell.height < 0.4) continue;
      if (!cell.daemon && cell.width >= 28 && cell.height >= 15 && width >= 100) this.name(cell, c.item.workload);
      cells.push(cell);
    }
    this.cells.set(pods, { node, width, height, cells });
    return cells;
  }

  // name is as much of a name as a cell has room for: all of it, or six characters at least.
  private name(cell: PodCell, name: string) {
    const font = `10.5px ${this.tokens('--font')}`;
    const fits = Math.floor((cell.width - 8) / (this.widthOf('average', font) / 7));
    if (fits < 6 && name.length > fits) return;
    cell.name = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
    if (this.widthOf(cell.name, font) > cell.width - 6) cell.squeezed = cell.width - 6;
  }

  // widthOf is the width of a text in px. Measuring costs as much as drawing it.
  private widthOf(text: string, font: string): number {
    const key = `${font} ${text}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size >= mostWidths) this.widths.clear();
      this.g.font = font;
      this.widths.set(key, width = this.g.measureText(text).width);
    }
    return width;
  }

  private hatch(b: Painted) {
    const { g, tokens } = this;
    g.save();
    g.beginPath();
    g.rect(b.x, b.y, b.width, b.height);
    g.clip();
    g.strokeStyle = tokens('--surface');
    g.lineWidth = 1.2;
    g.globalAlpha *= 0.75;
    const step = b.shorter < 30 ? 4 : 7;
    for (let i = -b.height; i < b.width; i += step) {
      g.beginPath();
      g.moveTo(b.x + i, b.y + b.height);
      g.lineTo(b.x + i + b.height, b.y);
      g.stroke();
    }
    g.restore();
  }

  private badge(state: string, color: string, b: Painted) {
    const { g, tokens } = this;
    const size = b.shorter > 90 ? 10 : b.shorter > 34 ? 8 : 6;
    const x = b.x + b.width - size - 3;
    const y = b.y + 3;
    const surface = tokens('--surface');
    g.fillStyle = surface;
    g.fillRect(x - 2, y - 2, size + 4, size + 4);
    g.fillStyle = color;
    g.strokeStyle = color;
    if (state === 'drifted' || state === 'not ready') {
      g.beginPath();
      if (state === 'drifted') {
        g.moveTo(x + size / 2, y);
        g.lineTo(x + size, y + size);
        g.lineTo(x, y + size);
        g.fill();
        return;
      }
      g.lineWidth = 2;
      g.moveTo(x, y);
      g.lineTo(x + size, y + size);
      g.moveTo(x + size, y);
      g.lineTo(x, y + size);
      g.stroke();
      return;
    }
    g.fillRect(x, y, size, size);
    g.fillStyle = surface;
    if (state === 'blocked') g.fillRect(x + size * 0.3, y + size * 0.3, size * 0.4, size * 0.4);
    else if (state === 'cordoned') g.fillRect(x + size / 2 - 1, y + 1.5, 2, size - 3);
    else g.fillRect(x + 1.5, y + size / 2 - 1, size - 3, 2);
  }

  // label heads a box with its type, its use and its price, and under them with its name.
  private label(node: Node, b: Painted, taken: number, named: boolean) {
    const { g, tokens } = this;
    const name = node.instanceType || node.name;
    const [bold, plain] = [`600 11px ${tokens('--font')}`, `11px ${tokens('--font')}`];
    const width = this.widthOf(name, bold);
    if (width + taken - 8 > b.width) return;
    g.fillStyle = tokens('--text');
    g.font = bold;
    g.fillText(name, b.x + 6, b.y + 10.5);
    if (named && node.instanceType) {
      g.font = plain;
      g.fillStyle = tokens('--text3');
      const short = shortName(node.name);
      g.fillText(this.widthOf(short, plain) + 12 > b.width ? this.cut(short, b.width - 12) : short, b.x + 6, b.y + 25.5);
    }
    const use = percent(requested(node));
    const cost = node.hourlyCost === null ? '' : ` · ${dollars(node.hourlyCost)}/h`;
    for (const text of [`${node.capacityType} · ${use}${cost}`, `${node.capacityType} · ${use}`, use]) {
      if (width + this.widthOf(text, plain) + taken < b.width) {
        g.font = plain;
        g.fillStyle = tokens('--text2');
        g.fillText(text, b.x + 12 + width, b.y + 10.5);
        return;
      }
    }
  }

  // cut shortens a text to a width in px.
  private cut(text: string, width: number): string {
    if (this.g.measureText(text).width <= width) return text;
    let [least, most] = [1, Math.min(text.length, 200)];
    while (least < most) { // the longest beginning that fits is from least to most
      const middle = Math.ceil((least + most) / 2);
      if (this.g.measureText(`${text.slice(0, middle)}…`).width <= width) least = middle;
      else most = middle - 1;
    }
    return `${text.slice(0, least)}…`;
  }

  // headers name the groups; while zoomed, they stay at the top of what is visible of their group.
  private headers(scene: Scene, view: View, groups: Group[]) {
    const { g, tokens } = this;
    for (const group of groups) {
      const x = group.x * view.zoom + view.x;
      const width = group.width * view.zoom;
      let y = group.y * view.zoom + view.y + scene.layout.header * view.zoom - 11;
      const bottom = (group.y + scene.layout.header + group.height) * view.zoom + view.y;
      if (bottom < 34 || y > view.height + 20 || x > view.width || x + width < 0) continue;
      if (view.zoom > 1) y = Math.max(y, 14);
      const left = Math.max(x, 8);
      const parts = scene.numbers(group);
      g.font = `600 12px ${tokens('--font')}`;
      if (view.zoom > 1) {
        const box = Math.min(x + width - left + 4, g.measureText(`${group.name}   ${parts.join('  ')}`).width + 14);
        g.fillStyle = tokens('--bg');
        g.fillRect(left - 6, y - 10, box, 20);
        g.strokeStyle = tokens('--line2');
        g.lineWidth = 1;
        g.strokeRect(left - 5.5, y - 9.5, box - 1, 19);
      }
      g.fillStyle = tokens('--text');
      const name = this.cut(group.name, x + width - left);
      g.fillText(name, left, y);
      let at = left + g.measureText(name).width + 8;
      g.font = `12px ${tokens('--font')}`;
      g.fillStyle = tokens('--text3');
      for (const text of parts) {
        const wide = g.measureText(text).width;
        if (at + wide > x + width + 2) break;
        g.fillText(text, at, y);
        at += wide + 10;
      }
    }
  }
}

interface Painted { x: number; y: number; width: number; height: number; shorter: number; fill: string }

// groupNumbers are how many nodes, their requested share of cpu, and their price.
export function groupNumbers(ids: string[], nodes: ReadonlyMap<string, Node>): string[] {
  let asked = 0;
  let allocatable = 0;
  let cost = 0;
  let unpriced = 0;
  for (const id of ids) {
    const n = nodes.get(id);
    if (!n) continue;
    asked += n.cpuMillicores.requested ?? 0;
    allocatable += n.cpuMillicores.allocatable;
    cost += n.hourlyCost ?? 0;
    if (n.hourlyCost === null) unpriced++;
  }
  const price = unpriced === ids.length ? 'price not known' : `${dollars(cost)}/h${unpriced ? ` + ${count(unpriced)} unpriced` : ''}`;
  return [plural(ids.length, 'node'), ...(allocatable ? [`cpu ${percent(asked / allocatable)}`] : []), price];
}
