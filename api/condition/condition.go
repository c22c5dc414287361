// Package condition keeps the status conditions of Dovetail's objects consistent.
//
// Each object has a root condition, Ready, that is derived from its dependents: True when all of them are
// True at the object's generation, False when one of them is False at it, Unknown otherwise. Callers set
// dependents and independent conditions; the root follows. A veto is a condition that makes the root False while it
// is, and decides nothing otherwise.
//
// The functions are pure but for the object handed to them: no clock, no client. Each setter reports
// whether it changed the object, so that a reconciler knows whether there is something to write.
package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the root condition of every object.
const Ready = "Ready"

// Reasons that this package writes itself.
const (
	ReasonAwaitingReconciliation = "AwaitingReconciliation"
	ReasonReconcilingDependents  = "ReconcilingDependents"
	ReasonUnhealthyDependents    = "UnhealthyDependents"
)

const messageAwaitingReconciliation = "object is awaiting reconciliation"

// Types are the condition types that the root of an object depends on.
type Types struct {
	// Dependents always exist (Unknown until set) and cannot be removed.
	Dependents []string
	// Optional ones count like dependents while present, but are neither created nor kept by this package.
	Optional []string
	// Vetoes count only while they are False: the root is False then, with their reason and message. True, Unknown
	// or absent, they decide nothing.
	Vetoes []string
}

// Object describes what carries conditions.
type Object interface {
	GetGeneration() int64
	GetCreationTimestamp() metav1.Time
	GetDeletionTimestamp() *metav1.Time
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
	ConditionTypes() Types
}

// All returns the conditions as they are to be read: dependents and root that nobody has set yet are
// included as Unknown. The object is not changed and shares nothing with the result.
func All(o Object) []metav1.Condition {
	conditions, _ := initialized(o)
	return conditions
}

// Initialize adds the missing dependents and the missing root as Unknown. Their transition time is the
// creation of the object, so that timers which wait for them count from there.
func Initialize(o Object) (changed bool) {
	conditions, changed := initialized(o)
	if changed {
		o.SetConditions(conditions)
	}
	return changed
}

// Get returns the condition of the given type. Dependents and root are always found, see All.
func Get(o Object, typ string) (metav1.Condition, bool) {
	if i := index(o.GetConditions(), typ); i >= 0 {
		return o.GetConditions()[i], true
	}
	if typ == Ready || slices.Contains(o.ConditionTypes().Dependents, typ) {
		return awaiting(o, typ), true
	}
	return metav1.Condition{}, false
}

// IsTrue reports whether all the given types are True, of whatever generation.
func IsTrue(o Object, types ...string) bool { return all(o, metav1.ConditionTrue, types) }

// IsFalse reports whether all the given types are False, of whatever generation.
func IsFalse(o Object, types ...string) bool { return all(o, metav1.ConditionFalse, types) }

// IsUnknown reports whether all the given types are Unknown. A condition that is absent, and no dependent,
// is not Unknown.
func IsUnknown(o Object, types ...string) bool { return all(o, metav1.ConditionUnknown, types) }

// IsReady reports whether the root is True at the object's present generation.
func IsReady(o Object) bool {
	root, _ := Get(o, Ready)
	return root.Status == metav1.ConditionTrue && root.ObservedGeneration == o.GetGeneration()
}

// SetTrue sets typ to True, with its own name as reason and no message.
func SetTrue(o Object, typ string, now time.Time) (changed bool) {
	return Set(o, metav1.Condition{Type: typ, Status: metav1.ConditionTrue}, now)
}

// Cause states why a condition has its status: a reason in CamelCase for programs, and a message for people.
type Cause struct{ Reason, Message string }

// Because returns the Cause of a reason and a message.
func Because(reason, message string) Cause { return Cause{Reason: reason, Message: message} }

// SetTrueWithReason sets typ to True.
func SetTrueWithReason(o Object, typ string, why Cause, now time.Time) (changed bool) {
	return Set(o, metav1.Condition{Type: typ, Status: metav1.ConditionTrue, Reason: why.Reason, Message: why.Message}, now)
}

// SetFalse sets typ to False.
func SetFalse(o Object, typ string, why Cause, now time.Time) (changed bool) {
	return Set(o, metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: why.Reason, Message: why.Message}, now)
}

// SetUnknown sets typ to Unknown.
func SetUnknown(o Object, typ string, why Cause, now time.Time) (changed bool) {
	return Set(o, metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: why.Reason, Message: why.Message}, now)
}

// Set writes type, status, reason and message of c at the object's generation, and then the root that
// follows from it. The transition time becomes now when the status changes, and stays otherwise.
// An empty reason becomes the type. The root itself cannot be set: that changes nothing.
//
// While the object is being deleted its generation moves on without anybody judging it anew, so the
// other conditions are carried along; else setting one would turn the root Unknown.
func Set(o Object, c metav1.Condition, now time.Time) (changed bool) {
	if c.Type == Ready {
		return false
	}
	conditions, changed := initialized(o)
	if o.GetDeletionTimestamp() != nil {
		for i := range conditions {
			changed = changed || conditions[i].ObservedGeneration != o.GetGeneration()
			conditions[i].ObservedGeneration = o.GetGeneration()
		}
	}
	conditions, set := put(o, conditions, c, now)
	conditions, derived := put(o, conditions, root(o, conditions), now)
	if !changed && !set && !derived {
		return false
	}
	order(conditions)
	o.SetConditions(conditions)
	return true
}

// Clear removes a condition. Root and dependents stay: they are part of what the object is.
func Clear(o Object, typ string, now time.Time) (changed bool) {
	types := o.ConditionTypes()
	if typ == Ready || slices.Contains(types.Dependents, typ) || index(o.GetConditions(), typ) < 0 {
		return false
	}
	conditions, _ := initialized(o)
	conditions = slices.Delete(conditions, index(conditions, typ), index(conditions, typ)+1)
	if slices.Contains(types.Optional, typ) || slices.Contains(types.Vetoes, typ) {
		conditions, _ = put(o, conditions, root(o, conditions), now)
	}
	order(conditions)
	o.SetConditions(conditions)
	return true
}

// initialized returns a copy of the object's conditions with dependents and root filled in.
func initialized(o Object) (conditions []metav1.Condition, changed bool) {
	conditions = slices.Clone(o.GetConditions())
	for _, typ := range append(slices.Clone(o.ConditionTypes().Dependents), Ready) {
		if index(conditions, typ) < 0 {
			conditions = append(conditions, awaiting(o, typ))
			changed = true
		}
	}
	if changed {
		order(conditions)
	}
	return conditions, changed
}

func awaiting(o Object, typ string) metav1.Condition {
	return metav1.Condition{
		Type:               typ,
		Status:             metav1.ConditionUnknown,
		Reason:             ReasonAwaitingReconciliation,
		Message:            messageAwaitingReconciliation,
		LastTransitionTime: o.GetCreationTimestamp(),
		ObservedGeneration: o.GetGeneration(),
	}
}

// put writes c into conditions, which the caller owns, and reports whether they differ now.
func put(o Object, conditions []metav1.Condition, c metav1.Condition, now time.Time) ([]metav1.Condition, bool) {
	if c.Reason == "" {
		c.Reason = c.Type
	}
	c.ObservedGeneration = o.GetGeneration()
	// The API server keeps seconds. Cutting here makes an object equal to itself after it was stored.
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	i := index(conditions, c.Type)
	if i < 0 {
		return append(conditions, c), true
	}
	if conditions[i].Status == c.Status {
		c.LastTransitionTime = conditions[i].LastTransitionTime
	}
	if conditions[i] == c {
		return conditions, false
	}
	conditions[i] = c
	return conditions, true
}

// root derives the root from the dependents in conditions.
func root(o Object, conditions []metav1.Condition) metav1.Condition {
	types := o.ConditionTypes()
	for _, typ := range types.Vetoes {
		i := index(conditions, typ)
		if i >= 0 && conditions[i].Status == metav1.ConditionFalse && conditions[i].ObservedGeneration == o.GetGeneration() {
			return metav1.Condition{Type: Ready, Status: metav1.ConditionFalse, Reason: conditions[i].Reason, Message: conditions[i].Message}
		}
	}
	var offenders []metav1.Condition
	unhealthy := false
	for _, typ := range slices.Backward(append(slices.Clone(types.Optional), types.Dependents...)) {
		i := index(conditions, typ)
		if i < 0 {
			continue
		}
		c := conditions[i]
		current := c.ObservedGeneration == o.GetGeneration()
		if c.Status == metav1.ConditionTrue && current {
			continue
		}
		offenders = append(offenders, c)
		unhealthy = unhealthy || (c.Status == metav1.ConditionFalse && current)
	}
	message := offendersMessage(offenders)
	switch {
	case len(offenders) == 0:
		return metav1.Condition{Type: Ready, Status: metav1.ConditionTrue}
	case unhealthy:
		return metav1.Condition{Type: Ready, Status: metav1.ConditionFalse, Reason: ReasonUnhealthyDependents, Message: message}
	default:
		return metav1.Condition{Type: Ready, Status: metav1.ConditionUnknown, Reason: ReasonReconcilingDependents, Message: message}
	}
}

// offendersMessage names conditions and their status, as Karpenter does: the last that changed first. Times are in whole seconds, so that
// conditions which follow from each other often have the same: these stay in their order.
func offendersMessage(conditions []metav1.Condition) string {
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int {
		return b.LastTransitionTime.Time.Compare(a.LastTransitionTime.Time)
	})
	var parts []string
	for i := range conditions {
		parts = append(parts, fmt.Sprintf("%s=%s", conditions[i].Type, conditions[i].Status))
	}
	return strings.Join(parts, ", ")
}

// order sorts by transition time, then type; the root comes last.
func order(conditions []metav1.Condition) {
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int {
		switch {
		case a.Type == Ready:
			return 1
		case b.Type == Ready:
			return -1
		}
		if c := a.LastTransitionTime.Time.Compare(b.LastTransitionTime.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Type, b.Type)
	})
}

func index(conditions []metav1.Condition, typ string) int {
	return slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == typ })
}

func all(o Object, status metav1.ConditionStatus, types []string) bool {
	for _, typ := range types {
		if c, ok := Get(o, typ); !ok || c.Status != status {
			return false
		}
	}
	return true
}
