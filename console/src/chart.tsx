// The chart of spend over time: stacked areas from zero, and the lower bound as a line. uPlot draws it on a canvas.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import type { SpendPoint } from './api.gen';
import { dollars } from './format';

// gap is how far apart two points are at least if minutes between them are not known, in ms.
export const gap = 150_000;

export const total = (p: SpendPoint) => p.reservedHourlyCost + p.onDemandHourlyCost + p.spotHourlyCost;

// priced reports whether the price of any node is known: without one, the cost is not zero, but unknown.
export const priced = (p: SpendPoint) => p.nodes === 0 || p.unpriced < p.nodes;

// axisWidth and right are the room beside the plot, in px. What is aligned with the plot uses them, too: see timeline.css.
const axisWidth = 84;
const right = 20;
const height = 200;

// columns are the series of uPlot, with a hole for each gap. index has the point of each column entry, -1 for a hole.
function columns(points: SpendPoint[]): { data: uPlot.AlignedData; index: number[] } {
  const xs: number[] = [];
  const index: number[] = [];
  const rows: (number | null)[][] = [[], [], [], [], []];
  const push = (x: number, at: number, values: (number | null)[]) => {
    xs.push(x);
    index.push(at);
    values.forEach((v, i) => rows[i]!.push(v));
  };
  points.forEach((p, i) => {
    const at = Date.parse(p.at);
    const before = i > 0 ? Date.parse(points[i - 1]!.at) : at;
    if (at - before > gap) push((before + 60_000) / 1000, -1, [null, null, null, null, null]);
    // undefined entries of the bound are bridged; null is a hole.
    const bound = (p.lowerBound ?? undefined) as number | null;
    push(at / 1000, i, priced(p) ? [total(p), p.reservedHourlyCost + p.onDemandHourlyCost, p.reservedHourlyCost, bound, bound] : [null, null, null, bound, bound]);
  });
  return { data: [xs, ...rows] as uPlot.AlignedData, index };
}

// SpendChart tells which point is below the pointer, and which is pressed. at is the time of the marked moment, in ms.
export function SpendChart({ points, from, to, at, theme, hover, press, label }: {
  points: SpendPoint[]; from: number; to: number; at: number | null; theme: string;
  hover: (index: number | null) => void; press: (at: number) => void; label: string;
}) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const state = useRef({ at, hover, press, index: [] as number[] });
  state.current = { ...state.current, at, hover, press };
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const token = (name: string) => style.getPropertyValue(name).trim();
    const { data, index } = columns(points);
    state.current.index = index;
    // A price holds until the next point: between two there are steps, not slopes that nobody has paid.
    const paths = uPlot.paths.stepped!({ align: 1 });
    const area = (name: string): uPlot.Series => ({ paths, fill: token(name), stroke: token(name), width: 0, points: { show: false } });
    const axis = { stroke: token('--text3'), font: `11px ${token('--font')}`, ticks: { show: false } };
    const u = new uPlot({
      width: host.current!.clientWidth || 600, height, padding: [8, right, 0, 0],
      tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), 'Etc/UTC'),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: true, range: [from / 1000, to / 1000] }, y: { range: (_, __, max) => [0, (max || 1) * 1.08] } },
      axes: [
        {
          ...axis, size: 24, gap: 4, grid: { show: false }, space: 60, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 180, 360].map((m) => m * 60),
          // A time in the corner would be over the zero of the other axis.
          values: (_, values) => values.map((v) => (v * 1000 <= from ? '' : new Date(v * 1000).toISOString().slice(11, 16))),
        },
        { ...axis, size: axisWidth, grid: { stroke: token('--line'), width: 1 }, values: (_, values) => values.map((v) => dollars(v).replace(/\.?0+$/, '')) },
      ],
      series: [
        {}, area('--c-spot'), area('--c-on-demand'), area('--c-reserved'),
        { paths, stroke: token('--surface'), width: 5, points: { show: false } }, { paths, stroke: token('--text'), width: 2, points: { show: false } },
      ],
      hooks: {
        setCursor: [(self) => {
          const i = self.cursor.idx;
          const found = i === null || i === undefined ? -1 : state.current.index[i] ?? -1;
          state.current.hover(found < 0 ? null : found);
        }],
        draw: [(self) => {
          if (state.current.at === null) return;
          const x = Math.round(self.valToPos(state.current.at / 1000, 'x', true));
          const { top, height: tall } = self.bbox;
          self.ctx.fillStyle = token('--accent');
          self.ctx.fillRect(x - devicePixelRatio, top, 2 * devicePixelRatio, tall);
        }],
      },
    }, data, host.current!);
    u.over.addEventListener('click', () => {
      if (u.cursor.left !== undefined && u.cursor.left >= 0) state.current.press(u.posToVal(u.cursor.left, 'x') * 1000);
    });
    plot.current = u;
    const observer = new ResizeObserver(() => {
      const width = host.current?.clientWidth;
      if (width && width !== u.width) u.setSize({ width, height });
    });
    observer.observe(host.current!);
    return () => {
      observer.disconnect();
      u.destroy();
    };
  }, [points, theme, from, to]);
  useEffect(() => plot.current?.redraw(false), [at]);
  return <div class="chart" ref={host} role="img" aria-label={label} />;
}
