// Lists of any length, of which only what is near the screen is in the document.

import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { count as number } from './format';
import { change } from './route';
import { say } from './parts';

// margin is how far above and below the screen items are in the document, in px: a wheel's turn shows nothing empty.
const margin = 400;

// settle is how long after the last key a list is filtered, in ms.
const settle = 150;

// frames is how many frames it takes at most until all rows around an item are drawn.
const frames = 10;

// scrolling are the events with which a person scrolls, or goes elsewhere.
const scrolling = ['wheel', 'touchmove', 'pointerdown', 'keydown'];

// most is how many heights of items that are gone are remembered.
const most = 1000;

// enough is how many items that have been read tell how high the others will be.
const enough = 3;

// unread begins the names of items that have not been read.
const unread = 'unread ';

interface Items {
  count: number;
  // id tells items apart while others come and go; null for one that has not been read yet.
  id: (i: number) => string | null;
  // estimate is the height of an item in px until some have been drawn.
  estimate: number;
  render: (i: number) => ComponentChildren;
  label: string;
  class?: string;
  // seen gets the range of items in the document, its end excluded.
  seen?: (from: number, to: number) => void;
}

// first is the control of an item that the arrow keys go to; the item itself while it has none.
const first = (item: HTMLElement) => item.querySelector<HTMLElement>('a, button') ?? item;

// LongList scrolls with what it is in. Items have the heights that they are drawn with. The one with the focus stays in the document
// wherever the list is scrolled to. Arrow keys go from item to item, Home and End to the first and the last.
export function LongList({ count, id: idOf, estimate, render, label, class: name, seen }: Items) {
  const list = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const typical = useRef<number | null>(null);
  const [, redraw] = useState(0);
  const [kept, setKept] = useState<string | null>(null);
  const [shown, look] = useShown(list);
  // What is on the screen is looked at again with the heights: drawn for an older place, the list would lose the rows of this one.
  const observer = useHeights(heights, typical, () => {
    look();
    redraw((n) => n + 1);
  });
  const height = typical.current ?? estimate;
  const going = useArrival(list);

  const id = (i: number) => idOf(i) ?? `${unread}${i}`;
  const place = kept?.startsWith(unread) ? Number(kept.slice(unread.length)) : -1;
  if (place >= 0 && place < count && id(place) !== kept) going.current = place; // it has been read
  if (heights.current.size > 2 * count + most) heights.current.clear(); // those of items that are gone
  const starts = new Float64Array(count + 1);
  let keptAt = -1;
  for (let i = 0; i < count; i++) {
    const key = id(i);
    if (key === kept || i === going.current) keptAt = i;
    starts[i + 1] = starts[i]! + (heights.current.get(key) ?? height);
  }
  const from = Math.max(0, indexAt(starts, shown.top - margin));
  const to = Math.min(count, indexAt(starts, shown.bottom + margin) + 1);
  useEffect(() => seen?.(from, to), [from, to, count]);

  const screen = Math.max(1, Math.floor((shown.bottom - shown.top) / height) - 1);
  const key = (e: KeyboardEvent) => {
    const next = nextOf(e, screen, count);
    if (next === null) return;
    e.preventDefault();
    going.current = next;
    setKept(id(next));
    redraw((n) => n + 1);
  };
  const drawn = Array.from({ length: Math.max(0, to - from) }, (_, k) => from + k);
  if (keptAt >= 0 && keptAt < from) drawn.unshift(keptAt);
  if (keptAt >= to) drawn.push(keptAt);
  return (
    <div
      ref={list} class={name} role="list" aria-label={label} onKeyDown={key}
      onFocusIn={(e) => setKept((e.target as HTMLElement).closest<HTMLElement>('[data-id]')?.dataset.id ?? null)}
      onFocusOut={(e) => list.current?.contains(e.relatedTarget as Element | null) || setKept(null)}
    >
      {withGaps(drawn, starts, (i, twice) => {
        // Parts of a list that were read at different times may have an item twice.
        const name = twice(id(i)) ? `${id(i)} ${i}` : id(i);
        return <Item key={name} i={i} count={count} id={name} least={idOf(i) === null ? height : 0} observer={observer}>{render(i)}</Item>;
      })}
    </div>
  );
}

// nextOf is the item that a key goes to from the one it is pressed in; null if it goes nowhere. screen is how many items a page has.
function nextOf(e: KeyboardEvent, screen: number, count: number): number | null {
  const target = e.target as HTMLElement;
  const item = target.closest<HTMLElement>('[data-item]');
  if (!item || first(item) !== target || e.ctrlKey || e.metaKey || e.altKey || e.shiftKey) return null;
  const i = Number(item.dataset.item);
  const next = { ArrowDown: i + 1, ArrowUp: i - 1, PageDown: i + screen, PageUp: i - screen, Home: 0, End: count - 1 }[e.key];
  return next === undefined ? null : Math.min(count - 1, Math.max(0, next));
}

// withGaps are the items that are drawn, in order, and as much room as the others take between them.
function withGaps(
  drawn: number[], starts: Float64Array, item: (i: number, twice: (id: string) => boolean) => ComponentChildren,
): ComponentChildren[] {
  const out: ComponentChildren[] = [];
  let end = 0;
  let gaps = 0;
  const gap = (upTo: number) => {
    if (upTo > end) out.push(<div key={`gap ${gaps++}`} aria-hidden="true" style={{ height: `${starts[upTo]! - starts[end]!}px` }} />);
  };
  const used = new Set<string>();
  for (const i of drawn) {
    gap(i);
    out.push(item(i, (id) => used.size === used.add(id).size));
    end = i + 1;
  }
  gap(starts.length - 1);
  return out;
}

// useArrival moves the focus to an item once it is drawn: the one whose index is put into what it returns. The item is kept on the
// screen until the person scrolls, or all around it has been drawn: rows that are drawn for the first time have other heights.
function useArrival(list: RefObject<HTMLElement | null>): { current: number | null } {
  const going = useRef<number | null>(null);
  const arrived = useRef<HTMLElement | null>(null);
  useLayoutEffect(() => {
    const item = going.current === null ? null : list.current?.querySelector<HTMLElement>(`:scope > [data-item="${going.current}"]`);
    const here = document.activeElement as HTMLElement | null;
    if (item) {
      going.current = null;
      arrived.current = item;
      let frame = 0;
      const leave = () => {
        if (++frame < frames) requestAnimationFrame(leave);
        else if (arrived.current === item) arrived.current = null;
      };
      leave();
      first(item).focus({ preventScroll: true });
    } else if (here?.parentElement === list.current && first(here) !== here) first(here).focus({ preventScroll: true });
    arrived.current?.scrollIntoView({ block: 'nearest' });
  });
  useEffect(() => {
    const leave = () => { arrived.current = null; };
    for (const event of scrolling) addEventListener(event, leave, { capture: true, passive: true });
    return () => scrolling.forEach((event) => removeEventListener(event, leave, { capture: true }));
  }, []);
  return going;
}

// indexAt is the last item that starts at or above a place.
function indexAt(starts: Float64Array, at: number): number {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle]! <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Item has at least a height, in px: what has not been read yet takes as much room as what has been, so that nothing moves when it is.
function Item({ i, count, id, least, observer, children }: {
  i: number; count: number; id: string; least: number; observer: ResizeObserver; children: ComponentChildren;
}) {
  const item = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const here = item.current!;
    observer.observe(here);
    return () => observer.unobserve(here);
  }, []);
  return (
    <div
      ref={item} role="listitem" tabIndex={-1} data-item={i} data-id={id} aria-setsize={count} aria-posinset={i + 1}
      style={least ? { minHeight: `${least}px` } : undefined}
    >
      {children}
    </div>
  );
}

// useHeights observes how high items are, by their IDs, and how high the first that have been read are in the mean: that is typical.
function useHeights(heights: RefObject<Map<string, number>>, typical: { current: number | null }, changed: () => void): ResizeObserver {
  const observer = useRef<ResizeObserver>(undefined);
  observer.current ??= new ResizeObserver((entries) => {
    let differs = false;
    const read: number[] = [];
    for (const e of entries) {
      const id = (e.target as HTMLElement).dataset.id!;
      const height = e.borderBoxSize[0]!.blockSize;
      if (!e.target.isConnected || heights.current!.get(id) === height) continue;
      heights.current!.set(id, height);
      if (!id.startsWith(unread)) read.push(height);
      differs = true;
    }
    if (read.length >= enough) typical.current ??= read.reduce((a, b) => a + b) / read.length;
    if (differs) changed();
  });
  useEffect(() => () => observer.current!.disconnect(), []);
  return observer.current;
}

// useShown is the part of the list that is on the screen, in px from its start, and what looks for it again now.
function useShown(list: RefObject<HTMLElement | null>): [{ top: number; bottom: number }, () => void] {
  const [shown, setShown] = useState({ top: 0, bottom: 1200 });
  const look = () => {
    if (!list.current) return;
    const own = list.current.getBoundingClientRect().top;
    let [top, bottom] = [0, innerHeight];
    for (let e = list.current.closest('.panel, main'); e; e = e.parentElement!.closest('.panel, main')) {
      const around = e.getBoundingClientRect();
      [top, bottom] = [Math.max(top, around.top), Math.min(bottom, around.bottom)];
    }
    const next = { top: Math.round(top - own), bottom: Math.round(bottom - own) };
    setShown((s) => (s.top === next.top && s.bottom === next.bottom ? s : next));
  };
  // Once in a frame at most: heights are measured between two of them.
  const frame = useRef(0);
  const later = () => {
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      look();
    });
  };
  useLayoutEffect(look, []);
  useEffect(later);
  useEffect(() => {
    document.addEventListener('scroll', later, { capture: true, passive: true });
    addEventListener('resize', later);
    return () => {
      document.removeEventListener('scroll', later, { capture: true });
      removeEventListener('resize', later);
      cancelAnimationFrame(frame.current);
    };
  }, []);
  return [shown, look];
}

// filtered is from how many items on a list can be filtered: fewer are seen at a glance.
export const filtered = 20;

// Filter is a field for a text that items of a list have. It is in the address. Found is how many have it; null while it is not known.
// It shows their number, unless that is counted elsewhere.
export function Filter({ what, text, found, counted = true }: { what: string; text: string; found: number | null; counted?: boolean }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => change({ find: typed || null }), settle);
    return () => clearTimeout(timer);
  }, [typed]);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (text && found !== null) say(`${number(found)} found`);
  }, [text, found]);
  return (
    <p class="filter">
      <input type="search" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} placeholder={`Filter ${what}`} aria-label={`Filter ${what}`} spellcheck={false} />
      {counted && text && found !== null && <span class="dim">{number(found)} found</span>}
    </p>
  );
}
