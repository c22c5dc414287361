package hydration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func hydrate(f *controllertest.Fixture) {
	f.Reconcile(&Reconciler{Client: f.API, Now: f.Now}, "a")
}

func TestNodeClassLabel(t *testing.T) {
	bare := func(c *karpv1.NodeClaim) { delete(c.Labels, awsv1.LabelNodeClass) }
	bareNode := controllertest.ReadyNode("a", func(n *corev1.Node) { delete(n.Labels, awsv1.LabelNodeClass) })
	second := controllertest.ReadyNode("a", func(n *corev1.Node) {
		n.Name = "node-b"
		delete(n.Labels, awsv1.LabelNodeClass)
	})
	for _, tt := range []struct {
		name        string
		claim       *karpv1.NodeClaim
		nodes       []client.Object
		claims, has bool
	}{
		{
			"claim and node of an earlier version", controllertest.Claim("a", controllertest.Registered, bare),
			[]client.Object{bareNode},
			true,
			true,
		},
		{
			"two nodes: it is not known which is the claim's", controllertest.Claim("a", controllertest.Registered, bare),
			[]client.Object{bareNode, second},
			true, false,
		},
		{"another provider's", controllertest.Claim("a", controllertest.Registered, bare,
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), []client.Object{bareNode}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []client.Object
			for _, n := range tt.nodes {
				nodes = append(nodes, n.DeepCopyObject().(client.Object))
			}
			f := controllertest.New(t, append(nodes, tt.claim)...)
			hydrate(f)
			if got := f.Claim("a").Labels[awsv1.LabelNodeClass] == "default"; got != tt.claims {
				t.Errorf("claim's labels %v", f.Claim("a").Labels)
			}
			if got := f.Node("node-a").Labels[awsv1.LabelNodeClass] == "default"; got != tt.has {
				t.Errorf("node's labels %v", f.Node("node-a").Labels)
			}
		})
	}
}

func TestGenerations(t *testing.T) {
	next := func(c *karpv1.NodeClaim) { c.Generation = 2 }
	t.Run("the spec changes after all is True", func(t *testing.T) {
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, next), controllertest.ReadyNode("a"))
		f.Clock = f.Clock.Add(time.Hour)
		hydrate(f)
		c := f.Claim("a")
		if !condition.IsReady(c) {
			t.Errorf("not ready: %+v", c.Status.Conditions)
		}
		for _, typ := range c.ConditionTypes().Dependents {
			got, _ := condition.Get(c, typ)
			if got.ObservedGeneration != 2 || !got.LastTransitionTime.Time.Equal(controllertest.Start) {
				t.Errorf("%s: generation %d since %v", typ, got.ObservedGeneration, got.LastTransitionTime)
			}
		}
	})
	t.Run("undecided conditions keep their generation", func(t *testing.T) {
		f := controllertest.New(t, controllertest.Claim("a", controllertest.Launched, func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("NodeNotFound", ""), controllertest.Start)
		}, next))
		hydrate(f)
		launched, _ := condition.Get(f.Claim("a"), karpv1.ConditionLaunched)
		registered, _ := condition.Get(f.Claim("a"), karpv1.ConditionRegistered)
		if launched.ObservedGeneration != 2 || registered.ObservedGeneration != 0 {
			t.Errorf("generations %d and %d", launched.ObservedGeneration, registered.ObservedGeneration)
		}
	})
}
