// The columns of the fleet's table, and of its CSV.

import type { ComponentChildren } from 'preact';
import type { Node, TopUse } from '../api.gen';
import type { Value } from '../csv';
import { bytes, cores, dollars, percent, since } from '../format';
import { clusterNow, current } from '../live';
import { readsPrices } from '../nodes';
import { nodeHref } from '../route';
import { Glyph, stateOf } from '../states';
import { groupName, requested } from './layout';

// Column is one of rows of any kind.
export interface ColumnOf<T> {
  // key is in the address.
  key: string;
  name: string;
  numeric?: boolean;
  // hidden columns are shown when they are chosen.
  hidden?: boolean;
  // value sorts, the smallest first.
  value: (row: T) => string | number;
  cell: (row: T) => ComponentChildren;
  // file are the names and values of the column in a CSV: exact, with their units.
  file: [name: string, value: (row: T) => Value][];
}

export type Column = ColumnOf<Node>;

const text = (key: string, name: string, value: (n: Node) => string, hidden = false): Column =>
  ({ key, name, value, cell: value, hidden, file: [[name, value]] });

const unknown = (why: string) => <span title={why}>?</span>;

// amount is a requested or used amount of a resource.
function amount(key: string, name: string, unit: string, of: (n: Node) => TopUse, part: 'requested' | 'used' | 'allocatable', format: (v: number) => string): Column {
  return {
    key, name, numeric: true, hidden: true, value: (n) => of(n)[part] ?? -1,
    cell: (n) => {
      const v = of(n)[part];
      return v === null ? unknown(part === 'used' ? 'There are no metrics of it' : 'Its pods cannot be read') : format(v);
    },
    file: [[`${name} (${unit})`, (n) => of(n)[part]]],
  };
}

const cpu = (n: Node) => n.cpuMillicores;
const memory = (n: Node) => n.memoryBytes;

export const columns: Column[] = [
  { key: 'node', name: 'Node', value: (n) => n.name, cell: (n) => <a href={nodeHref(n.name)}>{n.name}</a>, file: [['Node', (n) => n.name]] },
  text('claim', 'NodeClaim', (n) => n.nodeClaim, true),
  text('pool', 'NodePool', (n) => n.nodePool),
  text('type', 'Instance type', (n) => n.instanceType),
  text('family', 'Family', (n) => groupName(n, 'type'), true),
  text('capacity', 'Capacity', (n) => n.capacityType),
  text('zone', 'Zone', (n) => n.zone),
  {
    key: 'state', name: 'State', value: (n) => stateOf(n.state).label,
    cell: (n) => <span class="with-glyph"><Glyph state={n.state} />{stateOf(n.state).label}</span>, file: [['State', (n) => stateOf(n.state).label]],
  },
  text('why', 'Reason', (n) => n.why, true),
  { key: 'pods', name: 'Pods', numeric: true, value: (n) => n.pods, cell: (n) => n.pods, file: [['Pods', (n) => n.pods]] },
  {
    key: 'requested', name: 'Requested', numeric: true, value: requested, cell: (n) => percent(requested(n)),
    file: [['Requested (share)', (n) => Math.round(requested(n) * 1e4) / 1e4]],
  },
  amount('cpu', 'CPU', 'millicores', cpu, 'allocatable', cores),
  amount('cpu-requested', 'CPU requested', 'millicores', cpu, 'requested', cores),
  amount('cpu-used', 'CPU used', 'millicores', cpu, 'used', cores),
  amount('memory', 'Memory', 'bytes', memory, 'allocatable', bytes),
  amount('memory-requested', 'Memory requested', 'bytes', memory, 'requested', bytes),
  amount('memory-used', 'Memory used', 'bytes', memory, 'used', bytes),
  {
    key: 'cost', name: '$/h', numeric: true, value: (n) => n.hourlyCost ?? -1,
    cell: (n) => (n.hourlyCost === null ? unknown(readsPrices(current().summary) ? 'Prices are being read' : 'The catalog has no price for it') : dollars(n.hourlyCost)), file: [['$/h', (n) => n.hourlyCost]],
  },
  {
    key: 'age', name: 'Age', numeric: true, value: (n) => -Date.parse(n.created), cell: (n) => since(n.created, clusterNow()),
    file: [['Created', (n) => n.created]],
  },
];

// chosen are the columns of the address; those that are not hidden without one. The first is always there: it names the row.
export function chosen(keys: string | null): Column[] {
  const asked = new Set(keys?.split(','));
  const found = columns.filter((c, i) => (keys === null ? !c.hidden : i === 0 || asked.has(c.key)));
  return found.length > 1 ? found : columns.filter((c) => !c.hidden);
}

// toggled is the address with a column more or less; null for the columns without one.
export function toggled(keys: string | null, key: string): string | null {
  const now = new Set(chosen(keys).map((c) => c.key));
  if (!now.delete(key)) now.add(key);
  const next = columns.filter((c) => now.has(c.key));
  return columns.every((c) => now.has(c.key) === !c.hidden) ? null : next.map((c) => c.key).join(',');
}

// searched is what a filter finds a node by: all of its texts, also of columns that are not shown.
const searched = (n: Node) => [n.name, n.nodeClaim, n.nodePool, n.instanceType, n.capacityType, n.zone, stateOf(n.state).label, n.why].join('\n').toLowerCase();

// matching are the nodes that have each word of a text, so that "spot us-east-1a" finds the spot nodes of that zone.
export function matching(nodes: Node[], find: string): Node[] {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? nodes : nodes.filter((n) => {
    const all = searched(n);
    return words.every((w) => all.includes(w));
  });
}

// sorted are rows by a column; equal ones by their ID, so that they do not change places.
export function sorted<T>(rows: T[], by: ColumnOf<T>, down: boolean, id: (row: T) => string): T[] {
  const keyed = rows.map((row) => ({ row, v: by.value(row), id: id(row) }));
  keyed.sort((a, b) => (a.v < b.v ? -1 : a.v > b.v ? 1 : a.id < b.id ? -1 : 1) * (down ? -1 : 1));
  return keyed.map((k) => k.row);
}
