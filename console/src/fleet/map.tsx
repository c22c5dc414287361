// The map: one canvas, with pan, zoom, pointer and keyboard.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Node } from '../api.gen';
import { price, percent, plural, since } from '../format';
import { clusterNow, current, subscribe } from '../live';
import { readsPrices } from '../nodes';
import { Icon, say } from '../parts';
import { Glyph, stateOf } from '../states';
import { type Coloring, bins, poolsOf } from './colors';
import { type Group, type Grouping, type Layout, type Rect, Index, Order, layout, next, requested } from './layout';
import { Painter, type View, groupNumbers, readTokens, spaceBeside } from './paint';
import { partOf } from './part';
import { PodCache } from './pods';

const narrow = 860;
// maxZoom makes the smallest box of the largest fleet larger than its label.
const maxZoom = 40;
const step = 1.5;
// atOnce is how many boxes are laid out and drawn within one frame.
const atOnce = 2000;
// room is what the zoom buttons take at the bottom, in px.
const room = 38;

interface Props {
  grouping: Grouping;
  coloring: Coloring;
  highlight: string | null;
  selected: string | null;
  theme: string;
  pick: (n: Node | null) => void;
  // past are the nodes of a recorded time, in ms, in place of the live ones.
  past?: { nodes: ReadonlyMap<string, Node>; at: number };
}

// marks are what outlines a box: elements over the canvas, so that pointing at a box draws nothing else.
const marks = ['hovered', 'focused', 'selected'] as const;

type Mark = (typeof marks)[number];

// Controller joins the live state, the layout and the painter. It lives as long as the canvas.
class Controller {
  private order = new Order();
  private pods = new PodCache((ids) => this.draw(ids));
  private painter!: Painter;
  private layout: Layout | null = null;
  private index = new Index([]);
  // numbers are those of the headers, until a node changes.
  private numbers = new Map<Group, string[]>();
  private view: View = { zoom: 1, x: 0, y: 0, width: 0, height: 0, ratio: 1 };
  private laidOut = '';
  private frame = 0;
  private hovered: Rect | null = null;
  private focused: Rect | null = null;
  private drag: { x: number; y: number; fromX: number; fromY: number; moved: boolean } | null = null;
  private pointers = new Map<number, { x: number; y: number }>();
  // What the next frame draws: all, or the boxes of changed nodes.
  private all = true;
  private changed = new Set<string>();

  constructor(
    private canvas: HTMLCanvasElement, private marks: Record<Mark, HTMLElement>, private props: Props,
    private tip: (n: Node | null, x: number, y: number) => void,
  ) {}

  start(): () => void {
    this.retheme();
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(this.canvas.parentElement!);
    const stop = subscribe(() => {
      this.numbers.clear();
      this.draw(this.props.coloring === 'age' ? 'all' : current().changed ?? 'all');
    });
    this.resize();
    return () => {
      observer.disconnect();
      stop();
      cancelAnimationFrame(this.frame);
    };
  }

  retheme() {
    this.painter = new Painter(this.canvas.getContext('2d')!, readTokens());
    this.draw();
  }

  private resize() {
    const { width, height } = this.canvas.parentElement!.getBoundingClientRect();
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.view = { ...this.view, width, height, ratio };
    this.draw();
  }

  // update takes the properties of a new rendering, most of which change nothing.
  update(next: Props) {
    const before = this.props;
    this.props = next;
    const same = next.coloring === before.coloring && next.grouping === before.grouping && next.highlight === before.highlight &&
      next.past?.nodes === before.past?.nodes;
    if (next.past?.nodes !== before.past?.nodes) this.numbers.clear();
    this.draw(same ? [] : 'all');
  }

  // draw draws all, or the boxes of some nodes, in the next frame. The marks are placed in any case.
  private draw(what: 'all' | string[] = 'all') {
    if (what === 'all') this.all = true;
    else for (const id of what) this.changed.add(id);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  private nodes(): ReadonlyMap<string, Node> | null {
    return this.props.past?.nodes ?? current().nodes;
  }

  // arrange makes the layout if the nodes, the grouping or the room have changed. It returns true if the boxes may be drawn in the next
  // frame: to lay out and to draw 10,000 boxes takes more than one has. A canvas that is empty cannot wait.
  private arrange(nodes: ReadonlyMap<string, Node>): boolean {
    const key = [this.props.past?.at ?? current().members, this.props.grouping, this.view.width, this.view.height].join(' ');
    if (key === this.laidOut) return false;
    const sameRoom = this.layout !== null && this.laidOut.endsWith(` ${this.view.width} ${this.view.height}`);
    this.all = true;
    if (this.laidOut.split(' ')[1] !== this.props.grouping) this.order = new Order();
    this.laidOut = key;
    this.order.keep(nodes);
    this.pods.keep(nodes);
    this.layout = layout(nodes, this.props.grouping, { width: this.view.width, height: this.view.height - room }, this.order);
    this.index = new Index(this.layout.rects);
    this.numbers.clear();
    const same = (r: Rect | null) => (r && this.index.byId.get(r.id)) ?? null;
    [this.hovered, this.focused] = [same(this.hovered), same(this.focused)];
    // Who has come before the nodes, or looks at one that has gone, is at the first: Enter opens it.
    if (!this.focused && document.activeElement === this.canvas) this.first();
    this.clamp();
    return sameRoom && nodes.size > atOnce;
  }

  private paint() {
    const nodes = this.nodes();
    if (!nodes || !this.view.width) return;
    if (this.arrange(nodes)) {
      this.draw();
      return;
    }
    if (this.all || this.changed.size > 0) this.paintBoxes(nodes);
    this.all = false;
    this.changed.clear();
    this.place(nodes);
  }

  private paintBoxes(nodes: ReadonlyMap<string, Node>) {
    const { coloring, highlight } = this.props;
    const pools = coloring === 'pool' ? poolsOf(nodes.values()) : [];
    const part = this.all ? null : partOf(this.changed, this.layout!, this.index, this.view);
    this.painter.paint({
      layout: this.layout!, nodes, coloring, highlight, now: this.props.past?.at ?? clusterNow(),
      bins: new Map(bins(coloring, pools).map((b) => [b.key, b])), pods: (n) => (this.props.past ? null : this.pods.of(n)), numbers: (g) => this.numbersOf(g, nodes),
    }, this.view, part);
  }

  private numbersOf(g: Group, nodes: ReadonlyMap<string, Node>): string[] {
    let out = this.numbers.get(g);
    if (!out) this.numbers.set(g, out = groupNumbers(g.ids, nodes));
    return out;
  }

  // place puts the marks around their boxes.
  private place(nodes: ReadonlyMap<string, Node>) {
    const has = (id: string | null | undefined) => (id && nodes.has(id) ? this.index.byId.get(id) ?? null : null);
    this.mark('hovered', has(this.hovered?.id));
    this.mark('focused', document.activeElement === this.canvas ? has(this.focused?.id) : null);
    this.mark('selected', has(this.props.selected));
  }

  private mark(name: Mark, r: Rect | null) {
    const { style } = this.marks[name];
    style.display = r ? 'block' : 'none';
    if (!r) return;
    const { zoom, x, y } = this.view;
    const space = spaceBeside(Math.min(r.width, r.height) * zoom) / 2;
    style.width = `${r.width * zoom - 2 * space}px`;
    style.height = `${r.height * zoom - 2 * space}px`;
    style.transform = `translate(${r.x * zoom + x + space}px, ${r.y * zoom + y + space}px)`;
  }

  private clamp() {
    const v = this.view;
    const height = Math.max(v.height, this.layout?.height ?? 0);
    v.x = Math.min(0, Math.max(v.width - v.width * v.zoom, v.x));
    v.y = Math.min(0, Math.max(v.height - height * v.zoom, v.y));
  }

  zoom(by: number, x = this.view.width / 2, y = this.view.height / 2) {
    const v = this.view;
    const to = Math.max(1, Math.min(maxZoom, v.zoom * by));
    v.x = x - (x - v.x) * (to / v.zoom);
    v.y = y - (y - v.y) * (to / v.zoom);
    v.zoom = to;
    this.clamp();
    this.draw();
  }

  fit() {
    Object.assign(this.view, { zoom: 1, x: 0, y: 0 });
    this.draw();
  }

  private pan(dx: number, dy: number) {
    if (!dx && !dy) return;
    this.view.x += dx;
    this.view.y += dy;
    this.clamp();
    this.draw();
  }

  private at(e: PointerEvent): Rect | null {
    const r = this.canvas.getBoundingClientRect();
    return this.index.at((e.clientX - r.left - this.view.x) / this.view.zoom, (e.clientY - r.top - this.view.y) / this.view.zoom);
  }

  // larger reports whether there is more than the canvas shows: then a drag or the wheel pans.
  private get larger() {
    return this.view.zoom > 1.001 || (this.layout?.height ?? 0) > this.view.height;
  }

  down = (e: PointerEvent) => {
    this.pointers.set(e.pointerId, { x: e.clientX, y: e.clientY });
    this.drag = { x: e.clientX, y: e.clientY, fromX: this.view.x, fromY: this.view.y, moved: this.pointers.size > 1 };
    this.canvas.setPointerCapture(e.pointerId);
  };

  move = (e: PointerEvent) => {
    if (this.pointers.size === 2 && this.pointers.has(e.pointerId)) {
      this.pinch(e);
      return;
    }
    const d = this.drag;
    if (d && this.larger && (d.moved || Math.hypot(e.clientX - d.x, e.clientY - d.y) > 4)) {
      d.moved = true;
      this.view.x = d.fromX + e.clientX - d.x;
      this.view.y = d.fromY + e.clientY - d.y;
      this.clamp();
      this.draw();
      return;
    }
    const hit = this.at(e);
    if (hit?.id !== this.hovered?.id) {
      this.hovered = hit;
      this.draw([]);
    }
    this.tip(hit && e.pointerType !== 'touch' ? this.nodes()?.get(hit.id) ?? null : null, e.clientX, e.clientY);
  };

  private pinch(e: PointerEvent) {
    const [a, b] = [...this.pointers.values()] as [{ x: number; y: number }, { x: number; y: number }];
    const before = Math.hypot(a.x - b.x, a.y - b.y);
    this.pointers.set(e.pointerId, { x: e.clientX, y: e.clientY });
    const [c, d] = [...this.pointers.values()] as [{ x: number; y: number }, { x: number; y: number }];
    const r = this.canvas.getBoundingClientRect();
    this.zoom(Math.hypot(c.x - d.x, c.y - d.y) / Math.max(1, before), (c.x + d.x) / 2 - r.left, (c.y + d.y) / 2 - r.top);
    if (this.drag) this.drag.moved = true;
  }

  up = (e: PointerEvent) => {
    this.pointers.delete(e.pointerId);
    const moved = this.drag?.moved;
    this.drag = null;
    if (moved || e.type === 'pointercancel') return;
    const hit = this.at(e);
    this.focused = hit ?? this.focused;
    this.props.pick(hit ? this.nodes()?.get(hit.id) ?? null : null);
  };

  leave = () => {
    this.hovered = null;
    this.tip(null, 0, 0);
    this.draw([]);
  };

  wheel = (e: WheelEvent) => {
    if (e.ctrlKey || e.metaKey) this.zoom(Math.exp(-e.deltaY * 0.005), e.offsetX, e.offsetY);
    else if (this.larger) this.pan(-e.deltaX, -e.deltaY);
    else return;
    e.preventDefault();
  };

  key = (e: KeyboardEvent) => {
    const direction = ({ ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] } as Record<string, number[]>)[e.key];
    if (direction) this.walk(direction[0]!, direction[1]!);
    else if (e.key === 'Enter' && this.focused) this.props.pick(this.nodes()?.get(this.focused.id) ?? null);
    else if (e.key === '+' || e.key === '=') this.zoom(step);
    else if (e.key === '-') this.zoom(1 / step);
    else if (e.key === '0') this.fit();
    else return;
    e.preventDefault();
  };

  private walk(dx: number, dy: number) {
    const rects = this.layout?.rects ?? [];
    this.focused = this.focused ? next(rects, this.focused, dx, dy) ?? this.focused : rects[0] ?? null;
    if (this.focused) this.reveal(this.focused);
    this.draw([]);
    this.announce();
  }

  // reveal pans so that a box is on the screen.
  private reveal(r: Rect) {
    const v = this.view;
    const [left, top] = [r.x * v.zoom + v.x, r.y * v.zoom + v.y];
    const [right, bottom] = [left + r.width * v.zoom, top + r.height * v.zoom];
    this.pan(left < 0 ? -left : Math.min(0, v.width - right), top < 0 ? -top : Math.min(0, v.height - bottom));
  }

  private announce() {
    const n = this.focused && this.nodes()?.get(this.focused.id);
    if (!n) return;
    say(`${n.name}, ${n.instanceType}, ${stateOf(n.state).label}, ${percent(requested(n))} requested, ${plural(n.pods, 'pod')}, ` +
      `${price(n.hourlyCost, readsPrices(current().summary))}`);
  }

  focus = () => {
    if (this.focused) this.announce();
    else this.first();
    this.draw([]);
  };

  private first() {
    this.focused = this.layout?.rects[0] ?? null;
    this.announce();
  }

  blur = () => this.draw([]);
}

export function FleetMap(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const controller = useRef<Controller | null>(null);
  const [tip, setTip] = useState<{ node: Node; x: number; y: number } | null>(null);
  useEffect(() => {
    const [hovered, focused, selected] = host.current!.querySelectorAll<HTMLElement>('.mark') as unknown as [HTMLElement, HTMLElement, HTMLElement];
    const c = new Controller(canvas.current!, { hovered, focused, selected }, props, (node, x, y) => setTip(node && { node, x, y }));
    controller.current = c;
    canvas.current!.addEventListener('wheel', c.wheel, { passive: false });
    return c.start();
  }, []);
  useEffect(() => {
    controller.current?.update(props);
  });
  useEffect(() => controller.current?.retheme(), [props.theme]);
  const on = <E,>(name: 'down' | 'move' | 'up' | 'leave' | 'key' | 'focus' | 'blur') => (e: E) =>
    (controller.current?.[name] as ((e: E) => void) | undefined)?.(e);
  return (
    <div class="canvas" ref={host}>
      <canvas
        ref={canvas} tabIndex={0} role="application"
        aria-label="Fleet map. Arrow keys move between nodes, Enter opens one, plus and minus zoom. The table has the same nodes."
        onPointerDown={on('down')} onPointerMove={on('move')} onPointerUp={on('up')} onPointerCancel={on('up')} onPointerLeave={on('leave')}
        onKeyDown={on('key')} onFocus={on('focus')} onBlur={on('blur')}
      />
      {marks.map((name) => <i class={`mark ${name}`} aria-hidden="true" />)}
      {tip && <Tip {...tip} />}
      <div class="zoom" role="group" aria-label="Zoom">
        <button aria-label="Zoom out" onClick={() => controller.current?.zoom(1 / step)}><Icon name="minus" /></button>
        <button aria-label="Show all nodes" onClick={() => controller.current?.fit()}><Icon name="fit" /></button>
        <button aria-label="Zoom in" onClick={() => controller.current?.zoom(step)}><Icon name="plus" /></button>
      </div>
    </div>
  );
}

function Tip({ node, x, y }: { node: Node; x: number; y: number }) {
  const place = {
    left: `${Math.min(innerWidth - 316, x + 14)}px`, top: `${y + 120 > innerHeight ? y - 104 : y + 16}px`,
  };
  return (
    <div class="tip" style={place} aria-hidden="true">
      <div class="tip-title"><Glyph state={node.state} /><b>{node.name}</b></div>
      <div class="dim">{[node.instanceType, node.capacityType, node.zone].filter(Boolean).join(' · ')}</div>
      <div>{percent(requested(node))} requested · {plural(node.pods, 'pod')} · {price(node.hourlyCost, readsPrices(current().summary))}</div>
      <div class="dim">{stateOf(node.state).label}{node.why && `: ${node.why}`} · {since(node.created, clusterNow())} old</div>
    </div>
  );
}

export const isNarrow = () => innerWidth <= narrow;
