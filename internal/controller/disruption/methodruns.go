package disruption

import "time"

// abnormalInterval is the time between runs of a method from which the log reports it, as Karpenter does.
const abnormalInterval = 15 * time.Minute

// The methods, as the log names them.
const (
	methodRepair        = "repair"
	methodEmptiness     = "emptiness"
	methodStaticDrift   = "static-drift"
	methodDrift         = "drift"
	methodExpiration    = "expiration"
	methodConsolidation = "consolidation"
)

// methodRun is when a method last ran, and when the log last reported that as overdue.
type methodRun struct{ last, logged time.Time }

// logOverdueMethods logs the methods that have not run for too long: passes take long, or other methods always go
// first.
func (l *Loop) logOverdueMethods() {
	now := l.Now()
	if l.methodRuns == nil {
		l.methodRuns = map[string]methodRun{}
	}
	for _, name := range []string{methodRepair, methodEmptiness, methodStaticDrift, methodDrift, methodConsolidation} {
		t, known := l.methodRuns[name]
		switch {
		case name == methodStaticDrift && !l.StaticCapacity, name == methodRepair && l.Repairs == nil:
			continue
		case !known:
			t.last = now
		case now.Sub(t.last) > abnormalInterval && now.Sub(t.logged) > abnormalInterval:
			l.Log.Debug("abnormal time between runs", "name", name, "time_since", now.Sub(t.last).String())
			t.logged = now
		}
		l.methodRuns[name] = t
	}
}

// noteMethodRun records that a method runs now.
func (l *Loop) noteMethodRun(name string) {
	if l.methodRuns == nil {
		l.methodRuns = map[string]methodRun{}
	}
	l.methodRuns[name] = methodRun{last: l.Now()}
}
