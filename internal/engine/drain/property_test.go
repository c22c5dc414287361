package drain_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// seconds is a random time between from and to seconds, with fractions that hit limits and just miss them.
func seconds(t *rapid.T, name string, from, to int) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, name))*time.Second + time.Duration(rapid.IntRange(-1, 1).Draw(t, name+" fraction"))
}

// randomPods all have a grace period, as the API server sees to it.
func randomPods(t *rapid.T) (out []*corev1.Pod) {
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		p := pod{
			name: string(rune('a' + i)), daemon: rapid.Bool().Draw(t, "daemon"), mirror: rapid.IntRange(0, 9).Draw(t, "mirror") == 0,
			terminal: rapid.IntRange(0, 9).Draw(t, "terminal") == 0, volume: rapid.Bool().Draw(t, "volume"),
			critical: rapid.SampledFrom([]string{"", "", critical, "system-node-critical"}).Draw(t, "critical"),
			hostPath: rapid.SampledFrom([]string{"", "", "/etc/cni/net.d"}).Draw(t, "path"),
			grace:    time.Duration(rapid.SampledFrom([]int{1, 30, 600, 100_000}).Draw(t, "grace")) * time.Second,
			keep:     rapid.SampledFrom([]string{"", "", "true", "61m", "soon"}).Draw(t, "keep"),
		}
		if rapid.IntRange(0, 4).Draw(t, "tolerates") == 0 {
			p.toleration = &corev1.Toleration{Operator: corev1.TolerationOpExists}
		}
		if rapid.IntRange(0, 2).Draw(t, "terminating") == 0 {
			p.deleted = seconds(t, "ends", -70, 700)
		}
		built := p.build()
		if !p.daemon && !p.mirror {
			randomOwner(t, built)
		}
		out = append(out, built)
	}
	return out
}

// randomOwner gives a pod an owner, or none, and an end that is near, or not.
func randomOwner(t *rapid.T, p *corev1.Pod) {
	p.UID, p.Spec.NodeName = types.UID(p.Name), "here"
	kind := rapid.SampledFrom([]string{"", "ReplicaSet", "StatefulSet", "Job"}).Draw(t, "owner")
	if kind == "" {
		return
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, UID: types.UID(kind), Controller: new(true)}}
	if rapid.Bool().Draw(t, "ordered") {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationDrain, "Ordered")
	}
	if rapid.Bool().Draw(t, "ready") {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if kind == "Job" {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationExpectedDuration,
			rapid.SampledFrom([]string{"1h", "61m", "5h", "soon"}).Draw(t, "duration"))
	}
}

// randomOrder has pods of both kinds of owners elsewhere.
func randomOrder(t *rapid.T, pods []*corev1.Pod) drain.Order {
	out := drain.Order{Owners: map[types.UID]drain.Owner{}, Leaving: map[string]bool{"here": true}}
	out.Leaving["other"] = rapid.Bool().Draw(t, "the other node leaves")
	for _, kind := range []string{"ReplicaSet", "StatefulSet"} {
		owner := drain.Owner{Stateful: kind == "StatefulSet", Attached: rapid.Bool().Draw(t, "attached")}
		for _, p := range pods {
			if len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Kind == kind {
				owner.Pods = append(owner.Pods, p)
			}
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "elsewhere") {
			p := pod{
				name: "c" + string(rune('a'+i)), grace: 30 * time.Second, keep: rapid.SampledFrom([]string{"", "61m"}).Draw(t, "keep elsewhere"),
			}
			if rapid.IntRange(0, 2).Draw(t, "terminating elsewhere") == 0 {
				p.deleted = seconds(t, "ends elsewhere", 20, 31)
			}
			built := p.build()
			randomOwner(t, built)
			if built.Spec.NodeName = "other"; built.DeletionTimestamp != nil {
				built.DeletionGracePeriodSeconds = built.Spec.TerminationGracePeriodSeconds
			}
			owner.Pods = append(owner.Pods, built)
		}
		out.Owners[types.UID(kind)] = owner
	}
	return out
}

func randomNode(t *rapid.T) drain.Node {
	n := drain.Node{
		Pods: randomPods(t), Interrupted: rapid.Bool().Draw(t, "interrupted"), Reboot: rapid.Bool().Draw(t, "reboot"),
		Volumes: rapid.SampledFrom([]drain.Volumes{drain.VolumesUnread, drain.VolumesAttached, drain.VolumesDetached}).Draw(t, "volumes"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		n.Deadline = at(seconds(t, "deadline", -10, 700))
	}
	if rapid.Bool().Draw(t, "began") {
		n.Since = at(seconds(t, "since", -7, 0))
		if rapid.Bool().Draw(t, "waits") {
			n.Since = at(seconds(t, "waits since", -301, -299))
		}
	}
	n.Order = randomOrder(t, n.Pods)
	return n
}

// tierOf is the tier of a pod, by the rule.
func tierOf(p *corev1.Pod) int {
	daemon, isCritical := snapshot.DaemonOwned(p), p.Spec.PriorityClassName != ""
	return map[[2]bool]int{{false, false}: 0, {false, true}: 1, {true, false}: 2, {true, true}: 3}[[2]bool{isCritical, daemon}]
}

// serves reports whether a pod that randomPods makes serves its node.
func serves(p *corev1.Pod) bool {
	return snapshot.DaemonOwned(p) && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}

// stays reports whether nobody waits for a pod.
func stays(p *corev1.Pod) bool {
	gone := p.DeletionTimestamp != nil && now.After(p.DeletionTimestamp.Add(time.Minute))
	return snapshot.ToleratesDisruption(p) || snapshot.Mirror(p) || snapshot.Terminal(p) || gone
}

func TestAStepKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNode(t)
		step := drain.Next(n, now)
		overdue := n.Deadline != nil && now.After(*n.Deadline)
		var waited []*corev1.Pod
		for _, w := range step.Waits {
			waited = append(waited, w.Pod)
		}
		for _, p := range slices.Concat(step.Delete, step.Evict) {
			if stays(p) {
				t.Errorf("%s leaves, and stays to the end", p.Name)
			}
			if !slices.Contains(waited, p) {
				t.Errorf("%s leaves, and nobody waits for it", p.Name)
			}
		}
		for _, p := range n.Pods {
			served := slices.ContainsFunc(n.Pods, func(o *corev1.Pod) bool { return !serves(o) && !stays(o) })
			if serves(p) && !n.Reboot && slices.Contains(waited, p) && served {
				t.Errorf("%s leaves before the pods that it serves", p.Name)
			}
			if step.Phase == drain.Done && !overdue && !stays(p) || step.Phase != drain.Evicting && !serves(p) && !stays(p) {
				t.Errorf("%s is still there in phase %s", p.Name, step.Phase)
			}
		}
		for _, p := range step.Delete {
			left := n.Deadline.Sub(now)
			if p.DeletionTimestamp == nil && time.Duration(*p.Spec.TerminationGracePeriodSeconds)*time.Second < left {
				t.Errorf("%s is deleted %v before the deadline", p.Name, left)
			}
		}
		for _, w := range step.Waits {
			leaves, deleted := slices.Contains(step.Evict, w.Pod), slices.Contains(step.Delete, w.Pod)
			held := w.Why == drain.SiblingsNotReady || w.Why == drain.Finishing || w.Why == drain.Protected
			if later := !leaves && !deleted && w.Pod.DeletionTimestamp == nil; leaves && deleted || later && w.Why != drain.Later && !held ||
				leaves && (w.Why == drain.Later || held && w.Why != drain.Protected) {
				t.Errorf("%s is evicted %v, deleted %v, and waited for as %s", w.Pod.Name, leaves, deleted, w.Why)
			}
		}
		for _, p := range step.Evict {
			for _, o := range waited {
				first := n.Interrupted && len(p.Spec.Volumes) > 0
				if !first && tierOf(o) < tierOf(p) && !slices.Contains(step.Delete, o) {
					t.Errorf("%s leaves before %s", p.Name, o.Name)
				}
			}
		}
		if over := step.Phase == drain.Done || step.Phase == drain.EvictingDaemons; over && !n.Reboot && (n.Volumes == drain.VolumesUnread ||
			n.Volumes == drain.VolumesAttached && !overdue) || over && n.Since != nil && now.Sub(*n.Since) < 5*time.Second {
			t.Errorf("phase %s with volumes %q, since %v", step.Phase, n.Volumes, n.Since)
		}
	})
}

// What is done about a pod agrees with why it is waited for.
func TestReasonsAgreeWithActions(t *testing.T) {
	actions := map[drain.Why][]drain.Action{
		drain.AtDeadline: {drain.Delete}, drain.Terminating: {drain.Nothing}, drain.Protected: {drain.Keep}, drain.Evictable: {drain.Evict},
		drain.Later: {drain.Evict, drain.Keep}, drain.SiblingsNotReady: {drain.Evict}, drain.Finishing: {drain.Evict},
	}
	rapid.Check(t, func(t *rapid.T) {
		n := randomNode(t)
		for _, w := range drain.Next(n, now).Waits {
			if a, _ := (drain.Request{Pod: w.Pod, Deadline: n.Deadline}).Next(now); !slices.Contains(actions[w.Why], a) {
				t.Errorf("%s is waited for as %s, and the action is %s", w.Pod.Name, w.Why, a)
			}
		}
	})
}

// Equal facts give equal steps, so that a process that starts goes on where another stopped. No step changes before its Until.
func TestAStepHoldsUntilItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNode(t)
		step := drain.Next(n, now)
		later := now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "later")))
		if step.Phase == drain.Done {
			if !step.Until.IsZero() {
				t.Errorf("it is over until %v", step.Until.Sub(now))
			}
			return
		}
		if !step.Until.IsZero() {
			if !step.Until.After(now) {
				t.Fatalf("a step until %v", step.Until.Sub(now))
			}
			if diff := cmp.Diff(step, drain.Next(n, step.Until)); diff == "" {
				t.Errorf("nothing changes at %v", step.Until.Sub(now))
			}
			if !later.Before(step.Until) {
				later = step.Until.Add(-1)
			}
		}
		if diff := cmp.Diff(step, drain.Next(n, later)); diff != "" {
			t.Errorf("the step changes at %v, and not only at %v (-want +got):\n%s", later.Sub(now), step.Until.Sub(now), diff)
		}
	})
}

// A drain with a deadline is over in time, whatever protects the pods, and no pod is killed before its grace period or the deadline has
// passed. A kubelet that is gone reports nothing about its pods.
func TestADrainWithADeadlineIsOverInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := randomNode(t)
		n.Deadline = at(seconds(t, "bound", 0, 700))
		gone := rapid.Bool().Draw(t, "the kubelet is gone")
		clock := now
		for ; clock.Before(n.Deadline.Add(20 * time.Minute)); clock = clock.Add(seconds(t, "passes", 1, 30)) {
			step := drain.Next(n, clock)
			if step.Phase == drain.Done {
				return
			}
			if step.Phase == drain.Detaching {
				n.Volumes = rapid.SampledFrom([]drain.Volumes{drain.VolumesAttached, drain.VolumesDetached}).Draw(t, "volumes are")
			}
			for _, p := range slices.Concat(step.Delete, step.Evict) {
				perform(t, p, n.Deadline, clock)
			}
			n.Pods = slices.DeleteFunc(n.Pods, func(p *corev1.Pod) bool {
				return p.DeletionTimestamp != nil && !gone && clock.After(p.DeletionTimestamp.Time)
			})
		}
		t.Errorf("the drain is not over %v after its deadline", clock.Sub(*n.Deadline))
	})
}

// perform does what is decided about a pod; a PodDisruptionBudget may keep it.
func perform(t *rapid.T, p *corev1.Pod, deadline *time.Time, clock time.Time) {
	action, grace := drain.Request{Pod: p, Deadline: deadline}.Next(clock)
	switch {
	case action == drain.Evict && rapid.Bool().Draw(t, "the budget allows"):
		grace = *p.Spec.TerminationGracePeriodSeconds
	case action == drain.Delete:
		own := p.Spec.TerminationGracePeriodSeconds
		if left := deadline.Sub(clock); grace < 1 || p.DeletionTimestamp == nil && time.Duration(*own)*time.Second < left {
			t.Errorf("%s is deleted with %d of its %d seconds, %v before the deadline", p.Name, grace, *own, left)
		}
	default:
		return
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: clock.Add(time.Duration(grace) * time.Second)}, &grace
}
