package provisioning

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestWaitsForLaunch(t *testing.T) {
	young := snapshot.Node{Claim: "c", CreatedAt: controllertest.Start, Nominated: []types.UID{"uid-a"}}
	change := func(f func(*snapshot.Node)) snapshot.Node {
		n := young
		f(&n)
		return n
	}
	tests := []struct {
		name string
		node snapshot.Node
		pods []*corev1.Pod
		want bool
	}{
		{"its pod waits", young, []*corev1.Pod{pending("a")}, false},
		{"its pod has gone, another waits", young, []*corev1.Pod{pending("b")}, true},
		{"its pod runs elsewhere", change(func(n *snapshot.Node) { n.Pods = []*corev1.Pod{controllertest.Pod("a", "x")} }), nil, false},
		{
			"its pod runs elsewhere, another waits",
			change(func(n *snapshot.Node) { n.Pods = []*corev1.Pod{controllertest.Pod("a", "x")} }),
			[]*corev1.Pod{pending("b")},
			true,
		},
		{"launched: what it holds is known", change(func(n *snapshot.Node) { n.Launched = true }), nil, false},
		{"deleting", change(func(n *snapshot.Node) { n.Deleting = true }), nil, false},
		{
			"not launched for longer than the timeout",
			change(func(n *snapshot.Node) { n.CreatedAt = controllertest.Start.Add(-launchWaitTimeout - time.Second) }),
			nil,
			false,
		},
		{
			"not launched for as long as a single launch may take",
			change(func(n *snapshot.Node) { n.CreatedAt = controllertest.Start.Add(-launchWaitTimeout) }),
			nil,
			true,
		},
		{"created for nobody in particular", change(func(n *snapshot.Node) { n.Nominated = nil }), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshot.Snapshot{Now: controllertest.Start, Nodes: []snapshot.Node{tt.node}, Pods: tt.pods}
			if got := waitsForLaunch(s); got != tt.want {
				t.Errorf("changing hands %v, want %v", got, tt.want)
			}
		})
	}
}

// The launches of a burst take turns. Each claim that has no instance yet adds to the time that a launch may take; others do not.
func TestLaunchesOfABurstTakeTurns(t *testing.T) {
	const old = launchWaitTimeout + 10*time.Second
	late := snapshot.Node{Claim: "late", CreatedAt: controllertest.Start.Add(-old), Nominated: []types.UID{"uid-gone"}}
	for _, tt := range []struct {
		name   string
		other  snapshot.Node
		others int
		want   bool
	}{
		{"99 others have no instance", snapshot.Node{Claim: "c", CreatedAt: controllertest.Start}, 99, true},
		{"98 others have no instance", snapshot.Node{Claim: "c", CreatedAt: controllertest.Start}, 98, false},
		{"all others have", snapshot.Node{Claim: "c", Launched: true}, 500, false},
		{"all others are deleting", snapshot.Node{Claim: "c", Deleting: true}, 500, false},
		{"all others are of somebody else", snapshot.Node{Name: "n"}, 500, false},
	} {
		s := &snapshot.Snapshot{Now: controllertest.Start, Nodes: append(slices.Repeat([]snapshot.Node{tt.other}, tt.others), late)}
		if got := waitsForLaunch(s); got != tt.want {
			t.Errorf("%s: waits %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A pod that was driven off is replaced by another, for which its claim will do once it has launched.
func TestReplacementPodWaitsForTheLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("new"),
			controllertest.Claim("c", func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationNominatedPods] = "old" }))
		p := provisioner(f)
		done := make(chan error)
		go func() { done <- p.pass(t.Context()) }()
		time.Sleep(2 * time.Second)
		c := f.Claim("c")
		controllertest.Launched(c)
		c.Status.Allocatable = engine.Resources("cpu", "2", "memory", "8Gi", "pods", "10")
		c.Status.Capacity = c.Status.Allocatable
		f.Do(f.API.Status().Update(t.Context(), c))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := len(claims(t, f.API)); got != 1 {
			t.Errorf("%d claims: created again for the replacement", got)
		}
	})
}

// One who deletes pods as soon as their claims are created does not keep the pods of others waiting, however many claims have no instance.
func TestPodsOfOthersWaitForLaunchesNoLongerThanOneMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{controllertest.Class(), controllertest.Pool("general"), pending("other")}
		for i := range 200 {
			objects = append(objects, controllertest.Claim(fmt.Sprintf("late-%d", i), func(c *karpv1.NodeClaim) {
				c.Annotations[karpv1.AnnotationNominatedPods] = "deleted"
			}))
		}
		f := controllertest.New(t, objects...)
		ctx, cancel := context.WithTimeout(t.Context(), launchWaitTimeout+2*launchPollInterval)
		defer cancel()
		if err := provisioner(f).pass(ctx); err != nil {
			t.Errorf("a pass still waits after %v: %v", launchWaitTimeout, err)
		}
		if got := len(claims(t, f.API)); got != 201 {
			t.Errorf("%d claims, want one more than 200", got)
		}
	})
}

// kube-scheduler bound the pod of a claim without an instance to the node that another pod was waiting for. That one gets the claim: nobody
// waits for the launch, and nothing more is launched.
func TestPodWhoseNodeWasTakenGetsTheClaimOfTheOtherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(n *corev1.Node) {
			n.Status.Allocatable = engine.Resources("cpu", "600m", "memory", "1Gi", "pods", "10")
		}
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), controllertest.ReadyNode("ready", full),
			controllertest.Claim("ready", controllertest.Initialized, func(c *karpv1.NodeClaim) {
				c.Annotations[karpv1.AnnotationNominatedPods] = "uid-waits"
			}),
			controllertest.Claim("late", func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationNominatedPods] = "uid-runs" }),
			pending("waits"), pending("runs", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "node-ready", nil }))
		ctx, cancel := context.WithTimeout(t.Context(), launchPollInterval/2)
		defer cancel()
		if err := provisioner(f).pass(ctx); err != nil {
			t.Errorf("the pass waited: %v", err)
		}
		if got := len(claims(t, f.API)); got != 2 {
			t.Errorf("%d claims, want the 2 that there were: two nodes for one pod", got)
		}
	})
}
