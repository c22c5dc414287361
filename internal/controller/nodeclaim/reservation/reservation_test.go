package reservation

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// fleet is a cloud with these instances.
type fleet []cloudprovider.Instance

func (f fleet) List(context.Context) ([]cloudprovider.Instance, error) { return f, nil }

func labels() map[string]string {
	return map[string]string{
		karpv1.LabelNodePool: "general", karpv1.LabelCapacityType: "reserved", karpv1.LabelRegistered: "true",
		awsv1.LabelReservationID: "cr-1", awsv1.LabelReservationType: "default", awsv1.LabelReservationInterruptible: "false",
	}
}

// inReservation is a claim of cr-1 with its Node.
func inReservation(change ...func(*karpv1.NodeClaim)) (*karpv1.NodeClaim, *corev1.Node) {
	claim := controllertest.Claim(
		"a",
		append([]func(*karpv1.NodeClaim){controllertest.Initialized, func(c *karpv1.NodeClaim) { c.Labels = labels() }}, change...)...)
	return claim, controllertest.ReadyNode("a", func(n *corev1.Node) { n.Labels = labels() })
}

// counted returns how many reserved claims were counted as terminated with their block.
func counted(f *controllertest.Fixture) int {
	return int(testutil.ToFloat64(f.Metrics.ClaimsDisrupted.WithLabelValues(reasonExpiring, "general", "reserved", "", "graceful")))
}

func TestEndOfAReservation(t *testing.T) {
	for _, tc := range []struct {
		name     string
		state    string // of cr-1 in the node class; empty = not there
		instance cloudprovider.Instance
		change   func(*karpv1.NodeClaim)
		deleted  bool
		want     string // capacity type of claim and Node
	}{
		{"in a reservation that is not a block, or does not expire soon", "active", cloudprovider.Instance{
			Owner:        cloudprovider.Ours,
			CapacityType: "reserved",
		}, nil, false, "reserved"},
		{
			"a capacity block that expires soon", "expiring",
			cloudprovider.Instance{Owner: cloudprovider.Ours, CapacityType: "reserved"},
			nil,
			true, "reserved",
		},
		{
			"over, and the instance runs on", "",
			cloudprovider.Instance{Owner: cloudprovider.Ours, CapacityType: "on-demand"},
			nil, false,
			"on-demand",
		},
		{"no longer selected, but used", "", cloudprovider.Instance{Owner: cloudprovider.Ours, CapacityType: "reserved"}, nil, false, "reserved"},
		{"gone", "", cloudprovider.Instance{ProviderID: "other", Owner: cloudprovider.Ours, CapacityType: "on-demand"}, nil, false, "reserved"},
		{"another owner's", "", cloudprovider.Instance{Owner: cloudprovider.Foreign, CapacityType: "on-demand"}, nil, false, "reserved"},
		{
			"not EC2's", "expiring",
			cloudprovider.Instance{Owner: cloudprovider.Ours, CapacityType: "on-demand"},
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }, false, "reserved",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim, node := inReservation()
			if tc.change != nil {
				tc.change(claim)
			}
			class := controllertest.Class(func(c *awsv1.EC2NodeClass) {
				if tc.state != "" {
					c.Status.CapacityReservations = []awsv1.CapacityReservation{{ID: "cr-1", State: tc.state}}
				}
			})
			if tc.instance.ProviderID == "" {
				tc.instance.ProviderID = claim.Status.ProviderID
			}
			f := controllertest.New(t, class, claim, node)
			l := &Loop{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: fleet{tc.instance}, Metrics: f.Metrics, Log: f.Log}
			for range 2 {
				f.Do(l.pass(t.Context()))
			}
			got := f.Claim("a")
			if deleted := got.DeletionTimestamp != nil; deleted != tc.deleted || counted(f) != map[bool]int{true: 1}[deleted] {
				t.Errorf("deleted %v, counted %d", deleted, counted(f))
			}
			for what, labels := range map[string]map[string]string{"claim": got.Labels, "node": f.Node(node.Name).Labels} {
				_, id := labels[awsv1.LabelReservationID]
				_, kind := labels[awsv1.LabelReservationType]
				_, lent := labels[awsv1.LabelReservationInterruptible]
				if reserved := tc.want == "reserved"; labels[karpv1.LabelCapacityType] != tc.want || id != reserved || kind != reserved ||
					lent != reserved {
					t.Errorf("labels of the %s: %v", what, labels)
				}
				if labels[karpv1.LabelNodePool] != "general" {
					t.Errorf("the %s has lost labels: %v", what, labels)
				}
			}
		})
	}
}

// A kill between the two patches leaves what the next pass finds.
func TestNodeIsRelabeledBeforeItsClaim(t *testing.T) {
	claim, node := inReservation()
	f := controllertest.New(t, controllertest.Class(), claim, node)
	fails := true
	api := interceptor.NewClient(
		f.API,
		interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, isNode := o.(*corev1.Node); isNode && fails {
					return errors.New("the API server is away")
				}
				return c.Patch(ctx, o, p, opts...)
			},
		},
	)
	l := &Loop{
		Client: api, Guard: destroytest.Guard(api, f.Now),
		Cloud:   fleet{{ProviderID: claim.Status.ProviderID, Owner: cloudprovider.Ours, CapacityType: "on-demand"}},
		Metrics: f.Metrics,
		Log:     f.Log,
	}
	if err := l.pass(t.Context()); err == nil || f.Claim("a").Labels[karpv1.LabelCapacityType] != "reserved" {
		t.Errorf("the claim is relabeled although its Node is not: %v", err)
	}
	fails = false
	f.Do(l.pass(t.Context()))
	if f.Claim("a").Labels[karpv1.LabelCapacityType] != "on-demand" || f.Node(node.Name).Labels[karpv1.LabelCapacityType] != "on-demand" {
		t.Error("the next pass has not made up for it")
	}
}
