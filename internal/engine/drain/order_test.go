package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

// replica is a pod of an owner on a node, with the annotation.
func replica(name, kind, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod{name: name, grace: 30 * time.Second}.build()
	p.UID, p.Spec.NodeName = types.UID(name), node
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "owner", Controller: new(true)}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Annotations = map[string]string{karpv1.AnnotationDrain: "Ordered"}
	for _, c := range change {
		c(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

// evictedSince is a pod with 30 s of grace that was evicted so long ago.
func evictedSince(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(30*time.Second - ago)}, new(int64(30))
	}
}

// ends makes a pod one that completes by itself, after it has run for an hour.
func ends(after string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		annotated(karpv1.AnnotationExpectedDuration, after)(p)
	}
}

func TestPodsLeaveOneAfterTheOther(t *testing.T) {
	const set, stateful = "ReplicaSet", "StatefulSet"
	many := func(n int, change ...func(*corev1.Pod)) (out []*corev1.Pod) {
		for i := range n {
			out = append(out, replica(fmt.Sprintf("m-%02d", i), set, "elsewhere", change...))
		}
		return out
	}
	tests := []struct {
		name   string
		here   []*corev1.Pod // on node "here", which is drained; node "other" is, too
		others []*corev1.Pod
		change func(*drain.Node)
		evict  []string
		why    drain.Why // of the first pod of here
		until  *time.Time
	}{
		{
			name: "its sibling is Ready", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "elsewhere")),
			evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "its sibling is not", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "elsewhere", unready)),
			why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "its sibling has no node yet", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "", unready)),
			why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "the drain has waited for five minutes", here: pods(replica("a", set, "here")),
			others: pods(replica("b", set, "elsewhere", unready)),
			change: func(n *drain.Node) { n.Since = at(-5 * time.Minute) }, evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "nobody has opted in", here: pods(replica("a", set, "here", func(p *corev1.Pod) { p.Annotations = nil })),
			others: pods(replica("b", set, "elsewhere", unready)), evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "two modes", here: pods(replica("a", set, "here", annotated(karpv1.AnnotationDrain, "Surge,Ordered"))),
			others: pods(replica("b", set, "elsewhere", unready)), why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "another mode",
			here: pods(replica("a", set, "here", annotated(karpv1.AnnotationDrain, "Surge"))), others: pods(replica("b", set, "elsewhere", unready)),
			evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "EC2 reclaims the instance", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "elsewhere", unready)),
			change: func(n *drain.Node) { n.Interrupted = true }, evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "the node is broken", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "elsewhere", unready)),
			change: func(n *drain.Node) { n.Broken = true }, evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "the deadline is for all", here: pods(replica("a", set, "here")), others: pods(replica("b", set, "elsewhere", unready)),
			change: func(n *drain.Node) { n.Deadline = at(time.Second) }, why: drain.AtDeadline,
		},
		{
			name: "a pod that is not Ready serves nobody", here: pods(replica("a", set, "here", unready)),
			others: pods(replica("b", set, "elsewhere", unready)), evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "two siblings on one node", here: pods(replica("b", set, "here"), replica("a", set, "here")),
			others: pods(replica("c", set, "elsewhere")), evict: []string{"a"}, why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "two on two nodes", here: pods(replica("b", set, "here")), others: pods(replica("a", set, "other")),
			why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "the one that comes first is protected", here: pods(replica("b", set, "here")),
			others: pods(replica("a", set, "other", annotated(karpv1.AnnotationDoNotDisrupt, "61m"))), evict: []string{"b"}, why: drain.Evictable,
			until: at(time.Minute),
		},
		{
			name: "its sibling was evicted, and the successor does not show yet", here: pods(replica("b", set, "here")),
			others: pods(replica("a", set, "other", evictedSince(time.Second)), replica("c", set, "elsewhere")),
			why:    drain.SiblingsNotReady, until: at(time.Second),
		},
		{
			name: "its sibling shuts down, and the successor is Ready", here: pods(replica("b", set, "here")),
			others: pods(replica("a", set, "other", evictedSince(2*time.Second)), replica("c", set, "elsewhere")),
			evict:  []string{"b"}, why: drain.Evictable,
		},
		{
			name: "one of twenty may be missing while another leaves", here: pods(replica("a", set, "here")),
			others: append(many(18), many(1, unready)...), evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "and not two", here: pods(replica("a", set, "here")), others: append(many(18), many(2, unready)...),
			why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "a StatefulSet's next pod, while one shuts down", here: pods(replica("db-1", stateful, "here")),
			others: pods(replica("db-0", stateful, "other", evictedSince(time.Minute/2))), why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "while one has not been made again", here: pods(replica("db-1", stateful, "here")),
			change: func(n *drain.Node) { n.Order.Owners = owners(n, func(o *drain.Owner) { o.Replicas = 2 }) },
			why:    drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "while a volume is attached to the node that it has left", here: pods(replica("db-1", stateful, "here")),
			others: pods(replica("db-0", stateful, "elsewhere")),
			change: func(n *drain.Node) { n.Order.Owners = owners(n, func(o *drain.Owner) { o.Attached = true }) },
			why:    drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "one at a time, whether it is Ready or not", here: pods(replica("db-1", stateful, "here", unready)),
			others: pods(replica("db-0", stateful, "other", unready)), why: drain.SiblingsNotReady, until: at(4 * time.Minute),
		},
		{
			name: "two of which none is Ready do not wait for each other", here: pods(replica("db-0", stateful, "here", unready)),
			others: pods(replica("db-1", stateful, "other", unready)), evict: []string{"db-0"}, why: drain.Evictable,
		},
		{
			name: "a pod that ends in nine minutes", here: pods(replica("job", "Job", "here", ends("68m"))),
			why: drain.Finishing, until: at(8 * time.Minute),
		},
		{
			name: "one that ends later than ten minutes after the beginning", here: pods(replica("job", "Job", "here", ends("70m"))),
			evict: []string{"job"}, why: drain.Evictable,
		},
		{
			name: "one that is late", here: pods(replica("job", "Job", "here", ends("59m"))), evict: []string{"job"}, why: drain.Evictable,
		},
		{
			name: "a service does not end by itself",
			here: pods(replica("a", set, "here", annotated(karpv1.AnnotationExpectedDuration, "65m"))), evict: []string{"a"}, why: drain.Evictable,
		},
		{
			name: "a pod that Kubernetes ends in a minute", here: pods(replica("job", "Job", "here", func(p *corev1.Pod) {
				p.Spec.RestartPolicy, p.Spec.ActiveDeadlineSeconds = corev1.RestartPolicyNever, new(int64(3660))
			})),
			why: drain.Finishing, until: at(time.Minute),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := drain.Node{Pods: tt.here, Since: at(-time.Minute), Order: drain.Order{
				Leaving: map[string]bool{"here": true, "other": true},
				Owners: map[types.UID]drain.Owner{"owner": {
					Pods: slices.Concat(tt.here, tt.others), Stateful: tt.here[0].OwnerReferences[0].Kind == stateful,
				}},
			}}
			if tt.change != nil {
				tt.change(&n)
			}
			got := drain.Next(n, now)
			if !slices.Equal(names(got.Evict), tt.evict) || got.Waits[0].Why != tt.why {
				t.Errorf("evicts %v, %s waits as %s; want %v, %s", names(got.Evict), got.Waits[0].Pod.Name, got.Waits[0].Why, tt.evict, tt.why)
			}
			if got.Until.IsZero() != (tt.until == nil) || tt.until != nil && !got.Until.Equal(*tt.until) {
				t.Errorf("until %v, want %v", got.Until.Sub(now), tt.until)
			}
		})
	}
}

// owners are those of a node with a change.
func owners(n *drain.Node, change func(*drain.Owner)) map[types.UID]drain.Owner {
	o := n.Order.Owners["owner"]
	change(&o)
	return map[types.UID]drain.Owner{"owner": o}
}

// A later tier waits for pods that are held back, as for others.
func TestOrderKeepsTheTiers(t *testing.T) {
	held := replica("a", "ReplicaSet", "here")
	dns := pod{name: "dns", critical: critical}.build()
	n := drain.Node{Pods: pods(held, dns), Since: at(0), Order: drain.Order{
		Owners: map[types.UID]drain.Owner{"owner": {Pods: pods(held, replica("b", "ReplicaSet", "", unready))}},
	}}
	if got := drain.Next(n, now); got.Phase != drain.Evicting || len(got.Evict) > 0 || got.Waits[1].Why != drain.Later {
		t.Errorf("%s, evicts %v", got.Phase, names(got.Evict))
	}
}

// However two nodes with pods of one owner are drained, no step of both evicts more pods than may be missing, nobody waits past the bound,
// and some pod leaves as soon as all others are Ready.
func TestDrainsOfSeveralNodesShareAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"ReplicaSet", "StatefulSet"}).Draw(t, "kind")
		owner := drain.Owner{Stateful: kind == "StatefulSet"}
		on := map[string][]*corev1.Pod{}
		ready := 0
		for i := range rapid.IntRange(1, 9).Draw(t, "replicas") {
			p := replica(string(rune('a'+i)), kind, rapid.SampledFrom([]string{"here", "other", "elsewhere"}).Draw(t, "node"))
			if rapid.IntRange(0, 5).Draw(t, "unready") == 0 {
				unready(p)
			} else {
				ready++
			}
			owner.Pods, on[p.Spec.NodeName] = append(owner.Pods, p), append(on[p.Spec.NodeName], p)
		}
		order := drain.Order{
			Leaving: map[string]bool{"here": true, "other": true}, Owners: map[types.UID]drain.Owner{"owner": owner},
		}
		since := seconds(t, "since", -400, 0)
		evicted, lost := 0, 0
		for _, node := range []string{"here", "other"} {
			for _, p := range drain.Next(drain.Node{Pods: on[node], Since: at(since), Order: order}, now).Evict {
				if evicted++; p.Status.Conditions[0].Status == corev1.ConditionTrue {
					lost++
				}
			}
		}
		leaving := len(on["here"]) + len(on["other"])
		switch waited := -since >= drain.SiblingsWait; {
		case waited && evicted < leaving:
			t.Errorf("%d of %d pods are evicted after the wait", evicted, leaving)
		case !waited && lost > 1 || !waited && owner.Stateful && evicted > 1:
			t.Errorf("%d pods are evicted at once, %d of them Ready", evicted, lost)
		case !waited && lost == 1 && ready < len(owner.Pods):
			t.Errorf("a Ready pod is evicted while only %d of %d are", ready, len(owner.Pods))
		case leaving > 0 && evicted == 0 && ready == len(owner.Pods):
			t.Errorf("all %d are Ready, and none leaves", ready)
		}
	})
}
