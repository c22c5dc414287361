package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// refusedPods are the pending pods of a pool for which nodes were launched in vain.
type refusedPods struct {
	waiting, held int
	// last is the verdict on those with a node that was found last, kinds how many kinds of pods there are.
	last  refusal.Verdict
	kinds map[string]bool
}

// report publishes what the verdicts state: an event on each pod, a condition and an event on each pool, and metrics. It keeps the nodes
// that may still come to suit their pods.
func (r *refusals) report(ctx context.Context) error {
	byPool := map[string]*refusedPods{}
	awaited := map[types.UID]bool{}
	for _, pod := range r.snap.Waiting() {
		class := r.classOf(pod)
		v, concerned := r.verdicts[class]
		if !concerned {
			continue
		}
		awaited[pod.UID] = true
		r.p.Events.WarnEvery(failedSchedulingDedupe, pod, karpv1.ConditionPodsRefused, "%s", v.Message())
		r.keep(v)
		at := byPool[v.Pool]
		if at == nil {
			at = &refusedPods{kinds: map[string]bool{}}
			byPool[v.Pool] = at
		}
		at.kinds[class] = true
		if v.State == refusal.Held {
			at.held++
		} else {
			at.waiting++
		}
		if at.last.Last == nil || v.Last.At.After(at.last.Last.At.Time) {
			at.last = v
		}
	}
	if r.p.Batch != nil {
		r.p.Batch.await(awaited)
	}
	r.p.classesUsed = len(r.snap.Waiting())
	r.p.Metrics.RefusedPods.Reset()
	var errs []error
	for name := range r.pools {
		errs = append(errs, r.reportPool(ctx, name, byPool[name]))
	}
	return errors.Join(errs...)
}

// keep protects the node that a pod was last launched in vain for from disruption, for as long as what keeps the pod off may end by itself.
func (r *refusals) keep(v refusal.Verdict) {
	switch v.Last.Cause {
	case refusal.Tainted, refusal.LacksDriver, refusal.OnlySchedulers:
	default:
		return // it does not end by itself
	}
	if r.snap.Now.Sub(v.Last.At.Time) < keepRefused {
		r.p.State.Nominate(v.Last.Node)
	}
}

// reportPool sets the condition, the event and the metric of a pool; refused is nil if no pod is.
func (r *refusals) reportPool(ctx context.Context, name string, refused *refusedPods) error {
	pool := r.pools[name]
	was := condition.IsTrue(pool, karpv1.ConditionPodsRefused)
	if refused == nil && !was || pool.DeletionTimestamp != nil {
		return nil
	}
	if refused != nil {
		r.p.Metrics.RefusedPods.WithLabelValues(name, "waiting").Set(float64(refused.waiting))
		r.p.Metrics.RefusedPods.WithLabelValues(name, "held").Set(float64(refused.held))
		r.p.Events.WarnEvery(refusedEventWindow, pool, karpv1.ConditionPodsRefused, "%s", refused.message())
	}
	after := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	// The counts in the pool's status change with each node, so conflicts are common.
	err := patch.StatusWithRetry(ctx, patch.Clients{Client: r.p.Client, Live: r.p.Live}, after, func(now *karpv1.NodePool) error {
		if refused == nil {
			condition.Clear(now, karpv1.ConditionPodsRefused, r.snap.Now)
			return nil
		}
		because := condition.Because(string(refused.last.Last.Cause), refused.message())
		condition.SetTrueWithReason(now, karpv1.ConditionPodsRefused, because, r.snap.Now)
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report the pods that nodes of node pool %q do not run: %w", name, err)
	}
	r.pools[name] = after
	return nil
}

func (f *refusedPods) message() string {
	out := fmt.Sprintf("%d pending pods: %s", f.waiting+f.held, f.last.Message())
	if f.waiting+f.held == 1 {
		out = "1 pending pod: " + f.last.Message()
	}
	if more := len(f.kinds) - 1; more > 0 {
		out += fmt.Sprintf(". The same is true of %d other kinds of pods", more)
	}
	return out
}

// rejections are the pods that are left out of the plan, for metrics and recordings.
func (r *refusals) rejections(probing bool) (out []schedule.Rejection) {
	for _, pod := range r.snap.Waiting() {
		if r.may(pod, probing) {
			continue
		}
		message := r.verdicts[r.classes.Of(pod)].Message()
		out = append(out, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{Code: codePodsRefused, Rule: stated("%s", message)}}})
	}
	return out
}

// isRefused reports whether a pod was rejected since nodes were launched for it in vain.
func isRefused(r *schedule.Rejection) bool { return r.Reasons[0].Code == codePodsRefused }

// classesOf lists the classes of pods, for the claim that is launched for them.
func classesOf(pods []*corev1.Pod) []string {
	var out []string
	for _, pod := range pods {
		out = append(out, refusal.ClassOf(pod))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
