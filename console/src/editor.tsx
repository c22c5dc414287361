// A text to edit, with line numbers and marks at the lines that differ from what it was.

import { useLayoutEffect, useMemo, useRef } from 'preact/hooks';

// most bounds the comparison, whose cost is the product of the numbers of lines that differ.
const most = 2000;

// changed are the indices of the lines of a text that another one does not have: those outside of a longest common subsequence.
export function changed(before: string[], now: string[]): Set<number> {
  let first = 0;
  while (first < before.length && first < now.length && before[first] === now[first]) first++;
  let last = 0;
  while (last < before.length - first && last < now.length - first && before[before.length - 1 - last] === now[now.length - 1 - last]) last++;
  const a = before.slice(first, before.length - last);
  const b = now.slice(first, now.length - last);
  if (a.length > most || b.length > most) return new Set(b.map((_, i) => first + i));
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
    }
  }
  const out = new Set<number>();
  for (let i = 0, j = 0; j < b.length;) {
    if (i < a.length && a[i] === b[j]) {
      i++;
      j++;
    } else if (i < a.length && common[i + 1]![j]! >= common[i]![j + 1]!) i++;
    else out.add(first + j++);
  }
  return out;
}

// Editor is a textarea over its own line numbers. wrong are the lines at fault, from 1.
export function Editor({ label, text, before, wrong, describedBy, onText }: {
  label: string; text: string; before: string; wrong: number[]; describedBy: string; onText: (text: string) => void;
}) {
  const area = useRef<HTMLTextAreaElement>(null);
  const lines = text.split('\n');
  const marks = useMemo(() => changed(before.split('\n'), lines), [before, text]);
  useLayoutEffect(() => {
    // The textarea is as tall as its text, so that only the view scrolls, and the numbers with it.
    if (area.current) area.current.rows = lines.length;
  }, [lines.length]);
  return (
    <div class="editor">
      <div class="gutter" aria-hidden="true">
        {lines.map((_, i) => (
          <span class={`${marks.has(i) ? 'changed' : ''} ${wrong.includes(i + 1) ? 'wrong' : ''}`}>{i + 1}</span>
        ))}
      </div>
      <textarea ref={area} aria-label={label} aria-invalid={wrong.length > 0} aria-describedby={describedBy} spellcheck={false} autocomplete="off"
        autocapitalize="off" wrap="off" value={text} onInput={(e) => onText(e.currentTarget.value)} />
    </div>
  );
}
