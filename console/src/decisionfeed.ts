// The decisions of the recording: read once, and then only those of the last minutes, whenever the server states that there are others.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Decisions, RecorderDecision } from './api.gen';
import { type Answer, useAnswer } from './answer';
import { list } from './format';
import { useLive } from './live';

// whole is how often all decisions are read again, in ms: for what they have saved, and what became of one that is older than the overlap.
const whole = 60_000;

// overlap is how far before the end of the last answer decisions are read again, in ms: most have an outcome by then.
const overlap = 10 * 60_000;

// useRecorded changes when the recording has other decisions, or something has become of one.
export const useRecorded = (): number => useLive((l) => l.recorded);

// merged are decisions, the latest first, with those of a later answer in place of the same ones.
export function merged(all: RecorderDecision[], newer: RecorderDecision[]): RecorderDecision[] {
  const later = new Map(newer.map((d) => [d.id, d]));
  const kept = all.map((d) => later.get(d.id) ?? d);
  for (const d of all) later.delete(d.id);
  return later.size === 0 ? kept : [...later.values(), ...kept].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
}

// useDecisions follows the recording. An answer states up to which decision it goes, so that none is missed and none is read in vain.
export function useDecisions(): Answer<Decisions> {
  const recorded = useRecorded();
  const all = useAnswer<Decisions>('/decisions', { every: whole });
  const [since, setSince] = useState<string | null>(null);
  useEffect(() => {
    const end = all.data?.to;
    if (end && recorded && recorded !== all.data!.recorded) setSince(new Date(Date.parse(end) - overlap).toISOString());
  }, [recorded, all.data]);
  const newer = useAnswer<Decisions>(since && `/decisions?since=${encodeURIComponent(since)}`, { trigger: recorded });
  const held = useRef<{ of: Decisions | null; with: Decisions | null; data: Decisions | null }>({ of: null, with: null, data: null });
  if (held.current.of !== all.data) held.current = { of: all.data, with: null, data: all.data };
  const { data, with: known } = held.current;
  if (data && newer.data && newer.data !== known && newer.at >= all.at) {
    held.current = { ...held.current, with: newer.data, data: { ...data, to: newer.data.to, decisions: merged(list(data.decisions), list(newer.data.decisions)) } };
  }
  return { ...all, data: held.current.data };
}
