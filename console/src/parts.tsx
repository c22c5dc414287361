// What several views are made of.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from './api.gen';
import type { Answer } from './answer';
import { sentence, span } from './format';
import { clusterNow, subscribe } from './live';

const paths: Record<string, string> = {
  fleet: 'M2 2.5h7v6H2zM11 2.5h3v6h-3zM2 10.5h4v3H2zM8 10.5h6v3H8z',
  pending: 'M2.2 8a5.8 5.8 0 1 0 11.6 0a5.8 5.8 0 1 0-11.6 0M8 4.6V8l2.3 1.6',
  timeline: 'M1.5 12.5h13M3 10l3-4 3 2.4L13.5 3',
  decisions: 'M2.5 3.5h2M2.5 8h2M2.5 12.5h2M7 3.5h6.5M7 8h6.5M7 12.5h6.5',
  nodepools: 'M2 4.2h12M2 8h12M2 11.8h12M5 2.8v2.8M11 6.6v2.8M6.5 10.4v2.8',
  'what-if': 'M2.5 2.5v11M2.5 8h4l6-4.5M6.5 8l6 4.5',
  savings: 'M2.5 13.5v-9M6.2 13.5v-6M9.9 13.5v-4M13.6 13.5v-2',
  doctor: 'M8 1.8l5.2 2v4c0 3.2-2.2 5.4-5.2 6.4-3-1-5.2-3.2-5.2-6.4v-4zM5.8 7.9l1.6 1.6 2.9-3',
  pod: 'M8 1.8l5.4 3.1v6.2L8 14.2l-5.4-3.1V4.9zM2.8 5L8 8l5.2-3M8 8v6',
  keys: 'M1.5 4h13v8h-13zM4 6.5h.5M7 6.5h.5M10 6.5h.5M12 6.5h.2M5 9.5h6',
  search: 'M2.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M10.5 10.5L14 14',
  clusters: 'M2.5 3h4.5v4H2.5zM9 3h4.5v4H9zM2.5 9h4.5v4H2.5zM9 9h4.5v4H9z',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  open: 'M6 4l4 4-4 4',
  plus: 'M8 3.5v9M3.5 8h9',
  minus: 'M3.5 8h9',
  fit: 'M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  theme: 'M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0M8 2.5v11M8 5l4.5 0M8 8h5.5M8 11h4.5',
  back: 'M13 8H4M7.5 4.5L4 8l3.5 3.5',
};

export const Icon = ({ name, turned = false }: { name: string; turned?: boolean }) => (
  <svg class={turned ? 'icon turned' : 'icon'} viewBox="0 0 16 16" aria-hidden="true"><path d={paths[name]} /></svg>
);

// say announces a text to screen readers.
export function say(text: string) {
  const region = document.getElementById('say');
  if (region) region.textContent = text;
}

export function Code({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1600);
    return () => clearTimeout(timer);
  }, [copied]);
  const pre = useRef<HTMLPreElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission, or not on localhost: the text is selected instead
      getSelection()?.selectAllChildren(pre.current!);
      say('The text is selected: copy it with the keyboard');
      return;
    }
    setCopied(true);
    say('Copied');
  };
  return (
    <div class="code">
      <pre ref={pre}>{text}</pre>
      <button class="icon-button" onClick={copy} aria-label={label} title={copied ? 'Copied' : label}>
        {copied ? <span class="copied">Copied</span> : <Icon name="copy" />}
      </button>
    </div>
  );
}

export function Meter({ share, tick, label }: { share: number; tick?: number | null; label: string }) {
  const at = (v: number) => `${Math.min(100, Math.max(0, v * 100))}%`;
  return (
    <span class="meter" role="img" aria-label={label}>
      <i class={share > 0.95 ? 'full' : ''} style={{ width: at(share) }} />
      {tick !== null && tick !== undefined && <u style={{ left: at(tick) }} />}
    </span>
  );
}

// useNow is the time in ms, again every so many ms; for a snapshot, the time that it was taken at.
export function useNow(every = 1000): number {
  const [now, setNow] = useState(clusterNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(clusterNow()), every);
    // The clock of the server is known after the first rendering: a wrong time does not stay until the next.
    const stop = subscribe(() => setNow((n) => (Math.abs(clusterNow() - n) > 2 * every ? clusterNow() : n)));
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [every]);
  return now;
}

// useClock is the time of this computer in ms, again every second.
export function useClock(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

// useSettled is a value once it has not changed for so many ms.
export function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

// Menu is what a button opens below itself. Escape, or a press elsewhere, closes it.
export function Menu({ label, children }: { label: string; children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const close = (e: Event) => {
      if (!menu.current?.open) return;
      if (e instanceof KeyboardEvent) {
        if (e.key !== 'Escape') return;
        e.stopPropagation();
        menu.current.querySelector('summary')!.focus();
      } else if (menu.current.contains(e.target as Element)) return;
      menu.current.open = false;
    };
    for (const event of ['keydown', 'pointerdown']) addEventListener(event, close, { capture: true });
    return () => ['keydown', 'pointerdown'].forEach((event) => removeEventListener(event, close, { capture: true }));
  }, []);
  return (
    <details class="menu" ref={menu} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary class="tool">{label}</summary>
      {open && <div class="menu-body">{children}</div>}
    </details>
  );
}

export function Banner({ kind, children }: { kind: 'warn' | 'bad'; children: ComponentChildren }) {
  return <div class={`banner ${kind}`} role="status">{children}</div>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <section class="empty"><h2>{title}</h2>{children}</section>;
}

// ProblemText is why there is no answer, and what to do.
export function ProblemText({ problem }: { problem: Problem }) {
  if (problem.code === 'Forbidden') {
    return (
      <Empty title="No permission">
        <p>{sentence(problem.message)}.</p>
        {problem.rule && <><p>A ClusterRole with this rule shows it:</p><Code text={problem.rule} label="Copy the rule" /></>}
      </Empty>
    );
  }
  const titles: Record<string, string> = {
    NotFound: 'Not found', Invalid: 'The address is not valid', Unavailable: 'The cluster does not answer', NoConsole: 'The console does not answer', Internal: 'This failed',
    Unreadable: 'The recording cannot be read', Busy: 'The console is busy',
  };
  return (
    <Empty title={titles[problem.code] ?? 'This failed'}>
      <p>{sentence(problem.message)}</p>
      {['Unavailable', 'NoConsole', 'Unreadable', 'Busy', 'Internal'].includes(problem.code) && <p class="faint">The next attempt is in a few seconds.</p>}
    </Empty>
  );
}

export function Skeleton({ rows = 5, text }: { rows?: number; text: string }) {
  return (
    <div class="skeleton" role="status">
      <p>{sentence(text)}</p>
      {Array.from({ length: rows }, (_, i) => <div key={i} class="bone" />)}
    </div>
  );
}

// Computing stands where an answer of the engine will be, among what is known already.
export const Computing = ({ text }: { text: string }) => <section class="computing" role="status"><p>{text}…</p></section>;

// Loaded shows an answer, and what there is to say about it while there is none, or only an old one.
export function Loaded<T>({ answer, loading, rows, children }: {
  answer: Answer<T>; loading: string; rows?: number; children: (data: T) => ComponentChildren;
}) {
  const now = useClock();
  if (!answer.data) {
    if (answer.problem && answer.problem.code !== 'Loading') return <ProblemText problem={answer.problem} />;
    return <Skeleton rows={rows} text={answer.problem?.message ?? loading} />;
  }
  return (
    <>
      {answer.problem && (
        <Banner kind="warn"><b>This is {span(now - answer.at)} old.</b> {sentence(answer.problem.message)}</Banner>
      )}
      {children(answer.data)}
    </>
  );
}

// Facts are terms with their values; those without one are left out.
export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {items.filter(([, v]) => v !== '' && v !== null && v !== undefined && v !== false).map(([k, v]) => (
        <><dt>{k}</dt><dd>{v}</dd></>
      ))}
    </dl>
  );
}
