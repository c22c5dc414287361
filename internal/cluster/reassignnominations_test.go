package cluster_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// asks returns a change that gives the pod a container with requests.
func asks(requests ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: enginetest.Resources(requests...)}}}
	}
}

// apart keeps the pod off nodes with pods of its app.
func apart(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels["app"] = app
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			}},
		}}
	}
}

// A ready node took a pod of a claim that has no instance yet, and the pod that it was for waits. The claim is for that one now, if
// whatever it is launched as will do.
func TestWaitingPodsGetFreedPlaces(t *testing.T) {
	cpu, half := asks("cpu", "1"), asks("cpu", "500m")
	volume := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	}
	device := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	port := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	zone := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z1"} }
	label := func(p *corev1.Pod) { p.Labels["pod-index"] = "7" }
	zoned := func(p *corev1.Pod) {
		p.Labels[corev1.LabelTopologyZone], p.Labels[corev1.LabelTopologyRegion] = "z1", "r"
	}
	ready := claimOf("ready", launched("i-1"), registered("ready"), initialized, nominates("uid-waits"))
	late := claimOf("late", nominates("uid-runs"))
	both := func(runs, waits *corev1.Pod) []client.Object { return []client.Object{ready, late, runs, waits} }
	for _, tt := range []struct {
		name    string
		objects []client.Object
		want    []types.UID
	}{
		{"an equal pod", both(boundPod("runs", "ready", cpu), podOf("waits", cpu, unschedulable)), []types.UID{"uid-waits"}},
		{
			"one of another app that needs less",
			both(boundPod("runs", "ready", cpu), podOf("waits", half, label, unschedulable)),
			[]types.UID{"uid-waits"},
		},
		{
			"one that keeps apart from the same pods",
			both(boundPod("runs", "ready", cpu, apart("web")), podOf("waits", cpu, apart("web"), unschedulable)),
			[]types.UID{"uid-waits"},
		},
		{
			"one that keeps apart from the same pods, the other one with the zone of its node",
			both(boundPod("runs", "ready", cpu, apart("web"), zoned), podOf("waits", cpu, apart("web"), unschedulable)),
			[]types.UID{"uid-waits"},
		},
		{
			"one that keeps apart from others",
			both(boundPod("runs", "ready", cpu, apart("web")), podOf("waits", cpu, apart("db"), unschedulable)),
			[]types.UID{"uid-runs"},
		},
		{
			"one that keeps apart, with other labels",
			both(boundPod("runs", "ready", cpu, apart("web")), podOf("waits", cpu, apart("web"), label, unschedulable)),
			[]types.UID{"uid-runs"},
		},
		{"one that needs more", both(boundPod("runs", "ready", cpu), podOf("waits", asks("cpu", "2"), unschedulable)), []types.UID{"uid-runs"}},
		{
			"one that needs another resource",
			both(boundPod("runs", "ready", cpu), podOf("waits", asks("nvidia.com/gpu", "1"), unschedulable)),
			[]types.UID{"uid-runs"},
		},
		{"one that needs a zone", both(boundPod("runs", "ready", cpu), podOf("waits", cpu, zone, unschedulable)), []types.UID{"uid-runs"}},
		{"one that needs a port", both(boundPod("runs", "ready", cpu), podOf("waits", cpu, port, unschedulable)), []types.UID{"uid-runs"}},
		{
			"one with the same volume, which is elsewhere",
			both(boundPod("runs", "ready", cpu, volume), podOf("waits", cpu, volume, unschedulable)),
			[]types.UID{"uid-runs"},
		},
		{"one with devices", both(boundPod("runs", "ready", cpu, device), podOf("waits", cpu, device, unschedulable)), []types.UID{"uid-runs"}},
		{"one that kube-scheduler has not tried", both(boundPod("runs", "ready", cpu), podOf("waits", cpu)), []types.UID{"uid-runs"}},
		{
			"one with a place of its own, while another has none",
			[]client.Object{
				ready, late, boundPod("runs", "ready", cpu), podOf("another", cpu, unschedulable), podOf("waits", cpu, unschedulable),
				claimOf("own", nominates("uid-another")),
			},
			[]types.UID{"uid-waits"},
		},
		{
			"one whose node nobody else took",
			[]client.Object{
				claimOf("ready", launched("i-1"), registered("ready"), initialized, nominates("uid-runs-2,uid-waits")), late,
				boundPod("runs-2", "ready", half), podOf("waits", half, unschedulable), nodeOf("old", "i-2"), boundPod("runs", "old", cpu),
			},
			[]types.UID{"uid-runs"},
		},
		{
			"a pod that is gone: nobody knows what it needed",
			both(podOf("other", cpu), podOf("waits", cpu, unschedulable)),
			[]types.UID{"uid-runs"},
		},
		{
			"the claim is launched: what it holds is known",
			[]client.Object{
				ready, claimOf("late", launched("i-3"), nominates("uid-runs")), boundPod("runs", "ready", cpu), podOf("waits", cpu, unschedulable),
			},
			[]types.UID{"uid-runs"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := append(slices.Clone(tt.objects), nodeOf("ready", "i-1", joinedNode, initializedNode, func(n *corev1.Node) {
				n.Status.Allocatable = enginetest.Resources("cpu", "1", "pods", "10")
			}))
			for _, n := range newTestCluster(t, objects...).snapshot(t).Nodes {
				if n.Claim == "late" && !slices.Equal(n.Nominated, tt.want) {
					t.Errorf("the claim is for %v, want %v", n.Nominated, tt.want)
				}
			}
		})
	}
}

// A node takes pods as soon as its taints are gone, before its claim is initialized.
func TestAPlaceIsTakenBeforeTheNodeIsInitialized(t *testing.T) {
	cpu := asks("cpu", "1")
	for _, tt := range []struct {
		name string
		runs *corev1.Pod
		want []types.UID
	}{
		{"on the node of the waiting pod", boundPod("runs", "joined", cpu), []types.UID{"uid-waits"}},
		{"on another", boundPod("runs", "old", cpu), []types.UID{"uid-runs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t,
				claimOf("joined", launched("i-1"), registered("joined"), nominates("uid-waits")), claimOf("late", nominates("uid-runs")),
				nodeOf("joined", "i-1", joinedNode, func(n *corev1.Node) { n.Status.Allocatable = enginetest.Resources("cpu", "1", "pods", "10") }),
				nodeOf("old", "i-2"), tt.runs, podOf("waits", cpu, unschedulable),
			).snapshot(t)
			for _, n := range s.Nodes {
				if n.Claim == "late" && !slices.Equal(n.Nominated, tt.want) {
					t.Errorf("the claim is for %v, want %v", n.Nominated, tt.want)
				}
			}
		})
	}
}

// Each freed place goes to one pod, and the claims' other pods keep theirs.
func TestAVacatedPlaceGoesToOnePod(t *testing.T) {
	cpu := asks("cpu", "1")
	s := newTestCluster(t,
		claimOf("a", nominates("uid-runs-1,uid-stays")), claimOf("b", nominates("uid-runs-2")),
		nodeOf("old", "i-1"), boundPod("runs-1", "old", cpu), boundPod("runs-2", "old", cpu),
		podOf("stays", cpu, unschedulable), podOf("w1", cpu, unschedulable), podOf("w2", cpu, unschedulable), podOf("w3", cpu, unschedulable),
	).snapshot(t)
	got := map[string][]types.UID{}
	for _, n := range s.Nodes {
		got[n.Claim] = n.Nominated
	}
	if !slices.Equal(got["a"], []types.UID{"uid-stays", "uid-w1"}) || !slices.Equal(got["b"], []types.UID{"uid-w2"}) {
		t.Errorf("nominated: %v", got)
	}
}
