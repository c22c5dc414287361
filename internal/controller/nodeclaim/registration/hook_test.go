package registration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// hook returns a given result.
type hook struct {
	name   string
	answer HookResult
	err    error
}

func (h *hook) Name() string { return h.name }

func (h *hook) Check(context.Context, *karpv1.NodeClaim, *corev1.Node) (HookResult, error) {
	return h.answer, h.err
}

func waits(name string, wait time.Duration) *hook {
	return &hook{name: name, answer: HookResult{RequeueAfter: wait}}
}

func TestHooks(t *testing.T) {
	labeled := &hook{name: "labels", answer: HookResult{Labels: map[string]string{"example.com/rack": "7"}}}
	for _, tt := range []struct {
		name  string
		hooks []Hook
		// pending is the condition's message while hooks are pending; empty if the node registers.
		pending string
		wait    time.Duration
		err     string
		label   string
	}{
		{
			name: "one of two is pending", hooks: []Hook{&hook{name: "ready"}, waits("network", time.Second)}, pending: "network",
			wait: time.Second,
		},
		{
			name: "both are pending, the shorter wait decides", hooks: []Hook{waits("A", 10*time.Second), waits("B", 5*time.Second)},
			pending: "A, B", wait: 5 * time.Second,
		},
		{
			name: "one fails", hooks: []Hook{&hook{name: "network", err: errors.New("no answer")}}, pending: "network",
			err: `registration hook "network" failed, no answer`,
		},
		{
			name: "one fails, another is pending", hooks: []Hook{&hook{name: "A", err: errors.New("no answer")}, waits("B", 5*time.Second)},
			pending: "A, B", wait: 5 * time.Second, err: "no answer",
		},
		{name: "labels reach claim and node", hooks: []Hook{labeled}, label: "7"},
		{
			name: "labels of a hook while another is pending", hooks: []Hook{labeled, waits("network", time.Second)}, pending: "network",
			wait: time.Second, label: "7",
		},
		{name: "no list", hooks: nil},
		{name: "an empty list", hooks: []Hook{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, theClaim(), controllertest.JoinedNode("a"))
			r := reconciler(f)
			r.Hooks = tt.hooks
			result, err := f.Try(r, "a")
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) || result.RequeueAfter != tt.wait {
				t.Errorf("is requeued after %v, error %v", result.RequeueAfter, err)
			}
			n, c := f.Node("node-a"), f.Claim("a")
			registered, _ := condition.Get(c, karpv1.ConditionRegistered)
			want := []string{dedicated, starting}
			if tt.pending != "" {
				want = []string{dedicated, starting, unregisteredT}
				if registered.Status != metav1.ConditionUnknown || registered.Reason != "RegistrationHookPending" ||
					registered.Message != tt.pending {
					t.Errorf("Registered is %+v", registered)
				}
			} else if registered.Status != metav1.ConditionTrue {
				t.Errorf("Registered is %+v", registered)
			}
			if diff := cmp.Diff(want, controllertest.Taints(n)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if marked := n.Labels[karpv1.LabelRegistered] == "true"; marked != (tt.pending == "") {
				t.Errorf("labels %v", n.Labels)
			}
			if !slices.Contains(n.Finalizers, karpv1.FinalizerTermination) || n.Labels[karpv1.LabelNodePool] != "general" {
				t.Errorf("the node was not synced: finalizers %v, labels %v", n.Finalizers, n.Labels)
			}
			if n.Labels["example.com/rack"] != tt.label || c.Labels["example.com/rack"] != tt.label {
				t.Errorf("labels %v and %v", n.Labels, c.Labels)
			}
		})
	}
}

// A hook is satisfied later, and a startup taint has gone in between: it stays away.
func TestHookIsSatisfiedLater(t *testing.T) {
	f := controllertest.New(t, theClaim(), controllertest.JoinedNode("a"))
	network := waits("network", time.Second)
	r := reconciler(f)
	r.Hooks = []Hook{network}
	f.Reconcile(r, "a")
	n := f.Node("node-a")
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/starting" })
	f.Do(f.API.Update(f.Context(), n))
	network.answer.RequeueAfter = 0
	f.Reconcile(r, "a")
	if !condition.IsTrue(f.Claim("a"), karpv1.ConditionRegistered) {
		t.Error("it does not register on that pass")
	}
	if diff := cmp.Diff([]string{dedicated}, controllertest.Taints(f.Node("node-a"))); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

// A person, or an agent, removes a taint of the NodePool from the node while a hook is pending: it does not come back.
func TestATaintRemovedBeforeRegistrationStaysAway(t *testing.T) {
	f := controllertest.New(t, theClaim(), controllertest.JoinedNode("a"))
	network := waits("network", time.Second)
	r := reconciler(f)
	r.Hooks = []Hook{network}
	f.Reconcile(r, "a")
	n := f.Node("node-a")
	if diff := cmp.Diff([]string{dedicated, starting, unregisteredT}, controllertest.Taints(n)); diff != "" {
		t.Fatalf("while the hook is pending, taints (-want +got):\n%s", diff)
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/own" })
	f.Do(f.API.Update(f.Context(), n))
	f.Reconcile(r, "a") // the hook is still pending
	if diff := cmp.Diff([]string{starting, unregisteredT}, controllertest.Taints(f.Node("node-a"))); diff != "" {
		t.Errorf("on the next pass, taints (-want +got):\n%s", diff)
	}
	network.answer.RequeueAfter = 0
	f.Reconcile(r, "a")
	if diff := cmp.Diff([]string{starting}, controllertest.Taints(f.Node("node-a"))); diff != "" {
		t.Errorf("once registered, taints (-want +got):\n%s", diff)
	}
}

func TestPoolOfThatNameIsAnother(t *testing.T) {
	t.Run("the node registers, and a pool that has the name of its own is not judged", func(t *testing.T) {
		pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.UID = "uid-pool" })
		claim := theClaim(func(c *karpv1.NodeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "NodePool", Name: "general", UID: "uid-of-the-old-pool"}}
		})
		f := controllertest.New(t, pool, claim, controllertest.JoinedNode("a"))
		f.Get(pool)
		before := pool.DeepCopy()
		f.Reconcile(reconciler(f), "a")
		f.Get(pool)
		if diff := cmp.Diff(before.Status, pool.Status); diff != "" || !condition.IsTrue(f.Claim("a"), karpv1.ConditionRegistered) {
			t.Errorf("claim %+v, pool (-before +after):\n%s", f.Claim("a").Status.Conditions, diff)
		}
	})
}

func TestPoolsHearOfRegistrations(t *testing.T) {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.UID = "uid-pool" })
	claim := theClaim(func(c *karpv1.NodeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "NodePool", Name: "general", UID: "uid-pool"}}
	})
	f := controllertest.New(t, pool, claim, controllertest.JoinedNode("a"))
	f.Reconcile(reconciler(f), "a")
	f.Get(pool)
	if !condition.IsTrue(pool, karpv1.ConditionNodeRegistrationHealthy) {
		t.Errorf("conditions %+v", pool.Status.Conditions)
	}
}
