// What pods cost, by namespace or by a label: rows of the fleet's table.

import type { CostRow, Costs } from '../api.gen';
import { useAbout } from '../about';
import { useAnswer } from '../answer';
import { csv, download, fileName } from '../csv';
import { bytes, cores, count, dollars, list, monthly, plural } from '../format';
import { clusterNow } from '../live';
import { Filter } from '../longlist';
import { Loaded, say } from '../parts';
import { type Route } from '../route';
import { type ColumnOf, sorted } from './columns';
import { Kind, Rows } from './table';

// refresh is how often costs are read again, in ms: they move with each pod.
const refresh = 10_000;

// hoursAMonth are those of a month on average.
const hoursAMonth = 730;

// nameOf is what a row is of.
export function nameOf(r: CostRow, label: string): string {
  switch (r.rowKind) {
    case 'unrequested': return 'Not requested';
    case 'without': return `Without label ${label}`;
    case 'others': return `${count(Number(r.name))} more`;
  }
  return r.name || '(empty)';
}

// columnsOf are those of costs by namespace, or by a label. All is what the nodes cost, in $/h.
export function columnsOf(label: string, all: number): ColumnOf<CostRow>[] {
  const title = label ? `Label ${label}` : 'Namespace';
  const share = (r: CostRow) => (all > 0 ? r.hourlyCost / all : 0);
  return [
    { key: 'name', name: title, value: (r) => r.name, cell: (r) => nameOf(r, label), file: [[title, (r) => nameOf(r, label)]] },
    { key: 'pods', name: 'Pods', numeric: true, value: (r) => r.pods, cell: (r) => (r.rowKind === 'unrequested' ? '' : count(r.pods)), file: [['Pods', (r) => r.pods]] },
    { key: 'cpu', name: 'CPU requested', numeric: true, value: (r) => r.cpuMillicores, cell: (r) => cores(r.cpuMillicores), file: [['CPU (millicores)', (r) => r.cpuMillicores]] },
    { key: 'memory', name: 'Memory requested', numeric: true, value: (r) => r.memoryBytes, cell: (r) => bytes(r.memoryBytes), file: [['Memory (bytes)', (r) => r.memoryBytes]] },
    { key: 'cost', name: '$/h', numeric: true, value: (r) => r.hourlyCost, cell: (r) => dollars(r.hourlyCost), file: [['$/h', (r) => r.hourlyCost]] },
    { key: 'month', name: '$ a month', numeric: true, value: (r) => r.hourlyCost, cell: (r) => monthly(r.hourlyCost * hoursAMonth), file: [['$ a month', (r) => r.hourlyCost * hoursAMonth]] },
    { key: 'share', name: 'Share', numeric: true, value: share, cell: (r) => `${(share(r) * 100).toFixed(1)} %`, file: [['Share', share]] },
  ];
}

// CostTable is by namespace, or by a label: "label:app".
export function CostTable({ by, route }: { by: string; route: Route }) {
  const label = by.startsWith('label:') ? by.slice('label:'.length) : '';
  const answer = useAnswer<Costs>(label ? `/costs?by=label&label=${encodeURIComponent(label)}` : '/costs', { every: refresh });
  return <Loaded answer={answer} loading="Adding up what pods request">{(c) => <Table of={c} by={by} route={route} />}</Loaded>;
}

function Table({ of: c, by, route }: { of: Costs; by: string; route: Route }) {
  const cluster = useAbout()?.cluster ?? '';
  const find = route.query.get('find') ?? '';
  const [key, down] = [route.query.get('sort')?.replace(/^-/, '') ?? 'cost', route.query.get('sort')?.startsWith('-') ?? true];
  const columns = columnsOf(c.label, c.hourlyCost);
  const sortedBy = columns.find((x) => x.key === key) ?? columns[4]!;
  const all = list(c.rows);
  const values = all.filter((r) => r.rowKind === 'value' && nameOf(r, c.label).toLowerCase().includes(find.toLowerCase()));
  const rest = all.filter((r) => r.rowKind !== 'value');
  const id = (r: CostRow) => `${r.rowKind} ${r.name}`;
  const rows = sorted(values, sortedBy, down, id);
  const shown = find ? rows : [...rows, ...rest];
  const what = c.label ? `values of ${c.label}` : 'namespaces';
  const save = () => {
    const fields = columns.flatMap((x) => x.file);
    download(fileName([cluster, 'cost', c.label || 'namespace'], clusterNow()), csv(fields.map(([name]) => name), shown.map((r) => fields.map(([, value]) => value(r)))));
    say(`${plural(shown.length, 'row')} saved`);
  };
  return (
    <>
      <div class="table-tools">
        <Kind labels={list(c.labels)} by={by} />
        <Filter what={what} text={find} found={rows.length} counted={false} />
        <span class="dim grow">{dollars(shown.reduce((sum, r) => sum + r.hourlyCost, 0))}/h{find ? ` of ${dollars(c.hourlyCost)}/h` : ' in all'}</span>
        <button class="tool" onClick={save} disabled={shown.length === 0}><span class="long">Download&nbsp;</span>CSV</button>
      </div>
      <p class="cost-rule faint small">
        A pod costs the mean of its shares of the allocatable cpu and memory of its node, times the node’s price; what no pod requests is a row of its own.
        {c.unpriced > 0 && ` ${plural(c.unpriced, 'node')} without a known price count as nothing.`}
      </p>
      {c.unknown ? <p class="no-rows">Pods cannot be read, so their costs are not known.</p>
        : rows.length === 0 && find ? <p class="no-rows">No row has this in its name.</p>
          : <Rows label={`Cost by ${c.label ? `label ${c.label}` : 'namespace'}`} rows={rows} shown={columns} by={sortedBy} down={down} id={id} foot={find ? [] : rest} />}
    </>
  );
}
