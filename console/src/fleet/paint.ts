// Draws the map on a canvas. It reads values and keeps none.

import type { Node, Pod } from '../api.gen';
import { count, dollars, percent, plural } from '../format';
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
  now: number;
}

// Tokens are the colors of the theme.
export type Tokens = Record<string, string>;

// readTokens reads each token when it is first needed.
export function readTokens(): Tokens {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({} as Tokens, { get: (known, name: string) => (known[name] ??= style.getPropertyValue(name).trim()) });
}

// podDetail is the shorter side of a box in pixels from which its pods are drawn.
export const podDetail = 30;

// visible are the boxes on the screen.
export function visible(layout: Layout, view: View): Rect[] {
  return layout.rects.filter((r) => {
    const x = r.x * view.zoom + view.x;
    const y = r.y * view.zoom + view.y;
    return x <= view.width && y <= view.height && x + r.width * view.zoom >= 0 && y + r.height * view.zoom >= 0;
  });
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

export class Painter {
  constructor(private g: CanvasRenderingContext2D, private tokens: Tokens) {}

  // paint draws the whole map, or only a part of it.
  paint(scene: Scene, view: View, part: Part | null = null) {
    const { g } = this;
    g.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    g.textBaseline = 'middle';
    if (!part) {
      g.clearRect(0, 0, view.width, view.height);
      this.boxes(scene, view, visible(scene.layout, view));
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

  private boxes(scene: Scene, view: View, rects: Rect[]) {
    const flat = scene.layout.unit * view.zoom < 3.3;
    for (const rect of rects) {
      const node = scene.nodes.get(rect.id);
      if (node) this.box(scene, view, { rect, node, flat });
    }
  }

  private box(scene: Scene, view: View, { rect, node, flat }: { rect: Rect; node: Node; flat: boolean }) {
    const { g, tokens } = this;
    const width = rect.width * view.zoom;
    const height = rect.height * view.zoom;
    const shorter = Math.min(width, height);
    const space = spaceBeside(shorter);
    const b = {
      x: rect.x * view.zoom + view.x + space / 2, y: rect.y * view.zoom + view.y + space / 2, width: width - space, height: height - space,
      shorter,
    };
    const dim = scene.highlight !== null && binKey(node, scene.coloring, scene.now) !== scene.highlight;
    g.globalAlpha = dim ? 0.16 : 1;
    const fill = tokens[tokenOf(node, scene.coloring, scene.bins, scene.now)] ?? '#888888';
    if (flat || shorter < 8) this.cell(scene, node, { ...b, fill });
    else this.detailed(scene, node, { ...b, fill });
    g.globalAlpha = 1;
  }

  // cell is a box of a few pixels: its color, and a state that waits as an inset.
  private cell(scene: Scene, node: Node, b: Painted) {
    const { g, tokens } = this;
    const look = stateOf(node.state);
    g.fillStyle = b.fill;
    g.fillRect(b.x, b.y, b.width, b.height);
    if (scene.coloring === 'state' && look.waits && b.shorter >= 4.5) {
      const inset = Math.max(1, Math.min(b.width, b.height) * 0.22);
      g.fillStyle = tokens[look.token]!;
      g.fillRect(b.x + inset, b.y + inset, b.width - 2 * inset, b.height - 2 * inset);
    }
  }

  private detailed(scene: Scene, node: Node, b: Painted) {
    const { g, tokens } = this;
    const byState = scene.coloring === 'state';
    const look = stateOf(node.state);
    const label = b.width > 84 && b.height > 56;
    const alpha = g.globalAlpha;
    g.fillStyle = tokens['--sunken']!;
    g.fillRect(b.x, b.y, b.width, b.height);
    if (byState && look.name === 'in flight') g.globalAlpha = alpha * 0.35;
    const inner = { x: b.x + 1, y: b.y + 1 + (label ? 18 : 0), width: b.width - 2, height: b.height - 2 - (label ? 18 : 0) };
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
    g.strokeStyle = tokens[byState && look.name !== 'steady' ? look.token : '--line2']!;
    if (look.name === 'in flight') g.setLineDash([3, 2]);
    g.strokeRect(b.x + 0.5, b.y + 0.5, b.width - 1, b.height - 1);
    g.setLineDash([]);
    const badge = byState && b.shorter >= 15 && !['steady', 'in flight', 'draining'].includes(look.name);
    if (badge) this.badge(look.name, tokens[look.token]!, { ...b, y: b.y + (label ? 1 : 0) });
    if (label) this.label(node, b, badge ? 32 : 18);
  }

  private pods(node: Node, pods: Pod[], b: Painted) {
    const { g, tokens } = this;
    // The smallest pods still get a cell that can be seen: a hundredth of the largest.
    const weights = new Map(pods.map((p) => [p, dominant(node, p.cpuMillicores, p.memoryBytes)]));
    const floor = Math.max(...weights.values()) / 100 || 1;
    const sorted = pods.toSorted((x, y) => Number(x.daemon) - Number(y.daemon) || weights.get(y)! - weights.get(x)!);
    const line = b.shorter > 90 ? 1 : 0.6;
    const alpha = g.globalAlpha;
    g.font = `10.5px ${tokens['--font']}`;
    const letter = g.measureText('average').width / 7;
    for (const c of squarify(sorted, (p) => Math.max(floor, weights.get(p)!), b)) {
      const width = c.width - line;
      const height = c.height - line;
      if (width < 0.4 || height < 0.4) continue;
      g.globalAlpha = alpha * (c.item.daemon ? 0.5 : 1);
      g.fillStyle = b.fill;
      g.fillRect(c.x, c.y, width, height);
      g.globalAlpha = alpha;
      if (c.item.daemon || width < 28 || height < 15 || b.width < 100 || alpha < 0.5) continue;
      const name = c.item.workload;
      const fits = Math.floor((width - 8) / letter);
      if (fits < 6 && name.length > fits) continue;
      g.fillStyle = darkInk(b.fill) ? '#10151c' : '#ffffff';
      g.fillText(name.length > fits ? `${name.slice(0, fits - 1)}…` : name, c.x + 4, c.y + Math.min(height / 2, 9) + 0.5, width - 6);
    }
  }

  private hatch(b: Painted) {
    const { g, tokens } = this;
    g.save();
    g.beginPath();
    g.rect(b.x, b.y, b.width, b.height);
    g.clip();
    g.strokeStyle = tokens['--surface']!;
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
    const surface = tokens['--surface']!;
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

  private label(node: Node, b: Painted, taken: number) {
    const { g, tokens } = this;
    const name = node.instanceType || node.name;
    g.fillStyle = tokens['--text']!;
    g.font = `600 11px ${tokens['--font']}`;
    const width = g.measureText(name).width;
    if (width + 10 > b.width) return;
    g.fillText(name, b.x + 6, b.y + 10.5);
    g.font = `11px ${tokens['--font']}`;
    g.fillStyle = tokens['--text2']!;
    const use = percent(requested(node));
    const cost = node.pricePerHour === null ? '' : ` · ${dollars(node.pricePerHour)}/h`;
    for (const text of [`${node.capacityType} · ${use}${cost}`, `${node.capacityType} · ${use}`, use]) {
      if (width + g.measureText(text).width + taken < b.width) {
        g.fillText(text, b.x + 12 + width, b.y + 10.5);
        return;
      }
    }
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
      const parts = groupNumbers(group.ids, scene.nodes);
      g.font = `600 12px ${tokens['--font']}`;
      if (view.zoom > 1) {
        const box = Math.min(x + width - left + 4, g.measureText(`${group.name}   ${parts.join('  ')}`).width + 14);
        g.fillStyle = tokens['--bg']!;
        g.fillRect(left - 6, y - 10, box, 20);
        g.strokeStyle = tokens['--line2']!;
        g.lineWidth = 1;
        g.strokeRect(left - 5.5, y - 9.5, box - 1, 19);
      }
      g.fillStyle = tokens['--text']!;
      g.fillText(group.name, left, y);
      let at = left + g.measureText(group.name).width + 8;
      g.font = `12px ${tokens['--font']}`;
      g.fillStyle = tokens['--text3']!;
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
    cost += n.pricePerHour ?? 0;
    if (n.pricePerHour === null) unpriced++;
  }
  const price = unpriced === ids.length ? 'price not known' : `${dollars(cost)}/h${unpriced ? ` + ${count(unpriced)} unpriced` : ''}`;
  return [plural(ids.length, 'node'), ...(allocatable ? [`cpu ${percent(asked / allocatable)}`] : []), price];
}
