// The fleet as a table: the same nodes, for those who read rather than look. Only rows on the screen are in the document.

import { useRef, useState } from 'preact/hooks';
import type { LabelKey, Node } from '../api.gen';
import { useAbout } from '../about';
import { csv, download, fileName } from '../csv';
import { count, dollars, plural } from '../format';
import { clusterNow } from '../live';
import { Filter } from '../longlist';
import { Menu, say } from '../parts';
import { type Route, change } from '../route';
import { type Column, type ColumnOf, chosen, columns, matching, sorted, toggled } from './columns';

const rowHeight = 30;
const margin = 8;

export function FleetTable({ nodes, selected, route }: { nodes: Node[]; selected: string | null; route: Route }) {
  const { query } = route;
  const keys = query.get('columns');
  const shown = chosen(keys);
  const find = query.get('find') ?? '';
  const [key, down] = [query.get('sort')?.replace(/^-/, '') ?? columns[0]!.key, query.get('sort')?.startsWith('-') ?? false];
  const by = columns.find((c) => c.key === key) ?? columns[0]!;
  const rows = sorted(matching(nodes, find), by, down, (n) => n.id);
  return (
    <>
      <Tools rows={rows} of={nodes.length} shown={shown} keys={keys} find={find} />
      {rows.length === 0 ? <p class="no-rows">{find ? 'No node has all of these words in its texts.' : 'No node is of this entry of the legend.'}</p> : (
        <Rows label="Nodes" rows={rows} shown={shown} by={by} down={down} selected={selected} id={(n) => n.id} />
      )}
    </>
  );
}

// Kind is the menu of what the rows are: nodes, or what pods cost by something.
export function Kind({ labels = [], by = '' }: { labels?: LabelKey[]; by?: string }) {
  return (
    <select aria-label="Rows" value={by} onChange={(e) => change({ by: e.currentTarget.value || null, sort: null, find: null, columns: null })}>
      <option value="">Nodes</option>
      <option value="namespace">Cost by namespace{by ? '' : ' or label'}</option>
      {by.startsWith('label:') && !labels.some((l) => `label:${l.key}` === by) && <option value={by}>Cost by label {by.slice(6)}</option>}
      {labels.map((l) => <option value={`label:${l.key}`}>Cost by label {l.key} ({l.values})</option>)}
    </select>
  );
}

// Tools filter the rows, choose the columns, and download both.
function Tools({ rows, of, shown, keys, find }: { rows: Node[]; of: number; shown: Column[]; keys: string | null; find: string }) {
  const cluster = useAbout()?.cluster ?? '';
  const save = () => {
    const fields = shown.flatMap((c) => c.file);
    download(fileName([cluster, 'nodes'], clusterNow()), csv(fields.map(([name]) => name), rows.map((n) => fields.map(([, value]) => value(n)))));
    say(`${plural(rows.length, 'node')} saved`);
  };
  const cost = rows.reduce((sum, n) => sum + (n.hourlyCost ?? 0), 0);
  return (
    <div class="table-tools">
      <Kind />
      <Filter what="nodes" text={find} found={rows.length} counted={false} />
      <span class="dim grow">{rows.length === of ? plural(of, 'node') : `${count(rows.length)} of ${plural(of, 'node')}`} · {dollars(cost)}/h</span>
      <Menu label="Columns">
        {columns.slice(1).map((c) => (
          <label key={c.key}>
            <input type="checkbox" checked={shown.includes(c)} onChange={() => change({ columns: toggled(keys, c.key) })} />{c.name}
          </label>
        ))}
        <button class="link" disabled={keys === null} onClick={() => change({ columns: null })}>As at first</button>
      </Menu>
      <button class="tool" onClick={save} disabled={rows.length === 0}><span class="long">Download&nbsp;</span>CSV</button>
    </div>
  );
}

// Rows are a table of any length. A press on the head of a column sorts by it.
export function Rows<T>({ label, rows, shown, by, down, selected = null, id, foot = [] }: {
  label: string; rows: T[]; shown: ColumnOf<T>[]; by: ColumnOf<T>; down: boolean; selected?: string | null; id: (row: T) => string; foot?: T[];
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = scroller.current?.clientHeight ?? 800;
  const from = Math.max(0, Math.min(Math.floor(top / rowHeight), rows.length) - margin);
  const to = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + margin);
  const sort = (c: ColumnOf<T>) => {
    const next = c === by ? !down : !!c.numeric;
    change({ sort: c === shown[0] && !next ? null : `${next ? '-' : ''}${c.key}` });
  };
  return (
    <div class="rows" ref={scroller} onScroll={(e) => setTop(e.currentTarget.scrollTop)} tabIndex={0} role="region" aria-label={label}>
      <table aria-rowcount={rows.length + foot.length + 1} style={{ minWidth: `${90 * shown.length}px` }}>
        <thead>
          <tr>
            {shown.map((c) => (
              <th key={c.key} class={c.numeric ? 'num' : ''} aria-sort={c === by ? (down ? 'descending' : 'ascending') : undefined}>
                <button onClick={() => sort(c)}>{c.name}</button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {from > 0 && <tr aria-hidden="true"><td colSpan={shown.length} style={{ height: `${from * rowHeight}px` }} /></tr>}
          {rows.slice(from, to).map((n, i) => (
            <tr key={id(n)} aria-rowindex={from + i + 2} class={id(n) === selected ? 'on' : ''}>
              {shown.map((c) => <td key={c.key} class={c.numeric ? 'num' : ''}>{c.cell(n)}</td>)}
            </tr>
          ))}
          {to < rows.length && (
            <tr aria-hidden="true"><td colSpan={shown.length} style={{ height: `${(rows.length - to) * rowHeight}px` }} /></tr>
          )}
          {foot.map((n, i) => (
            <tr key={id(n)} aria-rowindex={rows.length + i + 2} class="rest">{shown.map((c) => <td key={c.key} class={c.numeric ? 'num' : ''}>{c.cell(n)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
