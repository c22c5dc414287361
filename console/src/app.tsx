// The shell: top bar, rail, and the view of the address.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { About, Diagnosis } from './api.gen';
import { About as AboutContext } from './about';
import { useAnswer } from './answer';
import { ClustersPage, Picker, useClusters } from './clusters';
import { DecisionPage, DecisionsPage } from './decisions';
import { DoctorPage } from './doctor';
import { isExported } from './exported';
import { colorings } from './fleet/colors';
import { FleetPage, StaleBanner } from './fleet/page';
import { count, plural, span } from './format';
import { useLive } from './live';
import { NodePage } from './node';
import { NodeClaimPage } from './nodeclaim';
import { NodeClassPage } from './nodeclass';
import { NodePoolsPage } from './nodepools';
import { KeysDialog } from './keys';
import { Palette } from './palette';
import { Code, Empty, Icon, useClock, useNow } from './parts';
import { RecordedBanner, timeOf } from './past';
import { PendingPage } from './pending';
import { PodPage } from './pod';
import { type Route, change, go, href, parse, useRoute } from './route';
import { SavingsPage } from './savings';
import { TimelinePage } from './timeline';
import { WhatIfPage } from './whatif';

export interface View { name: string; label: string; key: string }

// views are those that this console has: files have no doctor, and decisions need a recording.
function viewsOf(about: About | null): View[] {
  return [
    { name: 'fleet', label: 'Fleet', key: 'f' },
    { name: 'pending', label: 'Pending', key: 'p' },
    { name: 'timeline', label: 'Timeline', key: 't' },
    ...(about?.decisions ? [{ name: 'decisions', label: 'Decisions', key: 'e' }] : []),
    { name: 'savings', label: 'Savings', key: 's' },
    { name: 'nodepools', label: 'NodePools', key: 'n' },
    ...(isExported ? [] : [{ name: 'what-if', label: 'What-if', key: 'w' }]),
    ...(about?.doctor ? [{ name: 'doctor', label: 'Doctor', key: 'd' }] : []),
  ];
}

const stored = 'theme';

function useTheme(): [string, () => void] {
  const [theme, setTheme] = useState(() => localStorage.getItem(stored) ??
    (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  return [theme, () => setTheme((t) => {
    const next = t === 'dark' ? 'light' : 'dark';
    localStorage.setItem(stored, next);
    // The canvas reads the tokens when it renders next, so the attribute is set first.
    document.documentElement.dataset.theme = next;
    return next;
  })];
}

// chord is how long after g a key goes to a view, in ms.
const chord = 900;

// useKeys handles the keys that work everywhere.
function useKeys(views: View[], search: () => void, keys: () => void) {
  const state = useRef({ views, search, keys, g: 0 });
  state.current = { ...state.current, views, search, keys };
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      const target = e.target as HTMLElement;
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if ((e.key === 'k' && (e.metaKey || e.ctrlKey)) || (e.key === '/' && !typing)) {
        e.preventDefault();
        state.current.search();
        return;
      }
      if (typing || e.metaKey || e.ctrlKey || e.altKey || document.querySelector('dialog[open]')) return;
      if (e.key === 'Escape') change({ node: null });
      else if (e.key === '?') state.current.keys();
      else if (e.key === 'g') state.current.g = Date.now();
      else if (Date.now() - state.current.g < chord) {
        state.current.g = 0;
        const view = state.current.views.find((v) => v.key === e.key);
        if (view) go(href([view.name]));
      } else if (/^[1-5]$/.test(e.key) && parse(location.hash).path[0] === 'fleet') {
        change({ color: colorings[Number(e.key) - 1]!.name, only: null });
      }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
}

// arrive moves the focus to a new view, for the keyboard and screen readers. Nobody needs an outline around all of it.
function arrive(main: HTMLElement | null) {
  if (!main) return;
  main.dataset.arrived = '';
  main.addEventListener('blur', () => delete main.dataset.arrived, { once: true });
  main.focus({ preventScroll: true });
}

// parents are the views that pages belong to.
const parents: Record<string, string> = { nodes: 'fleet', nodeclaims: 'fleet', nodeclasses: 'nodepools', pods: '' };

export function App() {
  const route = useRoute();
  const [theme, toggle] = useTheme();
  const [open, setOpen] = useState<'search' | 'keys' | null>(null);
  const about = useAnswer<About>('/about');
  const over = route.path[0] === 'clusters';
  const { names: clusters, known } = useClusters();
  const several = clusters.length > 1;
  const views = [...(several ? [{ name: 'clusters', label: 'Clusters', key: 'c' }] : []), ...(over && several ? [] : viewsOf(about.data))];
  const main = useRef<HTMLElement>(null);
  const focusBefore = useRef<Element | null>(null);
  const show = (dialog: 'search' | 'keys') => () => {
    focusBefore.current = document.activeElement;
    setOpen(dialog);
  };
  const close = () => {
    setOpen(null);
    (focusBefore.current as HTMLElement | null)?.focus?.({ preventScroll: true });
  };
  const search = show('search');
  useKeys(views, search, show('keys'));
  const [belongs, setBelongs] = useState({ path: '', view: '' }); // a page may state which view it belongs to
  const path = route.path.join('/');
  const here = belongs.path === path ? belongs.view : parents[route.path[0]!] ?? route.path[0]!;
  const title = views.find((v) => v.name === here)?.label ?? (over ? 'Clusters' : here === '' ? 'Pod' : 'Not found');
  const object = route.path.length > 1 ? route.path.at(-1) : here === 'nodepools' ? route.query.get('pool') : null;
  const page = `${path} ${object ?? ''}`;
  useEffect(() => {
    document.title = `${object || title} · Dovetail`;
  }, [object, title]);
  const first = useRef(true);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    if (!first.current) arrive(main.current);
    first.current = false;
  }, [page]);
  const end = useLive((l) => l.at);
  return (
    <AboutContext.Provider value={about.data}>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to content</a>
      <Top about={about.data} clusters={clusters} over={over} search={search} theme={toggle} />
      {/* A link must not be another one when the button of the mouse goes up: there are none before all are known. */}
      <Rail views={known && (about.data || about.problem) ? views : []} here={here} about={about.data} keys={show('keys')} />
      <main ref={main} id="main" tabIndex={0}>
        {!over && <StaleBanner />}
        {about.data?.recorded && end && !timeOf(route) && <RecordedBanner view={route.path[0]!} end={end} />}
        <Content route={route} theme={theme} about={about.data} belongs={(view) => setBelongs({ path, view })} />
      </main>
      {open === 'search' && <Palette views={views} theme={toggle} keys={show('keys')} close={close} />}
      {open === 'keys' && <KeysDialog views={views} close={close} />}
      <div id="say" class="sr" aria-live="polite" />
    </AboutContext.Provider>
  );
}

function Content({ route, theme, about, belongs }: { route: Route; theme: string; about: About | null; belongs: (view: string) => void }) {
  const [view, a, b] = route.path;
  const at = timeOf(route);
  switch (view) {
    case 'clusters': return <ClustersPage />;
    case 'fleet': return <FleetPage route={route} theme={theme} />;
    case 'nodes': if (a) return <NodePage key={`${a} ${at}`} name={a} at={at} />; break;
    case 'pods': if (a && b) return <PodPage key={`${a}/${b} ${at}`} name={`${a}/${b}`} at={at} belongs={belongs} />; break;
    case 'pending': return <PendingPage route={route} />;
    case 'nodeclasses': if (a) return <NodeClassPage key={a} name={a} />; break;
    case 'nodeclaims': if (a) return <NodeClaimPage key={`${a} ${at}`} name={a} at={at} />; break;
    case 'nodepools': return <NodePoolsPage route={route} />;
    case 'timeline': return <TimelinePage route={route} theme={theme} about={about} />;
    case 'savings': return <SavingsPage />;
    case 'what-if': return <WhatIfPage route={route} />;
    case 'doctor': if (about?.doctor !== false) return <DoctorPage route={route} />; break;
    case 'decisions': if (about?.decisions !== false) return a ? <DecisionPage key={a} id={a} /> : <DecisionsPage route={route} />; break;
  }
  return (
    <div class="page">
      <h1>{view === 'decisions' ? 'Decisions' : view === 'doctor' ? 'Doctor' : 'Not found'}</h1>
      <NoView view={view!} />
    </div>
  );
}

// NoView is why a view is not there.
function NoView({ view }: { view: string }) {
  if (view === 'decisions') {
    return (
      <Empty title="This console has no recording">
        <p>A controller records what it decides, and why. This shows a recording beside the cluster:</p>
        <Code text="dovetail console --recording decisions.rec" />
      </Empty>
    );
  }
  if (view === 'doctor') {
    return (
      <Empty title="Only a live cluster can be checked">
        <p>This console shows files or a recording. This makes the checks of the cluster of a context:</p>
        <Code text="dovetail doctor --context production" />
      </Empty>
    );
  }
  return <Empty title="This console has no such view"><p><a href={href(['fleet'])}>Fleet</a> shows all nodes.</p></Empty>;
}

function Top({ about, clusters, over, search, theme }: {
  about: About | null; clusters: string[]; over: boolean; search: () => void; theme: () => void;
}) {
  const nodes = useLive((l) => l.nodes?.size ?? null);
  return (
    <header class="top">
      <a class="brand" href={href(['fleet'])} aria-label="Dovetail, fleet">
        <svg viewBox="0 0 20 20" aria-hidden="true">
          <path class="brand-top" d="M1 3h18v6h-4.5l1.2 4H4.3l1.2-4H1z" /><path class="brand-bottom" d="M1 17v-6.6h2.7L2.2 15.5h15.6l-1.5-5.1H19V17z" />
        </svg>
        <span>Dovetail</span>
      </a>
      <span class="cluster"><Picker name={about?.cluster} all={clusters} />{nodes !== null && !over && <span class="tag">{plural(nodes, 'node')}</span>}</span>
      <span class="grow" />
      {!over && <Age file={about?.file ?? false} recorded={about?.recorded ?? false} />}
      <button class="find" onClick={search} aria-label="Search nodes, pods, views" aria-keyshortcuts="/">
        <Icon name="search" /><span>Search nodes, pods, views</span><kbd aria-hidden="true">/</kbd>
      </button>
      <button class="icon-button" onClick={theme} aria-label="Switch between dark and light"><Icon name="theme" /></button>
    </header>
  );
}

// Age is how old the data is. It never pretends to be live.
function Age({ file, recorded }: { file: boolean; recorded: boolean }) {
  const live = useLive((l) => ({ connection: l.connection, lostAt: l.lostAt, link: l.link, at: l.at, loaded: l.nodes !== null }));
  const now = useNow();
  const clock = useClock();
  if (file) {
    const words = recorded ? ['Recording', 'until'] : ['Snapshot', 'of'];
    return <span class="age"><i class="dot stale" /><span>{words[0]}{live.at && ` ${words[1]} ${live.at.slice(0, 16).replace('T', ' ')} UTC`}</span></span>;
  }
  if (live.connection === 'lost') return <span class="age"><i class="dot lost" /><span class="warn">Disconnected for {span(clock - live.lostAt)}</span></span>;
  if (live.link?.lost) return <span class="age"><i class="dot stale" /><span class="warn">Stale for {span(now - Date.parse(live.link.lost))}</span></span>;
  if (!live.loaded) return <span class="age"><i class="dot stale" /><span>Reading</span></span>;
  return <span class="age"><i class="dot live" /><span>Live · {new Date(now).toISOString().slice(11, 19)} UTC</span></span>;
}

function Rail({ views, here, about, keys }: { views: View[]; here: string; about: About | null; keys: () => void }) {
  const pending = useLive((l) => l.summary?.pending ?? 0);
  const prices = useLive((l) => l.summary?.cost.prices ?? '');
  // The doctor's checks read the whole cluster: their count is shown once its view has been opened.
  const [visited, setVisited] = useState(false);
  useEffect(() => {
    if (here === 'doctor') setVisited(true);
  }, [here]);
  const findings = useAnswer<Diagnosis>(visited ? '/doctor' : null, { every: 60_000 });
  const errors = findings.data?.findings?.some((f) => f.severity === 'error');
  const counts: Record<string, number> = { pending, doctor: findings.data?.findings?.length ?? 0 };
  return (
    <nav aria-label="Main">
      {views.map((v) => (
        <a key={v.name} href={href([v.name])} aria-current={v.name === here ? 'page' : undefined} title={v.label}>
          <Icon name={v.name} /><span>{v.label}</span>
          {!!counts[v.name] && <span class={v.name === 'doctor' && errors ? 'n bad' : 'n'}>{count(counts[v.name]!)}</span>}
        </a>
      ))}
      <div class="about"><button onClick={keys} aria-keyshortcuts="?"><kbd aria-hidden="true">?</kbd> Keys</button><br />{[about?.version, 'read-only'].filter(Boolean).join(' · ')}{prices && <><br />Prices: {prices}</>}</div>
    </nav>
  );
}
