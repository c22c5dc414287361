// The states of a node: shape and color together, so that neither has to do alone.

export interface StateLook {
  name: string;
  label: string;
  meaning: string;
  token: string;
  // waits is true for states that only outline a box; the others fill it.
  waits: boolean;
}

const look = (name: string, label: string, meaning: string, waits = false): StateLook => ({
  name, label, meaning, waits, token: `--s-${name.replace(' ', '')}`,
});

// states are in the order of the legend.
export const states = [
  look('steady', 'Steady', 'Nothing is planned for it'),
  look('in flight', 'In flight', 'Launched, and not initialized yet'),
  look('planned', 'Planned removal', 'Consolidation would remove it'),
  look('draining', 'Draining', 'It is being deleted; its pods are evicted'),
  look('drifted', 'Drifted', 'It differs from its NodePool or node class', true),
  look('blocked', 'Blocked', 'It may not be disrupted', true),
  look('cordoned', 'Cordoned', 'It takes no new pods', true),
  look('not ready', 'NotReady', 'Its kubelet does not report Ready'),
];

const byName = new Map(states.map((s) => [s.name, s]));

export const stateOf = (name: string): StateLook => byName.get(name) ?? states[0]!;

const surface = 'var(--surface)';

export function Glyph({ state, size = 12 }: { state: string; size?: number }) {
  const c = `var(${stateOf(state).token})`;
  const box = <rect x="1.5" y="1.5" width="9" height="9" fill={c} />;
  const shapes: Record<string, preact.ComponentChild> = {
    steady: <rect x="2" y="2" width="8" height="8" fill={c} />,
    'in flight': <rect x="2.5" y="2.5" width="7" height="7" fill="none" stroke={c} stroke-width="1.6" stroke-dasharray="2 1.5" />,
    planned: <>{box}<path d="M3.5 6h5" stroke={surface} stroke-width="1.6" /></>,
    draining: <>{box}<path d="M2 7l5-5M5 10l5-5" stroke={surface} stroke-width="1.2" /></>,
    drifted: <path d="M6 1l5 9.5H1z" fill={c} />,
    blocked: <>{box}<rect x="4.5" y="4.5" width="3" height="3" fill={surface} /></>,
    cordoned: <>{box}<path d="M6 3v6" stroke={surface} stroke-width="1.6" /></>,
    'not ready': <path d="M2 2l8 8M10 2l-8 8" stroke={c} stroke-width="2.4" />,
    // No state of a node: its instance has been adopted, and nothing about it changes.
    adopted: <><circle cx="6" cy="6" r="4.2" fill="none" stroke="var(--text2)" stroke-width="1.6" /><circle cx="6" cy="6" r="1.6" fill="var(--text2)" /></>,
  };
  return <svg class="glyph" width={size} height={size} viewBox="0 0 12 12" aria-hidden="true">{shapes[state] ?? shapes.steady}</svg>;
}
