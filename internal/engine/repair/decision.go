package repair

import (
	"cmp"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

const (
	// AgePerRank is the time that a fault must wait to overtake one of the next higher priority. It is Karpenter's.
	AgePerRank = 30 * time.Minute
	// MaxReboots limits how many reboots a node may have within RebootWindow before it is replaced instead. Both are
	// Karpenter's.
	MaxReboots   = 2
	RebootWindow = 24 * time.Hour
)

// Reboots are the past reboots of a node.
type Reboots struct {
	// Ended is the time when the last one finished; zero if there was none.
	Ended time.Time
	// Started are the times at which reboots were committed.
	Started []time.Time
}

// exhausted reports whether another reboot would be one too many.
func (r *Reboots) exhausted(now time.Time) bool {
	recent := 0
	for _, at := range r.Started {
		if now.Sub(at) < RebootWindow {
			recent++
		}
	}
	return recent >= MaxReboots
}

// Decision describes what to do with an unhealthy node now.
type Decision struct {
	Action karpv1.RepairAction
	// Cause is the fault that the action is for, and EligibleAt when its toleration finished.
	Cause      Fault
	EligibleAt time.Time
	// Bound is the shortest bound of the drain that any fault sets, and BoundBy that fault; nil if none sets one.
	Bound   *time.Duration
	BoundBy *Fault
	// Score orders nodes: the highest is repaired first. It is the rank of the fault's priority plus its age since its
	// toleration finished, in units of AgePerRank.
	Score float64
	// Escalated is true if the node is replaced because reboots did not help.
	Escalated bool
}

// Decide merges the faults with a toleration that has finished. The more disruptive action wins; its cause is the fault of
// the highest priority, then the one that has been due longest. The bound of the drain is the shortest of all, whichever
// fault supplies the action. False if no toleration has finished.
func Decide(faults []Fault, reboots *Reboots, now time.Time) (d Decision, due bool) {
	type dueFault struct {
		*Fault
		at time.Time
	}
	var list []dueFault
	for i := range faults {
		if at := faults[i].eligibleAt(reboots.Ended); !at.After(now) {
			list = append(list, dueFault{&faults[i], at})
		}
	}
	if len(list) == 0 {
		return Decision{}, false
	}
	byType := func(a, b dueFault) int { return cmp.Compare(a.Condition.Type, b.Condition.Type) }
	cause := slices.MinFunc(list, func(a, b dueFault) int {
		return cmp.Or(cmp.Compare(severity(b.policy.Action), severity(a.policy.Action)), cmp.Compare(b.policy.rank, a.policy.rank),
			a.at.Compare(b.at), byType(a, b))
	})
	d = Decision{Action: cause.policy.Action, Cause: *cause.Fault, EligibleAt: cause.at}
	bounded := slices.DeleteFunc(slices.Clone(list), func(f dueFault) bool { return f.policy.Bound() == nil })
	if len(bounded) > 0 {
		by := slices.MinFunc(bounded, func(a, b dueFault) int {
			return cmp.Or(cmp.Compare(*a.policy.Bound(), *b.policy.Bound()), a.at.Compare(b.at), byType(a, b))
		})
		d.Bound, d.BoundBy = by.policy.Bound(), by.Fault
	}
	for _, f := range list {
		d.Score = max(d.Score, float64(f.policy.rank)+now.Sub(f.at).Seconds()/AgePerRank.Seconds())
	}
	if d.Action == karpv1.RepairReboot && reboots.exhausted(now) {
		d.Action, d.Escalated = karpv1.RepairReplace, true
	}
	return d, true
}

// severity is larger for the more disruptive action.
func severity(a karpv1.RepairAction) int {
	return slices.Index([]karpv1.RepairAction{karpv1.RepairIgnore, karpv1.RepairReboot, karpv1.RepairReplace}, a)
}

// NextDue returns when the next toleration finishes after now; false if none does.
func NextDue(faults []Fault, reboots *Reboots, now time.Time) (at time.Time, ok bool) {
	for i := range faults {
		if t := faults[i].eligibleAt(reboots.Ended); t.After(now) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}
