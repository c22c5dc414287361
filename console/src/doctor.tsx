// Findings of the doctor.

import type { Diagnosis, DoctorFinding, DoctorNotChecked } from './api.gen';
import { useAnswer } from './answer';
import { list, plural, sentence, since } from './format';
import { Segments } from './fleet/page';
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
        {(d) => <Findings diagnosis={d} severity={route.query.get('severity') ?? 'all'} />}
      </Loaded>
    </div>
  );
}

function Findings({ diagnosis: d, severity }: { diagnosis: Diagnosis; severity: string }) {
  const now = useNow(5000);
  const all = list(d.findings);
  const shown = severity === 'all' ? all : all.filter((f) => f.severity === severity);
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
      {shown.length > 0 && <div class="card">{shown.map((f) => <Finding finding={f} />)}</div>}
      <NotChecked items={list(d.notChecked)} />
    </>
  );
}

function Finding({ finding: f }: { finding: DoctorFinding }) {
  const s = severities.find((x) => x.name === f.severity);
  const fix = f.command || f.manifest;
  return (
    <article class="finding">
      <div class="with-glyph"><Glyph state={s?.glyph ?? 'steady'} />{s?.one ?? f.severity}</div>
      <div>
        <h2>{sentence(f.seen)}</h2>
        <p>{f.object}</p>
        <p class="dim">{sentence(f.why)}.</p>
        <p class="faint mono">{f.check}</p>
      </div>
      <div>{fix ? <Code text={fix} /> : <p class="pre">{sentence(f.remedy)}</p>}</div>
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
