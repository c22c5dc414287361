package breaker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Timeouts of a claim from its creation: until it is launched, and until its node is initialized. The disruption
// queue gives up on a replacement after the same time.
const (
	LaunchWithin     = 5 * time.Minute
	InitializeWithin = 10 * time.Minute
	// LateAfter is the age from which a claim counts as failed if a cause is known why its node does not join. If it
	// comes up after all, it counts as a success.
	LateAfter = 3 * time.Minute
)

// Reason returns why a claim was launched to replace others; empty if it was not.
func Reason(claim *karpv1.NodeClaim) karpv1.DisruptionReason {
	return karpv1.DisruptionReason(claim.Annotations[karpv1.AnnotationLaunchReason])
}

// clockSlack sets how much earlier the disruption queue may give up on a claim: its timeout starts before the claim
// exists.
const clockSlack = 30 * time.Second

// OutcomeOf returns what became of a claim. While that is open, decided is false, and next is when it will be late;
// zero if it will never have an outcome. A claim that was deleted early decides nothing unless the cause is known
// that its node would not have joined: otherwise there was no capacity, EC2 has reclaimed the instance, or the node
// was no longer needed. A claim has come up once its node has survived its soak; one that fails in it decides nothing here, but in
// AddVerdicts.
func (w Windows) OutcomeOf(claim *karpv1.NodeClaim, h Health, now time.Time) (o Outcome, decided bool, next time.Time) {
	o = outcome(claim, now)
	if condition.IsTrue(claim, karpv1.ConditionInitialized) {
		v := w.Judge(claim, h, now)
		return v.Outcome, v.Stage == Survived, v.Next
	}
	late := claim.CreationTimestamp.Add(InitializeWithin)
	ended := claim.DeletionTimestamp
	switch {
	case ended != nil && ended.Time.Before(late):
		if !failedEarly(claim, ended.Sub(claim.CreationTimestamp.Time)) {
			return o, false, time.Time{}
		}
		o.At = truncated(ended.Time)
	case now.Before(late):
		suspect := claim.CreationTimestamp.Add(w.lateAfter())
		if ended != nil || !diagnosed(claim) && !(w.Early && neverReady(claim)) {
			return o, false, late
		}
		if now.Before(suspect) {
			return o, false, suspect
		}
		o.At = truncated(suspect)
	default: // whatever happened since, it was late
		o.At = truncated(late)
	}
	o.Why = firstMissingStep(claim)
	return o, true, time.Time{}
}

// failedEarly reports whether a claim that was deleted at an age, before it was late, has failed.
func failedEarly(claim *karpv1.NodeClaim, age time.Duration) bool {
	if condition.IsTrue(claim, karpv1.ConditionDisruptionReason) {
		return false // its command was canceled, or it was disrupted like any other
	}
	if age >= InitializeWithin-clockSlack {
		return true
	}
	if !condition.IsTrue(claim, karpv1.ConditionLaunched) {
		return age >= LaunchWithin
	}
	return diagnosed(claim)
}

// diagnosed reports whether a condition states why the claim's instance does not become a node.
func diagnosed(claim *karpv1.NodeClaim) bool {
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	return condition.IsTrue(claim, karpv1.ConditionLaunched) && registered.Status != metav1.ConditionTrue &&
		!slices.Contains([]string{"", condition.ReasonAwaitingReconciliation, "NodeNotFound", "RegistrationHookPending"}, registered.Reason)
}

// neverReady reports whether a condition states that the claim's node has registered and does not become Ready.
func neverReady(claim *karpv1.NodeClaim) bool {
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	return initialized.Status != metav1.ConditionTrue && initialized.Reason == "NodeNeverReady"
}

// firstMissingStep names the first lifecycle step that a claim has not completed.
func firstMissingStep(claim *karpv1.NodeClaim) string {
	for _, step := range []struct{ condition, not string }{
		{karpv1.ConditionLaunched, "not launched"},
		{karpv1.ConditionRegistered, "not registered"},
		{karpv1.ConditionInitialized, "not initialized"},
	} {
		c, _ := condition.Get(claim, step.condition)
		if c.Status == metav1.ConditionTrue {
			continue
		}
		if c.Reason == "" || c.Reason == condition.ReasonAwaitingReconciliation {
			return step.not
		}
		return step.not + " (" + c.Reason + ")"
	}
	return "not ready"
}

// Read returns the history of a pool; an empty one if it has none that can be read.
func Read(pool *karpv1.NodePool) History {
	var b History
	text := pool.Annotations[karpv1.AnnotationReplacementOutcomes]
	if text == "" || json.Unmarshal([]byte(text), &b) != nil {
		return History{}
	}
	for reason, r := range b.Reasons {
		if r == nil {
			delete(b.Reasons, reason)
		}
	}
	return b
}

// Write stores the history in the pool's annotation, or removes that if there is nothing to remember: no outcome, no
// earlier cause, and no claim in flight. It reports whether that changes the pool.
func (b *History) Write(pool *karpv1.NodePool, underWay bool) (bool, error) {
	before := pool.Annotations[karpv1.AnnotationReplacementOutcomes]
	if len(b.Reasons) == 0 && b.Soaks == nil && b.Since.IsZero() && b.Rollout == nil && b.Good == nil && !underWay {
		delete(pool.Annotations, karpv1.AnnotationReplacementOutcomes)
		return before != "", nil
	}
	text, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("encode the replacement outcomes of pool %q: %w", pool.Name, err)
	}
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationReplacementOutcomes, string(text))
	return before != string(text), nil
}
