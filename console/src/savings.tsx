// Savings: what the same pods would cost, which single switches would save how much, and what decisions have saved.

import type { AssessSwitch, AssessTitledOutcome, Assessment, Decisions } from './api.gen';
import { useAbout } from './about';
import { useAnswer } from './answer';
import { useDecisions } from './decisionfeed';
import { DecisionRow } from './decisions';
import { isExported } from './exported';
import { clause, differs, dollars, list, monthly, plural, sentence, since } from './format';
import { clusterNow } from './live';
import { Banner, Code, Computing, Empty, Loaded, useNow } from './parts';
import { href, poolHref } from './route';

// refresh is how often an assessment is read again, soon how often while one is made, in ms.
const refresh = 60_000;
const soon = 2_000;

// useAssessment is the last assessment. One of a large cluster is made only if it is asked to compute.
export function useAssessment(compute = false) {
  const answer = useAnswer<Assessment>(`/assessment${compute ? '?compute=true' : ''}`, { every: refresh });
  const again = useAnswer<Assessment>(answer.data?.computing ? '/assessment' : null, { every: soon });
  return again.data ? { ...answer, data: again.data } : answer;
}

export function SavingsPage() {
  const answer = useAssessment(true);
  const about = useAbout();
  return (
    <div class="page">
      <h1>Savings</h1>
      <Loaded answer={answer} loading="Planning what the same pods would cost on other nodes">{(a) => <Report of={a} />}</Loaded>
      {about?.decisions && <Realized />}
    </div>
  );
}

function Report({ of: a }: { of: Assessment }) {
  const now = useNow(5000);
  const about = useAbout();
  if (!a.at) {
    return a.computing ? <Computing text="What the same pods would cost on other nodes is being planned: 2,000 nodes take a minute" />
      : <Banner kind="warn"><b>Not assessed:</b> {a.notComputed}.</Banner>;
  }
  if (a.notComputed) return <Banner kind="warn"><b>Not assessed:</b> {a.notComputed}.</Banner>;
  const age = now - Date.parse(a.at);
  return (
    <>
      <p class="lead">{list(a.sentences).join(' ')}</p>
      <div class="report">
        <Outcomes items={list(a.outcomes)} />
        <Switches items={list(a.switches)} />
        {list(a.kept).length > 0 && (
          <section>
            <h2 class="sub">Why nodes stay in the end</h2>
            <div class="scroll" tabIndex={0} role="region" aria-label="Why nodes stay in the end">
              <table>
                <thead><tr><th>Reason</th><th class="num">Nodes</th><th class="num">$ a month</th></tr></thead>
                <tbody>{list(a.kept).map((k) => <tr><td>{sentence(k.reason)}</td><td class="num">{k.nodes}</td><td class="num">{monthly(k.monthlyCost)}</td></tr>)}</tbody>
              </table>
            </div>
          </section>
        )}
        <section>
          <h2 class="sub">In a terminal</h2>
          <Code text="dovetail assess" />
          <p class="faint small">
            {isExported || about?.file ? 'Of the cluster that is shown.' : `Assessed ${age > 0 ? `${since(a.at, now)} ago` : 'now'}${a.computing ? ', and again now' : ''}.`}
            {' '}A month is 730 h. Prices: {a.prices}.
          </p>
        </section>
      </div>
    </>
  );
}

function Outcomes({ items }: { items: AssessTitledOutcome[] }) {
  return (
    <section>
      <h2 class="sub">The same pods would cost</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="The same pods would cost">
        <table>
          <thead><tr><th>On</th><th class="num">Nodes</th><th class="num on-wide">$/h</th><th class="num">$ a month</th><th class="num">Saves a month</th></tr></thead>
          <tbody>
            {items.map((o) => (
              <tr>
                <th scope="row">{o.title}{o.cut && <span class="faint"> and less: the search stopped early</span>}</th>
                <td class="num">{o.nodes || ''}</td><td class="num on-wide">{dollars(o.hourlyCost)}</td><td class="num">{monthly(o.monthlyCost)}</td>
                <td class="num">{Math.abs(o.monthlySavings) >= 0.005 ? monthly(o.monthlySavings) : ''}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Switches({ items }: { items: AssessSwitch[] }) {
  return (
    <section>
      <h2 class="sub">What single switches would save</h2>
      {items.length === 0 ? <p class="dim">No feature gate, protection or constraint costs anything.</p> : (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label="What single switches would save">
            <table>
              <thead><tr><th>Switch</th><th class="num">$/h</th><th class="num">$ a month</th></tr></thead>
              <tbody>
                {items.map((s) => (
                  <tr>
                    <td>{s.name} <span class="faint">{s.kind}</span>{s.text && <div class="dim">{sentence(s.text)}</div>}</td>
                    <td class="num">{dollars(s.hourlySavings)}</td><td class="num">{monthly(s.monthlySavings)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <p class="faint small">These amounts overlap, so they do not add up. A protection or a constraint is there for a reason: this is what it costs.</p>
        </>
      )}
    </section>
  );
}

// most is how many decisions are listed: those that have saved most.
const most = 10;

// Realized is what the decisions of the recording have saved.
function Realized() {
  const answer = useDecisions();
  return (
    <Loaded answer={answer} loading="Reading the recording" rows={2}>{(d) => <Saved of={d} />}</Loaded>
  );
}

function Saved({ of: d }: { of: Decisions }) {
  const saved = (x: Decisions['decisions'] extends (infer T)[] | null ? T : never) => x.realized?.totalSavings ?? 0;
  const best = list(d.decisions).filter((x) => saved(x) > 0).sort((a, b) => saved(b) - saved(a)).slice(0, most);
  const { hourlySavings: hourly, totalSavings: total, nodePools } = d.realized;
  if (list(d.decisions).length === 0) return <Empty title="No decisions"><p>The controller has decided nothing in the last day of its recording.</p></Empty>;
  const words = (v: number, plus: string, minus: string) => (v >= 0 ? `${plus} ${dollars(v)}` : `${minus} ${dollars(-v)}`);
  return (
    <div class="report">
      <section>
        <h2 class="sub">Realized <span class="faint">{plural(list(d.decisions).length, 'decision')}</span></h2>
        <p>
          {!differs(total, 0) && !differs(hourly, 0) ? 'The decisions of the last day of the recording have saved nothing yet.'
            : `The decisions of the last day of the recording ${words(total, 'have saved', 'have cost')} in all, and ${clause(words(hourly, 'save', 'cost'))}/h now.`}
          {' '}<a href={href(['decisions'])}>All decisions</a>
        </p>
        {list(nodePools).length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Realized savings by NodePool">
            <table>
              <thead><tr><th>NodePool</th><th class="num">Saves $/h now</th><th class="num">Saved $</th></tr></thead>
              <tbody>
                {list(nodePools).map((p) => (
                  <tr><th scope="row"><a href={poolHref(p.nodePool)}>{p.nodePool}</a></th><td class="num">{dollars(p.hourlySavings)}</td><td class="num">{dollars(p.totalSavings)}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      {best.length > 0 && (
        <section>
          <h2 class="sub">Decisions that have saved most</h2>
          <ol class="decisions narrow">{best.map((x) => <DecisionRow decision={x} now={clusterNow()} />)}</ol>
        </section>
      )}
    </div>
  );
}
