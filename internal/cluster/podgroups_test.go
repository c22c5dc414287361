package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// gangOf is a PodGroup of namespace shop, where the pods of these tests are.
func gangOf(name string, minCount int32, edit ...func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	for _, e := range edit {
		e(g)
	}
	return g
}

func memberOf(group string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
}

// ago has the pod be created so long before the snapshot.
func ago(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-d)) }
}

// withGroups has the cluster serve PodGroups.
func withGroups(w *testCluster) {
	var informers informertest.FakeInformers
	w.State = w.stateWith(func(cfg *cluster.Config) {
		cfg.PodGroups = cluster.APIServer{Live: w.live, Informers: &informers, Now: w.clock}.ServedPodGroups(func(error) {})
	})
}

func sortedNames(pods []*corev1.Pod) []string {
	out := []string{}
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// Which pods are planned, and for which room is reserved, of a group in each state.
func TestPodsOfGroupsToPlace(t *testing.T) {
	tried := func(g *schedulingv1beta1.PodGroup) {
		g.Status.Conditions = []metav1.Condition{{
			Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonUnschedulable,
		}}
	}
	failed := func(g *schedulingv1beta1.PodGroup) {
		g.Status.Conditions = []metav1.Condition{{
			Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Reason: schedulingv1beta1.PodGroupReasonSchedulerError,
		}}
	}
	failedPod := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError,
		}}
	}
	gate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }
	for _, c := range []struct {
		name              string
		objects           []client.Object
		planned, arriving []string
	}{
		{
			"kube-scheduler has tried one of them",
			[]client.Object{gangOf("g", 2), podOf("a", memberOf("g"), unschedulable), podOf("b", memberOf("g"))},
			[]string{"a", "b"},
			[]string{},
		},
		{
			"kube-scheduler has tried the group",
			[]client.Object{gangOf("g", 2, tried), podOf("a", memberOf("g")), podOf("b", memberOf("g"))},
			[]string{"a", "b"},
			[]string{},
		},
		{
			"kube-scheduler fails for the group, since there is no node",
			[]client.Object{gangOf("g", 2, failed), podOf("a", memberOf("g"), failedPod), podOf("b", memberOf("g"), failedPod)},
			[]string{"a", "b"},
			[]string{},
		},
		{
			"kube-scheduler fails for the group for another reason",
			[]client.Object{gangOf("g", 2, failed), nodeOf("n", "i-1"), podOf("a", memberOf("g"), failedPod), podOf("b", memberOf("g"), failedPod)},
			[]string{},
			[]string{},
		},
		{
			"kube-scheduler has not tried it yet",
			[]client.Object{gangOf("g", 2), podOf("a", memberOf("g")), podOf("b", memberOf("g"))},
			[]string{},
			[]string{"a", "b"},
		},
		{
			"D46: too few pods exist, which need no room",
			[]client.Object{gangOf("g", 8), podOf("a", memberOf("g")), podOf("b", memberOf("g"))},
			[]string{},
			[]string{},
		},
		{
			"D46: too few pods exist after a while: the plan reports why they wait",
			[]client.Object{gangOf("g", 8), podOf("a", memberOf("g"), ago(2*time.Minute)), podOf("b", memberOf("g"))},
			[]string{"a"},
			[]string{},
		},
		{
			"D46: a pod that no scheduler tries",
			[]client.Object{podOf("a", ago(time.Minute)), podOf("b", ago(61*time.Second))},
			[]string{},
			[]string{"a"},
		},
		{
			"D45: the PodGroup was deleted after a failed cycle: the plan reports why they wait",
			[]client.Object{podOf("a", memberOf("g"), unschedulable), podOf("b", memberOf("g"))},
			[]string{"a"},
			[]string{},
		},
		{
			"a member has gates",
			[]client.Object{gangOf("g", 2), podOf("a", memberOf("g")), podOf("b", memberOf("g"), gate)},
			[]string{},
			[]string{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestCluster(t, c.objects...)
			withGroups(w)
			s := w.snapshot(t)
			if diff := cmp.Diff(c.planned, sortedNames(s.Pods)); diff != "" {
				t.Errorf("planned (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.arriving, sortedNames(s.Arriving)); diff != "" {
				t.Errorf("arriving (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGroupsHaveAllTheirPods(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	other := podOf("x", memberOf("g"))
	other.Namespace = "other"
	w := newTestCluster(t, gangOf("g", 2), gangOf("unused", 2), nodeOf("n", ""),
		boundPod("b", "n", memberOf("g")), boundPod("c", "gone", memberOf("g"), ended), podOf("a", memberOf("g"), unschedulable), other)
	withGroups(w)
	got := map[string][]string{}
	for _, g := range w.snapshot(t).PodGroups {
		got[fmt.Sprintf("%s/%s %v", g.Namespace, g.Name, g.Object != nil)] = sortedNames(g.Members)
	}
	if diff := cmp.Diff(map[string][]string{"shop/g true": {"a", "b", "c"}, "other/g false": {"x"}}, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// An API server begins and stops to serve PodGroups when it is restarted, and a controller may run before its role allows to list them.
func TestPodGroupsAreReadWhileTheyAreServed(t *testing.T) {
	resource := schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	var informers informertest.FakeInformers
	var answer error
	now, warned, asked := start, 0, 0
	live := interceptor.NewClient(apitest.New(t, noon), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			asked++
			return answer
		},
	})
	groups := cluster.APIServer{
		Live: live, Informers: &informers, Now: func() time.Time { return now },
	}.ServedPodGroups(func(error) { warned++ })
	version := uint64(0)
	for _, step := range []struct {
		name           string
		answer         error
		served, failed bool
		warned         int
		changed        bool
	}{
		{"the API server does not answer at the start", apierrors.NewTimeoutError("slow", 1), false, true, 0, false},
		{"not served", &meta.NoKindMatchError{}, false, false, 0, false},
		{"served", nil, true, false, 0, true},
		{"no answer: as before", apierrors.NewTimeoutError("slow", 1), true, false, 0, false},
		{"restarted without", apierrors.NewNotFound(resource, ""), false, false, 0, true},
		{"served again", nil, true, false, 0, true},
		{"the role has lost the permission", apierrors.NewForbidden(resource, "", nil), false, false, 1, true},
		{"it still lacks it", apierrors.NewForbidden(resource, "", nil), false, false, 1, false},
	} {
		answer = step.answer
		served, err := groups.Served(t.Context())
		if served != step.served || (err != nil) != step.failed || warned != step.warned {
			t.Errorf("%s: served %v, warned %d times, %v", step.name, served, warned, err)
		}
		if err == nil {
			n, err := groups.Count(t.Context())
			if err != nil || (n != version) != step.changed {
				t.Errorf("%s: version %d after %d, %v", step.name, n, version, err)
			}
			version = n
		}
		now = now.Add(time.Minute)
	}
	before := asked
	for range 3 {
		if _, err := groups.Served(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != before+1 {
		t.Errorf("asked %d times in a minute", asked-before)
	}
}

// kube-scheduler binds no pod of a gang before the last of its nodes is ready: until then the first is neither empty nor unfit.
func TestNodesOfAGangSettleTogether(t *testing.T) {
	running := func(g *schedulingv1beta1.PodGroup) {
		g.Status.Conditions = []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionTrue}}
	}
	second := claimOf("b", launched("i-2"), nominates("uid-q"))
	for _, c := range []struct {
		name   string
		group  *schedulingv1beta1.PodGroup
		second *karpv1.NodeClaim
		// after is the time since the first node was initialized.
		after     time.Duration
		protected bool
	}{
		{"the second is not ready", gangOf("g", 2), second, 10 * window, true},
		{"the group waits for more pods", gangOf("g", 3), second, 10 * window, true},
		{"the second is gone", gangOf("g", 2), claimOf("b", launched("i-2")), 10 * window, false},
		{"both have been ready for long", gangOf("g", 2), claimOf("b", launched("i-2"), registered("m"), initialized, nominates("uid-q")), 10 * window, false},
		{"kube-scheduler has scheduled the group", gangOf("g", 2, running), second, 10 * window, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := []*corev1.Node{nodeOf("n", "i-1", labeledRegistered, initializedNode, tenPods)}
			if c.second.Status.NodeName != "" {
				nodes = append(nodes, nodeOf("m", "i-2", labeledRegistered, initializedNode, tenPods))
			}
			s := cluster.BuildSnapshot(cluster.Objects{
				PodGroups:  &cluster.PodGroups{Groups: []*schedulingv1beta1.PodGroup{c.group}},
				NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("n"), initialized, nominates("uid-p")), c.second},
				Nodes:      nodes,
				Pods:       []*corev1.Pod{podOf("p", memberOf("g"), unschedulable), podOf("q", memberOf("g"), unschedulable)},
			}, cluster.Facts{Now: start.Add(c.after), NominationWindow: window})
			i := slices.IndexFunc(s.Nodes, func(n snapshot.Node) bool { return n.Claim == "a" })
			n := &s.Nodes[i]
			if n.NominatedUntil.After(s.Now) != c.protected || n.SettledAt.After(s.Now) != c.protected {
				t.Errorf("protected until %v, settled at %v, now %v", n.NominatedUntil, n.SettledAt, s.Now)
			}
		})
	}
}

func TestWithoutPodGroupsInTheAPINoPodIsInOne(t *testing.T) {
	s := newTestCluster(t, podOf("a", memberOf("g"), unschedulable)).snapshot(t)
	if len(s.Pods) != 1 || s.PodGroups != nil {
		t.Errorf("%d pods, groups %v", len(s.Pods), s.PodGroups)
	}
}
