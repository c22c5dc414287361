// Findings of the doctor.

import { useMemo } from 'preact/hooks';
import type { Diagnosis, DoctorFinding, DoctorNotChecked } from './api.gen';
import { useAnswer } from './answer';
import { list, plural, sentence, since } from './format';
import { Segments } from './fleet/page';
import { Filter, LongList, filtered } from './longlist';
import { Code, Empty, Loaded, useNow } from './parts';
import { type Route, change } from './route';
import { Glyph } from './states';

const severities = [
  { name: 'error', label: 'Errors', one: 'Error', glyph: 'not ready' },
  { name: 'warning', label: 'Warnings', one: 'Warning', glyph: 'drifted' },
  { name: 'info', label: 'Information', one: 'Information', glyph: 'steady' },
];

export function DoctorPage({ route }: { route: Route }) {
  const answer = useAnswer<Diagnosis>('/doctor', { every: 60_000 });
  return (
    <div class="page">
      <h1>Doctor</h1>
      <Loaded answer={answer} loading="Making the checks. They read the whole cluster, and the AWS account if it can be read">
        {(d) => <Findings diagnosis={d} severity={route.query.get('severity') ?? 'all'} find={route.query.get('find') ?? ''} />}
      </Loaded>
    </div>
  );
}

// has reports whether a text in lower case is in what the page shows of a finding.
const has = (f: DoctorFinding, text: string) => [f.object, f.seen, f.why, f.check, f.remedy].some((shown) => shown?.toLowerCase().includes(text));

function Findings({ diagnosis: d, severity, find }: { diagnosis: Diagnosis; severity: string; find: string }) {
  const now = useNow(5000);
  const all = list(d.findings);
  const shown = useMemo(
    () => all.filter((f) => (severity === 'all' || f.severity === severity) && (!find || has(f, find.toLowerCase()))), [d, severity, find],
  );
  const items = [{ name: 'all', label: `All ${all.length}` }, ...severities.map((s) => ({
    name: s.name, label: `${s.label} ${all.filter((f) => f.severity === s.name).length}`,
  }))];
  return (
    <>
      <p class="lead">
        {plural(all.length, 'finding')}. {plural(d.checks, 'check')} ran {since(d.at, now)} ago
        {list(d.notChecked).length > 0 && `; ${plural(list(d.notChecked).length, 'check')} could not run`}.
      </p>
      {all.length > 0 && <p><Segments label="Severity" items={items} value={severity} pick={(s) => change({ severity: s === 'all' ? null : s })} /></p>}
      {all.length === 0 && <Empty title="No findings"><p>New findings appear here, and as the metric dovetail_doctor_findings.</p></Empty>}
      {(all.length > filtered || find) && <Filter what="findings" text={find} found={shown.length} />}
      {shown.length === 0 && find && <p class="dim">No finding has this in its text.</p>}
      {shown.length > 0 && (
        <LongList
          class="card" label="Findings" count={shown.length} estimate={120} id={(i) => `${shown[i]!.check} ${shown[i]!.object} ${shown[i]!.seen}`}
          render={(i) => <Finding finding={shown[i]!} />}
        />
      )}
      <NotChecked items={list(d.notChecked)} />
    </>
  );
}

// remedyOf takes the command from the end of a remedy, so that it can be copied. With words after it, it stays in its sentence.
function remedyOf(text: string): { words: string; command: string } {
  const [, words = '', command = ''] = /^(?:(.*): )?(kubectl .*)$/s.exec(text) ?? [];
  const bare = command.replace(/'[^']*'/g, '');
  return !command || /, (and|or) |;(?! (aws|kubectl) )/.test(bare) ? { words: text, command: '' } : { words: words && `${words}:`, command };
}

function Finding({ finding: f }: { finding: DoctorFinding }) {
  const s = severities.find((x) => x.name === f.severity);
  const given = f.command || f.manifest;
  const { words, command } = given ? { words: '', command: given } : remedyOf(f.remedy);
  return (
    <article class="finding">
      <div class="with-glyph"><Glyph state={s?.glyph ?? 'steady'} />{s?.one ?? f.severity}</div>
      <div>
        <p class="dim">{f.object}</p>
        <h2>{sentence(f.seen)}</h2>
        <p class="dim">{sentence(f.why)}.</p>
        <p class="faint mono">{f.check}</p>
      </div>
      <div class="remedy">{words && <p class="pre">{sentence(words)}</p>}{command && <Code text={command} />}</div>
    </article>
  );
}

// NotChecked lists checks by the cause for which they could not run.
function NotChecked({ items }: { items: DoctorNotChecked[] }) {
  const causes = new Map<string, string[]>();
  for (const i of items) causes.set(i.cause, [...(causes.get(i.cause) ?? []), i.check]);
  if (causes.size === 0) return null;
  return (
    <section>
      <h2>Could not run</h2>
      <ul class="reasons">
        {[...causes].map(([cause, checks]) => <li>{cause}: <span class="dim">{checks.join(', ')}</span></li>)}
      </ul>
    </section>
  );
}
