package breaker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// How long a claim may take from its creation: until it is launched, and until its node is ready for use. Whoever waits for
// its replacement gives up then, too.
const (
	LaunchWithin     = 5 * time.Minute
	InitializeWithin = 10 * time.Minute
	// LateAfter is from when on a claim of which a cause is known why its node does not join counts as one that will not. If it
	// comes up after all, it counts as one that did.
	LateAfter = 3 * time.Minute
)

// Reason is why a claim was bought to replace others; empty if it was not.
func Reason(claim *karpv1.NodeClaim) karpv1.DisruptionReason {
	return karpv1.DisruptionReason(claim.Annotations[karpv1.AnnotationLaunchReason])
}

// slack is how much earlier than we whoever waits for a claim may give it up: their watch starts before the claim exists.
const slack = 30 * time.Second

// OutcomeOf tells what has become of a claim. While that is open, decided is false, and next is when it is late at the latest;
// zero if nothing will come of it. A claim that went before its time decides nothing unless it is known why its node would
// not have come: there was no capacity, the cloud has taken the instance back, or nobody needs it any more.
func OutcomeOf(claim *karpv1.NodeClaim, now time.Time) (o Outcome, decided bool, next time.Time) {
	o = Outcome{
		Claim: claim.Name, UID: claim.UID, Created: second(claim.CreationTimestamp.Time), At: second(now),
		Image: claim.Status.ImageID, Type: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone],
	}
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if initialized.Status == metav1.ConditionTrue {
		o.At = second(initialized.LastTransitionTime.Time)
		return o, true, time.Time{}
	}
	late := claim.CreationTimestamp.Add(InitializeWithin)
	ended := claim.DeletionTimestamp
	switch {
	case ended != nil && ended.Time.Before(late):
		if !failedEarly(claim, ended.Sub(claim.CreationTimestamp.Time)) {
			return o, false, time.Time{}
		}
		o.At = second(ended.Time)
	case now.Before(late):
		suspect := claim.CreationTimestamp.Add(LateAfter)
		if ended != nil || !diagnosed(claim) {
			return o, false, late
		}
		if now.Before(suspect) {
			return o, false, suspect
		}
		o.At = second(suspect)
	default: // whatever has become of it since, it was late
		o.At = second(late)
	}
	o.Why = why(claim)
	return o, true, time.Time{}
}

// failedEarly reports whether a claim that was deleted at an age, before it was late, has failed.
func failedEarly(claim *karpv1.NodeClaim, age time.Duration) bool {
	if condition.IsTrue(claim, karpv1.ConditionDisruptionReason) {
		return false // it was taken back, or disrupted like any other
	}
	if age >= InitializeWithin-slack {
		return true
	}
	if !condition.IsTrue(claim, karpv1.ConditionLaunched) {
		return age >= LaunchWithin
	}
	return diagnosed(claim)
}

// diagnosed reports whether somebody has looked into why the claim's instance does not become a node, and has said so.
func diagnosed(claim *karpv1.NodeClaim) bool {
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	return condition.IsTrue(claim, karpv1.ConditionLaunched) && registered.Status != metav1.ConditionTrue && !slices.Contains([]string{"", condition.ReasonAwaitingReconciliation, "NodeNotFound", "RegistrationHookPending"}, registered.Reason)
}

// why names the first step that a claim has not made.
func why(claim *karpv1.NodeClaim) string {
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

// Read returns the book of a pool; an empty one if it has none that can be read.
func Read(pool *karpv1.NodePool) Book {
	var b Book
	text := pool.Annotations[karpv1.AnnotationReplacementOutcomes]
	if text == "" || json.Unmarshal([]byte(text), &b) != nil {
		return Book{}
	}
	for reason, r := range b.Reasons {
		if r == nil {
			delete(b.Reasons, reason)
		}
	}
	return b
}

// Write puts the book on the pool, or takes it off where there is nothing to remember: no outcome, no cause before this one,
// and no claim under way. It reports whether that changes the pool.
func (b *Book) Write(pool *karpv1.NodePool, underWay bool) (bool, error) {
	before := pool.Annotations[karpv1.AnnotationReplacementOutcomes]
	if len(b.Reasons) == 0 && b.Since.IsZero() && !underWay {
		delete(pool.Annotations, karpv1.AnnotationReplacementOutcomes)
		return before != "", nil
	}
	text, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("write down the outcomes of pool %q: %w", pool.Name, err)
	}
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationReplacementOutcomes, string(text))
	return before != string(text), nil
}
