// The keys of the page, as a dialog.

import { useEffect, useRef } from 'preact/hooks';
import type { View } from './app';
import { colorings } from './fleet/colors';
import { Icon } from './parts';

type Keys = [keys: string[], what: string];

const groupsOf = (views: View[]): [string, Keys[]][] => [
  ['Anywhere', [
    [['/'], 'Search, as Ctrl-K or Cmd-K'], [['?'], 'These keys'], [['Esc'], 'Close what is open'],
    ...views.map((v): Keys => [['g', v.key], v.label]),
  ]],
  ['Map', [
    [['←', '→', '↑', '↓'], 'To the nearest node'], [['Enter'], 'Open the node'], [['+', '−'], 'Zoom'], [['0'], 'Show all'],
    ...colorings.map((c, i): Keys => [[String(i + 1)], `Color by ${c.label.charAt(0).toLowerCase()}${c.label.slice(1)}`.replace('nodePool', 'NodePool')]),
  ]],
  ['Lists', [[['↑', '↓'], 'To the next item'], [['PgUp', 'PgDn'], 'A screen'], [['Home', 'End'], 'To the first, to the last']]],
  ['Timeline', [[['←', '→'], 'A minute'], [['PgUp', 'PgDn'], '30 minutes'], [['Home', 'End'], 'To the start, to the end']]],
];

export function KeysDialog({ views, close }: { views: View[]; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="palette keys-dialog" aria-labelledby="keys-title" onClose={close} onClick={(e) => e.target === dialog.current && close()}>
      <header>
        <h2 id="keys-title">Keys</h2>
        <button class="icon-button" aria-label="Close" onClick={close}><Icon name="close" /></button>
      </header>
      <div class="keys-body" tabIndex={0} role="region" aria-label="List of keys">
        {groupsOf(views).map(([name, keys]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {keys.map(([combination, what]) => <div><dt>{combination.map((k) => <kbd>{k}</kbd>)}</dt><dd>{what}</dd></div>)}
            </dl>
          </section>
        ))}
      </div>
    </dialog>
  );
}
