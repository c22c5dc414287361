// Numbers and times in words, the same everywhere.

const sign = (v: number) => (v < 0 ? '−' : '');

// least makes up for what sums of prices lose, so that the same prices in another order have the same digits.
const least = 1e-9;

// dollars is an hourly price. Three decimals tell the smallest instance types apart.
export function dollars(v: number): string {
  const a = Math.abs(v) + least;
  return `${a < 0.0005 ? '' : sign(v)}$${a >= 1000 ? count(Math.round(a)) : a.toFixed(a >= 10 ? 2 : 3)}`;
}

// price is dollars, or "price not known".
export const price = (v: number | null) => (v === null ? 'price not known' : `${dollars(v)}/h`);

// change is a difference in $/h with its sign.
export const change = (v: number) => (v <= -0.0005 ? dollars(v) : `+${dollars(Math.abs(v))}`);

export const count = (n: number) => n.toLocaleString('en-US');

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const percent = (share: number) => `${Math.round(share * 100)} %`;

export function cores(millis: number): string {
  const v = millis / 1000;
  return v >= 100 || Number.isInteger(v) ? count(Math.round(v)) : v.toFixed(v < 1 ? 2 : 1);
}

const units = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];

export function bytes(n: number): string {
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${n >= 10 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[i]}`.trim();
}

// span is a duration in ms, in its two largest units at most.
export function span(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 24) return m % 60 && h < 10 ? `${h} h ${m % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return h % 24 && d < 10 ? `${d} d ${h % 24} h` : `${d} d`;
}

export const since = (iso: string, now: number) => span(now - Date.parse(iso));

// clock is a time of day in UTC, with the date if it is another day.
export function clock(iso: string, now: number): string {
  const at = new Date(iso).toISOString();
  const time = at.slice(11, 19);
  return at.slice(0, 10) === new Date(now).toISOString().slice(0, 10) ? time : `${at.slice(5, 10)} ${time.slice(0, 5)}`;
}

// rounded writes prices in a text as the page writes all others.
const rounded = (text: string) => text.replace(/\$(\d+\.\d{3,})(?=\/h)/g, (_, v: string) => dollars(Number(v)));

// sentence begins with a capital unless its first word is a name or a command, such as c7g.large, and spells kinds as Kubernetes does.
export function sentence(text: string): string {
  if (/^nodepool /.test(text)) return rounded(`NodePool${text.slice(8)}`);
  return rounded(/^(?!kubectl |dovetail |aws )[a-z’']+([\s,:;]|$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);
}

// clause continues a sentence: it begins with a small letter, unless its first word is a name or an abbreviation.
export const clause = (text: string) => rounded(/^[A-Z][a-z]* /.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text);

// list makes the array that a missing one stands for.
export const list = <T,>(items: T[] | null | undefined): T[] => items ?? [];

// shortName is a node's name without the domain that all nodes of a cluster share.
export const shortName = (name: string) => (name.startsWith('ip-') ? name.replace(/\..*$/, '') : name);

// shortNames shortens the names of nodes within a text.
export const shortNames = (text: string) => text.replace(/\b(ip-\d+-\d+-\d+-\d+)\.[\w.-]*internal\b/g, '$1');
