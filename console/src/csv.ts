// Tables as CSV (RFC 4180), safe to open in a spreadsheet.

export type Value = string | number | null;

// formula begins a text that a spreadsheet would compute. An apostrophe before it keeps it text.
const formula = /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/;

function field(v: Value): string {
  if (v === null) return '';
  if (typeof v === 'number') return Number.isFinite(v) ? String(v) : '';
  const safe = formula.test(v) ? `'${v}` : v;
  return /[",\r\n]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// csv is a table with its header. Null is an empty field: a value that is not known is not zero.
export const csv = (header: string[], rows: Value[][]): string => [header, ...rows].map((r) => `${r.map(field).join(',')}\r\n`).join('');

// download offers a text as a file. The byte order mark tells spreadsheets that it is UTF-8.
export function download(name: string, text: string) {
  const url = URL.createObjectURL(new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

// fileName is a name that every file system takes: a cluster may be an ARN.
export const fileName = (what: string[], at: number) =>
  `${[...what, new Date(at).toISOString().slice(0, 16)].map((w) => w.replace(/[^\w.-]+/g, '-')).filter(Boolean).join('-')}.csv`;
