// Numbers and times in words, the same everywhere.

// rounded is an amount without its sign in so many decimals: half is rounded up, of the decimal number. The binary fraction of a price may be
// less than the price, and sums of the same prices in another order differ: a little more than an amount stands for it. It is the rule of
// Rounded in internal/report, which a test compares it with.
export const rounded = (a: number, decimals: number): string => (a + Math.max(1e-9, a * 1e-12)).toFixed(decimals);

// grouped has a comma after each three digits of the whole part.
const grouped = (text: string) => text.replace(/^\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ','));

// dollars is an hourly price: with three decimals below $10, which tell the smallest instance types apart, two below $1,000, and none above.
export function dollars(v: number): string {
  const a = Math.abs(v);
  const text = rounded(a, a >= 1000 ? 0 : a >= 10 ? 2 : 3);
  return `${v < 0 && /[1-9]/.test(text) ? '−' : ''}$${grouped(text)}`;
}

// monthly is a cost a month, as dovetail assess has it: in cents below $100.
export function monthly(v: number): string {
  const a = Math.abs(v);
  const text = rounded(a, a < 100 ? 2 : 0);
  return `${v < 0 && /[1-9]/.test(text) ? '−' : ''}$${grouped(text)}`;
}

// price is dollars, or why there is none.
export const price = (v: number | null, reading = false) => (v !== null ? `${dollars(v)}/h` : reading ? 'prices are being read' : 'price not known');

// differs reports whether the difference of two hourly prices shows.
export const differs = (a: number, b: number) => /[1-9]/.test(dollars(a - b));

// change is a difference in $/h with its sign.
export const change = (v: number) => (dollars(v).startsWith('−') ? dollars(v) : `+${dollars(Math.abs(v))}`);

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

// priced writes prices in a text as the page writes all others.
const priced = (text: string) => text.replace(/\$(\d+\.\d{3,})(?=\/h)/g, (_, v: string) => dollars(Number(v)));

// sentence begins with a capital unless its first word is a name or a command, such as c7g.large, and spells kinds as Kubernetes does.
export function sentence(text: string): string {
  if (/^nodepool /.test(text)) return priced(`NodePool${text.slice(8)}`);
  return priced(/^(?!kubectl |dovetail |aws )[a-z’']+([\s,:;]|$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);
}

// clause continues a sentence: it begins with a small letter, unless its first word is a name or an abbreviation.
export const clause = (text: string) => priced(/^[A-Z][a-z]*(['’][a-z]+)? /.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text);

// list makes the array that a missing one stands for.
export const list = <T,>(items: T[] | null | undefined): T[] => items ?? [];

// shortName is a node's name without the domain that all nodes of a cluster share.
export const shortName = (name: string) => (name.startsWith('ip-') ? name.replace(/\..*$/, '') : name);

// shortNames shortens the names of nodes within a text.
export const shortNames = (text: string) => text.replace(/\b(ip-\d+-\d+-\d+-\d+)\.[\w.-]*internal\b/g, '$1');
