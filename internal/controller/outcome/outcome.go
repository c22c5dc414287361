// Package outcome records what becomes of decisions: it watches NodeClaims and records each step of a decision that launched or
// removes one. It keeps no state of its own but which steps it has recorded: a process that starts anew records them again, and
// readers of a recording drop the repeated ones.
package outcome

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/claimevents"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// sink records steps.
type sink interface{ Step(recorder.Step) }

// Watcher watches NodeClaims.
type Watcher struct {
	Recorder sink
	Now      func() time.Time
	// Price is what a node with these labels costs its NodePool now, in $/h; nil knows no price.
	Price func(labels map[string]string) (hourly float64, known bool)

	mu sync.Mutex
	// recorded are hashes of the steps of each claim: a step takes 200 bytes and more, and 5,000 claims have three each.
	recorded map[types.UID][]uint64
	seed     maphash.Seed
}

// Register adds the watcher to mgr. It runs on every replica: one that is not elected records steps of what the leader decides.
func (w *Watcher) Register(mgr manager.Manager) error {
	return claimevents.Follow(mgr.GetCache(), w.observe, w.gone)
}

// observe records the steps that a claim shows and that are not recorded yet.
func (w *Watcher) observe(claim *karpv1.NodeClaim) {
	launched := claim.Annotations[karpv1.AnnotationDecision]
	for _, c := range []struct {
		condition string
		step      recorder.StepKind
	}{
		{karpv1.ConditionLaunched, recorder.StepLaunched},
		{karpv1.ConditionRegistered, recorder.StepRegistered},
		{karpv1.ConditionInitialized, recorder.StepInitialized},
	} {
		got, found := condition.Get(claim, c.condition)
		switch {
		case !found:
		case got.Status == metav1.ConditionTrue:
			w.record(claim, recorder.Step{
				Decision: launched, At: got.LastTransitionTime.Time, What: c.step, Message: detail(claim, c.step), Instance: w.instance(claim, c.step),
			})
		case got.Status == metav1.ConditionFalse:
			w.record(claim, recorder.Step{
				Decision: launched, At: got.LastTransitionTime.Time, What: recorder.StepFailed, Message: c.condition + ": " + got.Message,
			})
		case got.Reason != condition.ReasonAwaitingReconciliation && got.Message != "":
			w.record(claim, recorder.Step{
				Decision: launched, At: w.Now(), What: recorder.StepWaiting, Message: c.condition + ": " + got.Message,
			})
		}
	}
	w.observeRemoval(claim)
}

// observeRemoval records the steps of a claim's deletion.
func (w *Watcher) observeRemoval(claim *karpv1.NodeClaim) {
	if claim.DeletionTimestamp == nil {
		return
	}
	by := removedBy(claim)
	w.record(claim, recorder.Step{Decision: by, At: claim.DeletionTimestamp.Time, What: recorder.StepDeleting})
	for _, c := range []struct {
		condition string
		step      recorder.StepKind
	}{
		{karpv1.ConditionDrained, recorder.StepDrained}, {karpv1.ConditionVolumesDetached, recorder.StepDetached},
	} {
		if got, found := condition.Get(claim, c.condition); found && got.Status == metav1.ConditionTrue {
			w.record(claim, recorder.Step{Decision: by, At: got.LastTransitionTime.Time, What: c.step})
		}
	}
}

// detail returns what the instance is.
func detail(claim *karpv1.NodeClaim, step recorder.StepKind) string {
	switch step {
	case recorder.StepLaunched:
		return fmt.Sprintf("%s %s in %s, %s", claim.Labels[karpv1.LabelCapacityType], claim.Labels[corev1.LabelInstanceTypeStable],
			claim.Labels[corev1.LabelTopologyZone], claim.Status.ProviderID)
	case recorder.StepRegistered:
		return "node " + claim.Status.NodeName
	}
	return ""
}

// instance is what EC2 gave, for the step StepLaunched.
func (w *Watcher) instance(claim *karpv1.NodeClaim, step recorder.StepKind) recorder.Instance {
	if step != recorder.StepLaunched {
		return recorder.Instance{}
	}
	var price float64
	if w.Price != nil {
		price, _ = w.Price(claim.Labels)
	}
	return recorder.NewInstance(claim.Labels, price)
}

// removedBy is the decision that removes a claim: that of its command, else the one that launched it.
func removedBy(claim *karpv1.NodeClaim) string {
	if command, found, err := claim.DisruptionCommand(); found && err == nil {
		return command.ID
	}
	return claim.Annotations[karpv1.AnnotationDecision]
}

// gone records that a claim no longer exists, on both of its decisions.
func (w *Watcher) gone(claim *karpv1.NodeClaim) {
	at := w.Now()
	step := recorder.Step{Decision: removedBy(claim), At: at, What: recorder.StepTerminated}
	w.record(claim, step)
	if step.Decision = claim.Annotations[karpv1.AnnotationDecision]; step.Decision != removedBy(claim) {
		w.record(claim, step)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.recorded, claim.UID)
}

// record records a step of a claim once.
func (w *Watcher) record(claim *karpv1.NodeClaim, s recorder.Step) {
	if s.Decision == "" {
		return
	}
	s.Object = claim.Name
	key := s
	key.Instance = recorder.Instance{} // spot prices change: the first counts
	if s.What == recorder.StepWaiting {
		key.At = time.Time{} // when it was seen first
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recorded == nil {
		w.recorded, w.seed = map[types.UID][]uint64{}, maphash.MakeSeed()
	}
	hash := maphash.Comparable(w.seed, key)
	if slices.Contains(w.recorded[claim.UID], hash) {
		return
	}
	w.recorded[claim.UID] = append(w.recorded[claim.UID], hash)
	w.Recorder.Step(s)
}
