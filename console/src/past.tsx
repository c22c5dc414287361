// Pages of a recorded time: which one it is, and what leads back.

import type { ComponentChildren } from 'preact';
import type { Past } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { isExported, withoutServer } from './exported';
import { Banner } from './parts';
import { type Route, change, href } from './route';

// timeOf is the recorded time of an address, as RFC 3339; empty for now, and for a time that is none.
export function timeOf(route: Route): string {
  const at = Date.parse(route.query.get('t') ?? '');
  // A pass is found by the first full second after it.
  return Number.isNaN(at) ? '' : `${new Date(Math.ceil(at / 1000) * 1000).toISOString().slice(0, 19)}Z`;
}

// asOf is the query of an explanation of a time; empty for now.
export const asOf = (at: string) => (at ? `?at=${encodeURIComponent(at)}` : '');

export const day = (iso: string) => iso.slice(0, 10);
export const time = (iso: string) => iso.slice(11, 19);

// PastBanner names the time that is shown, and leads back.
export function PastBanner({ at, children, back }: { at: string; children?: ComponentChildren; back?: () => void }) {
  const about = useAbout();
  return (
    <div class="banner past" role="status">
      <span><b>You see the past:</b> {day(at)} {time(at)} UTC{children}.</span>
      <button class="button" onClick={back ?? (() => change({ t: null }))}>{about?.recorded ? 'To the end' : 'Back to live'}</button>
    </div>
  );
}

// PageTime is the banner of a page that explains one object at a recorded time; nothing for now.
export function PageTime({ at }: { at: string }) {
  if (!at) return null;
  return <PastBanner at={at}>, as the controller saw it{isExported && ' after the last change before, ten minutes earlier at most'}. <a href={href(['timeline'], { t: at })}>The fleet then</a></PastBanner>;
}

// RecordedBanner states that a recording is all there is.
export function RecordedBanner({ view, end }: { view: string; end: string }) {
  if (view === 'timeline' || view === 'decisions') return null;
  return (
    <Banner kind="warn">
      <b>A recording, without a cluster.</b> This is what its last pass saw, on {day(end)} at {time(end)} UTC.
      {' '}<a href={href(['timeline'])}>Timeline</a> shows any minute before it.
      {isExported && ` ${withoutServer}`}
    </Banner>
  );
}

// recordingOption makes a command explain a recorded time; empty for a live cluster.
export const recordingOption = (at: string, recorded: string) => {
  if (!at && !recorded) return '';
  return ` --recording ${recorded || 'decisions.rec'}${at ? ` --at ${at}` : ''}`;
};

// usePast is the fleet at a recorded time.
export const usePast = (at: string) => useAnswer<Past>(at ? `/past${asOf(at)}` : null);
