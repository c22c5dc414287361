// Which part of the map a change makes wrong, so that the rest of it is not drawn again.

import type { Group, Index, Layout, Rect } from './layout';

// Area is a rectangle of the canvas in px, along whole device pixels, and the boxes that touch it.
export interface Area { x: number; y: number; width: number; height: number; boxes: Rect[] }

export interface Part { areas: Area[]; groups: Group[] }

interface View { zoom: number; x: number; y: number; width: number; height: number; ratio: number }

// most is how many boxes are drawn one by one. Beyond it, drawing all costs less.
const most = 250;

// aligned is a rectangle of the layout on the canvas, widened to whole device pixels: only these can be cleared without a trace.
function aligned(r: { x: number; y: number; width: number; height: number }, v: View) {
  const from = (at: number) => Math.floor(at * v.ratio) / v.ratio;
  const to = (at: number) => Math.ceil(at * v.ratio) / v.ratio;
  const [x, y] = [from(r.x * v.zoom + v.x), from(r.y * v.zoom + v.y)];
  return { x, y, width: to((r.x + r.width) * v.zoom + v.x) - x, height: to((r.y + r.height) * v.zoom + v.y) - y };
}

// partOf is the part of the map that shows some nodes; null if all of it is to be drawn. While zoomed, headers lie over boxes.
export function partOf(ids: ReadonlySet<string>, layout: Layout, index: Index, view: View): Part | null {
  if (ids.size > most || view.zoom > 1.001) return null;
  const groups = new Set<Group>();
  const areas: Area[] = [];
  const add = (area: Omit<Area, 'boxes'>) => {
    if (area.x > view.width || area.y > view.height || area.x + area.width < 0 || area.y + area.height < 0) return;
    const { zoom } = view;
    areas.push({ ...area, boxes: index.within((area.x - view.x) / zoom, (area.y - view.y) / zoom, area.width / zoom, area.height / zoom) });
  };
  for (const id of ids) {
    const r = index.byId.get(id);
    if (!r) continue;
    add(aligned(r, view));
    const group = layout.groups.find((g) => r.x >= g.x - 0.5 && r.x < g.x + g.width && r.y >= g.y && r.y < g.y + layout.header + g.height);
    if (group) groups.add(group);
  }
  for (const g of groups) add(aligned({ x: g.x, y: g.y, width: g.width, height: layout.header }, view));
  return { areas, groups: [...groups] };
}
