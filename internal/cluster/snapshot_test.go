package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func room(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// view describes what a merged node shows, in few words.
type view struct {
	Name, Claim                                 string
	CPU, GPU                                    string
	Taints                                      []string
	Launched, Registered, Initialized, Deleting bool
}

func viewOf(n snapshot.Node) view {
	v := view{
		Name:        n.Name,
		Claim:       n.Claim,
		Launched:    n.Launched,
		Registered:  n.Registered,
		Initialized: n.Initialized,
		Deleting:    n.Deleting,
	}
	cpu, gpu := n.Allocatable[corev1.ResourceCPU], n.Allocatable["nvidia.com/gpu"]
	v.CPU, v.GPU = cpu.String(), gpu.String()
	for _, t := range n.Taints {
		v.Taints = append(v.Taints, t.Key)
	}
	return v
}

func TestMergedNode(t *testing.T) {
	gpu := resource.MustParse("1")
	promise := func(c *karpv1.NodeClaim) { c.Status.Allocatable["nvidia.com/gpu"] = gpu }
	tainted := func(taints ...corev1.Taint) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = taints }
	}
	startup := func(c *karpv1.NodeClaim) {
		c.Spec.Taints = []corev1.Taint{taint("dedicated", "NoSchedule")}
		c.Spec.StartupTaints = []corev1.Taint{taint("starting", "NoSchedule")}
	}
	deleting := func(o client.Object) {
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		o.SetFinalizers([]string{karpv1.FinalizerTermination})
	}
	tests := []struct {
		name  string
		claim *karpv1.NodeClaim
		node  *corev1.Node
		want  view
	}{
		{
			"not launched: only a name",
			claimOf("claim-a", startup), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "0", GPU: "0", Taints: []string{"dedicated"}},
		},
		{
			"launched, no Node: what the claim promises, under the claim's name and taints",
			claimOf("claim-a", startup, launched("i-1"), promise), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "3", GPU: "1", Taints: []string{"dedicated"}, Launched: true},
		},
		{
			"not initialized, no Node: a startup taint that is also a taint will go",
			claimOf("claim-a", startup, launched("i-1"), func(c *karpv1.NodeClaim) { c.Spec.StartupTaints = c.Spec.Taints }), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "3", GPU: "0", Launched: true},
		},
		{
			"not registered: the Node's room, the claim's name and taints",
			claimOf("claim-a", startup, launched("i-1"), promise),
			nodeOf("node-a", "i-1", tainted(karpv1.TaintUnregistered(), taint("unknown", "NoSchedule"))),
			view{Name: "claim-a", Claim: "claim-a", CPU: "2", GPU: "1", Taints: []string{"dedicated"}, Launched: true},
		},
		{
			"registered: the Node's name and taints, without those that will go, and what is missing or zero from the claim",
			claimOf("claim-a", startup, launched("i-1"), registered("node-a"), promise),
			nodeOf(
				"node-a",
				"i-1",
				joinedNode,
				tainted(
					taint("starting", "NoSchedule"),
					taint(uninitialized, "NoSchedule"),
					taint("node.kubernetes.io/not-ready", "NoExecute"),
					taint("readiness.k8s.io/x", "NoExecute"),
					taint("dedicated", "NoSchedule"),
				),
				func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0") },
			),
			view{Name: "node-a", Claim: "claim-a", CPU: "2", GPU: "1", Taints: []string{"dedicated"}, Launched: true, Registered: true},
		},
		{
			"initialized: the Node alone counts, taints that came back included",
			claimOf("claim-a", startup, launched("i-1"), registered("node-a"), initialized, promise),
			nodeOf(
				"node-a",
				"i-1",
				joinedNode,
				initializedNode,
				tainted(taint("starting", "NoSchedule"), taint("node.kubernetes.io/not-ready", "NoExecute")),
			),
			view{
				Name:        "node-a",
				Claim:       "claim-a",
				CPU:         "2",
				GPU:         "0",
				Taints:      []string{"starting", "node.kubernetes.io/not-ready"},
				Launched:    true,
				Registered:  true,
				Initialized: true,
			},
		},
		{
			"another instance's Node is not merged; with a pool's name it is one of ours in a state between",
			claimOf("claim-a", launched("i-1")),
			nodeOf("node-b", "i-2", joinedNode),
			view{Name: "claim-a", Claim: "claim-a", CPU: "3", GPU: "0", Launched: true},
		},
		{
			"a Node without provider ID is nobody's",
			claimOf("claim-a"),
			nodeOf("node-b", "", joinedNode),
			view{Name: "claim-a", Claim: "claim-a", CPU: "0", GPU: "0"},
		},
		{
			"the claim is deleting",
			claimOf("claim-a", launched("i-1"), func(c *karpv1.NodeClaim) { deleting(c) }), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "3", GPU: "0", Launched: true, Deleting: true},
		},
		{
			"the instance is terminating",
			claimOf(
				"claim-a",
				launched("i-1"),
				func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionInstanceTerminating, start) },
			), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "3", GPU: "0", Launched: true, Deleting: true},
		},
		{
			"the Node is deleting, its claim not yet",
			claimOf("claim-a", launched("i-1"), registered("node-a")),
			nodeOf("node-a", "i-1", joinedNode, func(n *corev1.Node) { deleting(n) }),
			view{Name: "node-a", Claim: "claim-a", CPU: "2", GPU: "0", Launched: true, Registered: true, Deleting: true},
		},
		{
			"the Node was there and was removed: what the claim promised will not come",
			claimOf("claim-a", launched("i-1"), registered("node-a"), nominates("pod-1")), nil,
			view{Name: "claim-a", Claim: "claim-a", CPU: "0", GPU: "0", Launched: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{tt.claim}
			if tt.node != nil {
				objects = append(objects, tt.node)
			}
			s := newTestCluster(t, objects...).snapshot(t)
			if len(s.Nodes) != 1 {
				t.Fatalf("nodes %v, want one", nodeNames(s))
			}
			if diff := cmp.Diff(tt.want, viewOf(s.Nodes[0]), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForeignNodeTakesPodsAsItIs(t *testing.T) {
	n := nodeOf("theirs", "i-9", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{taint("node.kubernetes.io/not-ready", "NoSchedule")}
	})
	s := newTestCluster(t, n).snapshot(t)
	want := view{
		Name:        "theirs",
		CPU:         "2",
		GPU:         "0",
		Taints:      []string{"node.kubernetes.io/not-ready"},
		Launched:    true,
		Registered:  true,
		Initialized: true,
	}
	if diff := cmp.Diff(want, viewOf(s.Nodes[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// kube-scheduler looks labels up by the names that pods state: a node that has joined may lack one of the two names of a label.
func TestNodesThatLackANameOfALabel(t *testing.T) {
	zoned := func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "us-east-1a" }
	s := cluster.BuildSnapshot(cluster.Objects{
		Nodes: []*corev1.Node{
			nodeOf("theirs", "i-9", zoned), nodeOf("joins", "i-1", joinedNode, zoned),
			nodeOf("both", "i-8", zoned, func(n *corev1.Node) { n.Labels[corev1.LabelFailureDomainBetaZone] = "us-east-1a" }),
		},
		NodeClaims: []*karpv1.NodeClaim{claimOf("a", launched("i-1"), registered("joins"))},
	}, cluster.Facts{Now: start, Labels: requirement.CoreLabels()})
	want := map[string][]string{corev1.LabelFailureDomainBetaZone: {"theirs"}}
	if diff := cmp.Diff(want, s.Labels.Lacking); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A claim and a node of others may have one name.
func TestClaimAndNodeOfOneName(t *testing.T) {
	s := newTestCluster(t, claimOf("a", launched("i-1")), nodeOf("a", "i-9"), boundPod("p", "a")).snapshot(t)
	wantNodes(t, s, "a", "a")
	for _, n := range s.Nodes {
		if holds := len(n.Pods) == 1; holds != (n.Claim == "") {
			t.Errorf("claim %q holds %d pods: they are bound to the Node", n.Claim, len(n.Pods))
		}
	}
}

// Two Nodes of one instance are one machine.
func TestTwoNodesOfOneInstance(t *testing.T) {
	s := newTestCluster(
		t,
		claimOf("claim-a", launched("i-1"), registered("node-b")),
		nodeOf("node-a", "i-1"),
		nodeOf("node-b", "i-1", joinedNode),
		nodeOf("node-c", "i-1"),
	).snapshot(
		t,
	)
	wantNodes(t, s, "node-b")
}

func TestNominatedPods(t *testing.T) {
	old := func(c *karpv1.NodeClaim) {
		condition.SetTrue(c, karpv1.ConditionInitialized, start.Add(-window-time.Second))
	}
	tests := []struct {
		name  string
		claim *karpv1.NodeClaim
		want  []types.UID
	}{
		{"from the annotation, in order", claimOf("a", nominates("b,a")), []types.UID{"a", "b"}},
		{"none", claimOf("a"), nil},
		{"launched, not initialized: for as long as it takes", claimOf("a", launched("i-1"), nominates("a")), []types.UID{"a"}},
		{"just initialized", claimOf("a", launched("i-1"), initialized, nominates("a")), []types.UID{"a"}},
		{"initialized a window ago: the pod is kept off by something", claimOf("a", launched("i-1"), old, nominates("a")), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := newTestCluster(t, tt.claim).snapshot(t).Nodes[0].Nominated; !slices.Equal(got, tt.want) {
				t.Errorf("nominated %v, want %v", got, tt.want)
			}
		})
	}
}

func podOf(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              name,
			UID:               types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(start),
			Labels:            map[string]string{},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func boundPod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	return podOf(name, append(change, func(p *corev1.Pod) { p.Spec.NodeName = node })...)
}

func unschedulable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
	}
}

func ownedBy(kind, uid string) func(*corev1.Pod) {
	controls := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: types.UID(uid), Controller: &controls},
		}
	}
}

func terminating(p *corev1.Pod) {
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start}, []string{"test/keep"}
}

func TestPodsToPlace(t *testing.T) {
	leaving := claimOf("leaving", launched("i-1"), registered("leaving"), func(c *karpv1.NodeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: start}, []string{karpv1.FinalizerTermination}
	})
	staying := claimOf("staying", launched("i-2"), registered("staying"), initialized)
	nodes := []client.Object{
		leaving,
		staying,
		nodeOf("leaving", "i-1", joinedNode, initializedNode),
		nodeOf("staying", "i-2", joinedNode, initializedNode),
	}
	tests := []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"pending, no node fits", podOf("p", unschedulable), true},
		{"pending, the scheduler has not looked yet", podOf("p"), false},
		{"running on a node that stays", boundPod("p", "staying"), false},
		{"running on a node that leaves", boundPod("p", "leaving"), true},
		{"terminating there, nobody re-creates it by name", boundPod("p", "leaving", terminating, ownedBy("ReplicaSet", "rs")), false},
		{"terminating there, its StatefulSet will re-create it", boundPod("p", "leaving", terminating, ownedBy("StatefulSet", "ss")), true},
		{"a daemon there", boundPod("p", "leaving", ownedBy("DaemonSet", "ds")), false},
		{
			"do-not-disrupt there",
			boundPod("p", "leaving", func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }),
			false,
		},
		{"ended there", boundPod("p", "leaving", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false},
		{"on a node that nobody knows", boundPod("p", "gone"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t, append(copies(nodes), tt.pod)...).snapshot(t)
			if got := len(s.Pods) == 1; got != tt.want {
				t.Errorf("to be placed: %v, want %v", got, tt.want)
			}
			if arrives := tt.pod.Spec.NodeName == "" && !tt.want; arrives != (len(s.Arriving) == 1) {
				t.Errorf("%d pods arrive", len(s.Arriving))
			}
		})
	}
}

func TestPodBehindABudgetThatNeverAllows(t *testing.T) {
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "never"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	pdb.Spec.MaxUnavailable = &zero
	db := func(p *corev1.Pod) { p.Labels["app"] = "db" }
	w := newTestCluster(
		t,
		claimOf("a", launched("i-1"), registered("a")),
		nodeOf("a", "i-1", joinedNode),
		boundPod("p", "a", db),
		boundPod("q", "a"),
		pdb,
	)
	w.MarkForDeletion("uid-a")
	s := w.snapshot(t)
	if len(s.Pods) != 1 || s.Pods[0].Name != "q" {
		t.Errorf("%d pods to place, want q alone: nothing can move p now", len(s.Pods))
	}
}

func TestDaemonSetPods(t *testing.T) {
	affinity := func(value string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}},
			},
		}}}
	}
	set := func(change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent", UID: "ds"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{
			{
				Name: "a",
				Resources: corev1.ResourceRequirements{
					Limits:   room("1", "1Gi"),
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
				},
			},
		}
		for _, f := range change {
			f(d)
		}
		return d
	}
	live := func(name, cpu string, age time.Duration) *corev1.Pod {
		return boundPod(name, "node-a", ownedBy("DaemonSet", "ds"), func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(start.Add(-age))
			p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: room(cpu, "1Gi")}}}
			p.Spec.Affinity = affinity("node-a")
		})
	}
	larger := func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("4")
	}
	tests := []struct {
		name    string
		objects []client.Object
		cpu     string
		affine  *corev1.Affinity
	}{
		{"no pod yet: the template, limits standing in for requests", []client.Object{set()}, "500m", nil},
		{
			"the newest pod, not the larger template",
			[]client.Object{set(larger), live("old", "3", time.Hour), live("new", "2", time.Minute)},
			"2",
			&corev1.Affinity{},
		},
		{
			"the pin to its node gives way to the template's affinity",
			[]client.Object{set(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Affinity = affinity("any") }), live("new", "2", 0)},
			"2",
			affinity("any"),
		},
		{"or to none", []client.Object{set(), live("new", "2", 0)}, "2", &corev1.Affinity{}},
		{"another set's pod", []client.Object{set(func(d *appsv1.DaemonSet) { d.UID = "other" }), live("new", "2", 0)}, "500m", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t, append(tt.objects, nodeOf("node-a", "i-9"))...).snapshot(t)
			if len(s.DaemonSets) != 1 {
				t.Fatalf("%d daemon sets", len(s.DaemonSets))
			}
			pod := s.DaemonSets[0].Pod
			requests := snapshot.Requests(pod)
			if got := requests.Cpu().String(); got != tt.cpu || pod.Spec.NodeName != "" {
				t.Errorf("cpu %s on node %q, want %s on none", got, pod.Spec.NodeName, tt.cpu)
			}
			if got := requests.Memory().String(); got != "1Gi" {
				t.Errorf("memory %s, want 1Gi", got)
			}
			if diff := cmp.Diff(tt.affine, pod.Spec.Affinity); diff != "" {
				t.Errorf("affinity (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a set that is being deleted brings no pods", func(t *testing.T) {
		gone := set(func(d *appsv1.DaemonSet) {
			d.DeletionTimestamp, d.Finalizers = &metav1.Time{Time: start}, []string{"test/keep"}
		})
		if s := newTestCluster(t, gone).snapshot(t); len(s.DaemonSets) != 0 {
			t.Errorf("daemon sets %v", s.DaemonSets)
		}
	})
}

func TestVolumesAndLimits(t *testing.T) {
	count := int32(25)
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	csi.Spec.Drivers = []storagev1.CSINodeDriver{
		{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: &count}},
		{Name: "efs.csi.aws.com"},
	}
	must, other := true, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "efs.csi.aws.com"}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "ebs.csi.aws.com"}}
	driver.Spec.PreventPodSchedulingIfMissing = &must
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol-1"}}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}}
	// Not registered yet, the entry has the claim's name; its CSINode the Node's.
	s := newTestCluster(t, claimOf("claim-a", launched("i-1")), nodeOf("node-a", "i-1"), csi, pvc, pv, class, driver, other).snapshot(t)
	if diff := cmp.Diff(map[string]int32{"ebs.csi.aws.com": 25}, s.Nodes[0].VolumeLimits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ebs.csi.aws.com", "efs.csi.aws.com"}, s.Nodes[0].CSIDrivers); diff != "" {
		t.Errorf("drivers of the node (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"ebs.csi.aws.com": true}, s.Volumes.MustBeInstalled); diff != "" {
		t.Errorf("drivers that must be installed (-want +got):\n%s", diff)
	}
	if s.Volumes.Claims[types.NamespacedName{Namespace: "shop", Name: "data"}] == nil || s.Volumes.Volumes["vol-1"] == nil ||
		s.Volumes.StorageClasses["gp3"] == nil {
		t.Errorf("volumes %+v", s.Volumes)
	}
}

func TestANodeThatDriftedForTheSizeOfAPod(t *testing.T) {
	driftedFor := func(reason string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because(reason, reason), start)
		}
	}
	s := newTestCluster(t,
		claimOf("image", launched("i-1"), registered("image"), driftedFor("AMIDrift")), nodeOf("image", "i-1", joinedNode),
		claimOf("size", launched("i-2"), registered("size"), driftedFor("ResizeDeferred")), nodeOf("size", "i-2", joinedNode),
	).snapshot(t)
	for _, n := range s.Nodes {
		if n.DriftedAt.IsZero() || n.DriftedForResize != (n.Name == "size") {
			t.Errorf("node %s: drifted at %v, for a resize %v", n.Name, n.DriftedAt, n.DriftedForResize)
		}
	}
}

// The node lifecycle controller adds the taint after spec.unschedulable is set; kube-scheduler reads both.
func TestACordonedNodeTakesNoPodsBeforeItHasTheTaint(t *testing.T) {
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	both := func(n *corev1.Node) {
		cordon(n)
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	}
	s := newTestCluster(t,
		nodeOf("foreign", "", cordon), nodeOf("tainted", "", both), nodeOf("open", ""),
		claimOf("ours", launched("i-1"), registered("ours")), nodeOf("ours", "i-1", joinedNode, cordon),
	).snapshot(t)
	want := map[string]int{"foreign": 1, "tainted": 1, "open": 0, "ours": 1}
	for _, n := range s.Nodes {
		n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return t.Key != corev1.TaintNodeUnschedulable })
		if len(n.Taints) != want[n.Name] {
			t.Errorf("node %s: taints %v", n.Name, n.Taints)
		}
	}
}

// No API server clears the nomination of a pod with a node that is gone, and kube-scheduler tries the pod again like any other.
func TestAPodWhoseNominatedNodeIsGoneNeedsANode(t *testing.T) {
	nominated := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
	}
	s := newTestCluster(t, nodeOf("here", ""),
		podOf("stale", unschedulable, nominated("gone")), podOf("preempting", unschedulable, nominated("here")),
	).snapshot(t)
	if len(s.Pods) != 1 || s.Pods[0].Name != "stale" {
		t.Errorf("pods to plan: %v", s.Pods)
	}
}

// kube-scheduler keeps the room of pods that it has nominated: while it evicts others for them, and while they are about to be bound.
func TestPodsCountOnTheNodeThatTheyAreNominatedTo(t *testing.T) {
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "here" }
	refusedBefore := func(age time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			unschedulable(p)
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-age))
		}
	}
	victim := boundPod("victim", "here", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start}, []string{"test/kept"}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		})
	})
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		more   []client.Object
		onNode bool
	}{
		{"about to be bound", podOf("p", nominated), nil, true},
		{"just refused", podOf("p", refusedBefore(time.Second), nominated), nil, true},
		{"refused long ago, and no pod is evicted for it", podOf("p", refusedBefore(time.Hour), nominated), nil, false},
		{"refused long ago, while a pod is evicted", podOf("p", refusedBefore(time.Hour), nominated), []client.Object{victim}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t, append(tt.more, nodeOf("here", ""), tt.pod)...).snapshot(t)
			n := &s.Nodes[0]
			onNode := slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return p.Name == "p" })
			if pending := len(s.Pods) == 1; onNode != tt.onNode || pending == tt.onNode {
				t.Errorf("on the node: %v, to be planned: %v", onNode, pending)
			}
			if n.NominatedUntil.After(s.Now) != tt.onNode {
				t.Errorf("the node may be disrupted until %v", n.NominatedUntil)
			}
		})
	}
}

// copies returns deep copies for a second cluster.
func copies(objects []client.Object) []client.Object {
	out := make([]client.Object, len(objects))
	for i, o := range objects {
		out[i] = o.DeepCopyObject().(client.Object)
	}
	return out
}

func TestOrderOfTheCacheDoesNotMatter(t *testing.T) {
	var objects []client.Object
	for i := range 12 {
		name, id := fmt.Sprintf("n%02d", i), fmt.Sprintf("i-%d", i)
		objects = append(
			objects,
			claimOf("claim-"+name, launched(id), registered(name), nominates("x,y,z")),
			nodeOf(name, id, joinedNode),
			boundPod(
				"p-"+name,
				name,
			),
			boundPod("q-"+name, name),
			boundPod("d-"+name, name, ownedBy("DaemonSet", "ds")),
			podOf("w-"+name, unschedulable),
			nodeOf("foreign-"+name, ""),
			claimOf("new-"+name),
			&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}},
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}},
			poolOf(name),
		)
	}
	objects = append(objects, classOf(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent", UID: "ds"}})
	w := newTestCluster(t, copies(objects)...)
	w.types = smallAndLarge()
	want := w.snapshot(t)
	if len(want.Nodes) != 36 || len(want.Pools) != 12 || len(want.Pods) != 12 {
		t.Fatalf("%d nodes, %d pools, %d pods", len(want.Nodes), len(want.Pools), len(want.Pods))
	}
	for seed := range uint64(3) {
		s := w.state(shuffled{w.cache, rand.New(rand.NewPCG(seed, 0))}, w.live)
		got, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(snapshot.Snapshot{})); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
