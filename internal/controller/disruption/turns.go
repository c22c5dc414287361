package disruption

import "time"

// abnormal is after how long without its turn people are told of a method.
const abnormal = 15 * time.Minute

// The methods, as the log names them.
const (
	emptiness     = "emptiness"
	staticDrift   = "static-drift"
	drift         = "drift"
	consolidation = "consolidation"
)

// turn is when a method last looked at the cluster, and when that was last said to have been too long ago.
type turn struct{ had, told time.Time }

// tellTurns says which methods have not had their turn for too long, be it that passes take long or do not come, or that others
// always go first.
func (l *Loop) tellTurns() {
	now := l.Now()
	if l.turns == nil {
		l.turns = map[string]turn{}
	}
	for _, name := range []string{emptiness, staticDrift, drift, consolidation} {
		t, known := l.turns[name]
		switch {
		case name == staticDrift && !l.FixedPools:
			continue
		case !known:
			t.had = now
		case now.Sub(t.had) > abnormal && now.Sub(t.told) > abnormal:
			l.Log.Debug("abnormal time between runs", "name", name, "time_since", now.Sub(t.had).String())
			t.told = now
		}
		l.turns[name] = t
	}
}

// hasTurn notes that a method looks at the cluster now.
func (l *Loop) hasTurn(name string) {
	if l.turns == nil {
		l.turns = map[string]turn{}
	}
	l.turns[name] = turn{had: l.Now()}
}
