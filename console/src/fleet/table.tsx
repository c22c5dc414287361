// The fleet as a table: the same nodes, for those who read rather than look. Only rows on the screen are in the document.

import { useRef, useState } from 'preact/hooks';
import type { Node } from '../api.gen';
import { dollars, percent, since } from '../format';
import { clusterNow } from '../live';
import { nodeHref } from '../route';
import { Glyph, stateOf } from '../states';
import { requested } from './layout';

const rowHeight = 30;
const margin = 8;

interface Column { name: string; numeric?: boolean; value: (n: Node) => string | number; cell: (n: Node) => preact.ComponentChild }

const text = (name: string, value: (n: Node) => string): Column => ({ name, value, cell: value });

const columns: Column[] = [
  { name: 'Node', value: (n) => n.name, cell: (n) => <a href={nodeHref(n.name)}>{n.name}</a> },
  text('NodePool', (n) => n.nodePool),
  text('Instance type', (n) => n.instanceType),
  text('Capacity', (n) => n.capacityType),
  text('Zone', (n) => n.zone),
  {
    name: 'State', value: (n) => stateOf(n.state).label,
    cell: (n) => <span class="with-glyph"><Glyph state={n.state} />{stateOf(n.state).label}</span>,
  },
  { name: 'Pods', numeric: true, value: (n) => n.pods, cell: (n) => n.pods },
  { name: 'Requested', numeric: true, value: requested, cell: (n) => percent(requested(n)) },
  {
    name: '$/h', numeric: true, value: (n) => n.hourlyCost ?? -1,
    cell: (n) => (n.hourlyCost === null ? <span title="The catalog has no price for it">?</span> : dollars(n.hourlyCost)),
  },
  { name: 'Age', numeric: true, value: (n) => -Date.parse(n.created), cell: (n) => since(n.created, clusterNow()) },
];

export function FleetTable({ nodes, selected }: { nodes: Node[]; selected: string | null }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [sort, setSort] = useState({ column: 0, down: false });
  const by = columns[sort.column]!;
  const sorted = nodes.toSorted((a, b) => {
    const [x, y] = [by.value(a), by.value(b)];
    return (x < y ? -1 : x > y ? 1 : a.id < b.id ? -1 : 1) * (sort.down ? -1 : 1);
  });
  const height = scroller.current?.clientHeight ?? 800;
  const from = Math.max(0, Math.floor(top / rowHeight) - margin);
  const to = Math.min(sorted.length, Math.ceil((top + height) / rowHeight) + margin);
  return (
    <div class="rows" ref={scroller} onScroll={(e) => setTop(e.currentTarget.scrollTop)} tabIndex={0} role="region" aria-label="Nodes">
      <table aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            {columns.map((c, i) => (
              <th class={c.numeric ? 'num' : ''} aria-sort={sort.column === i ? (sort.down ? 'descending' : 'ascending') : undefined}>
                <button onClick={() => setSort({ column: i, down: sort.column === i ? !sort.down : !!c.numeric })}>{c.name}</button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {from > 0 && <tr aria-hidden="true"><td colSpan={columns.length} style={{ height: `${from * rowHeight}px` }} /></tr>}
          {sorted.slice(from, to).map((n, i) => (
            <tr key={n.id} aria-rowindex={from + i + 2} class={n.id === selected ? 'on' : ''}>
              {columns.map((c) => <td class={c.numeric ? 'num' : ''}>{c.cell(n)}</td>)}
            </tr>
          ))}
          {to < sorted.length && (
            <tr aria-hidden="true"><td colSpan={columns.length} style={{ height: `${(sorted.length - to) * rowHeight}px` }} /></tr>
          )}
        </tbody>
      </table>
    </div>
  );
}
