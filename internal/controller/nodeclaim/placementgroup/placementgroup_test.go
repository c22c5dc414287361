package placementgroup

import (
	"context"
	"errors"
	"testing"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// fakeCloud describes what EC2 returns for a partition.
type fakeCloud struct {
	partition string
	err       error
	calls     int
}

func (c *fakeCloud) Partition(context.Context, string) (string, error) {
	c.calls++
	return c.partition, c.err
}

type nobody struct{}

func (nobody) Registered(context.Context, *karpv1.NodeClaim) error { return nil }

func TestHook(t *testing.T) {
	for _, tc := range []struct {
		name  string
		label *string // of the claim, nil = it has none
		cloud fakeCloud
		// registered, the label afterwards, and how often EC2 was called.
		registered bool
		want       string
		calls      int
	}{
		{"in no partition", nil, fakeCloud{}, true, "", 0},
		{"the partition was requested", new("2"), fakeCloud{partition: "3"}, true, "2", 0},
		{"EC2 has not assigned one", new(""), fakeCloud{}, false, "", 1},
		{"EC2 fails", new(""), fakeCloud{err: errors.New("throttled")}, false, "", 1},
		{"EC2 has chosen", new(""), fakeCloud{partition: "3"}, true, "3", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := controllertest.Claim("a", controllertest.Launched, func(c *karpv1.NodeClaim) {
				if tc.label != nil {
					c.Labels[awsv1.LabelPlacementGroupPartition] = *tc.label
				}
			})
			f := controllertest.New(t, claim, controllertest.JoinedNode("a"))
			r := &registration.Reconciler{
				Client:  f.API,
				Live:    f.API,
				Health:  nobody{},
				Events:  f.Events,
				Metrics: f.Metrics,
				Log:     f.Log,
				Now:     f.Now,
				Hooks:   []registration.Hook{&Hook{Cloud: &tc.cloud}},
			}
			result, err := f.Try(r, "a")
			if (err != nil) != (tc.cloud.err != nil) {
				t.Error(err)
			}
			c := f.Claim("a")
			if condition.IsTrue(c, karpv1.ConditionRegistered) != tc.registered || !tc.registered && err == nil && result.RequeueAfter == 0 {
				t.Errorf("conditions %+v, again in %v", c.Status.Conditions, result.RequeueAfter)
			}
			for what, labels := range map[string]map[string]string{"claim": c.Labels, "node": f.Node("node-a").Labels} {
				if labels[awsv1.LabelPlacementGroupPartition] != tc.want {
					t.Errorf("the %s has the labels %v", what, labels)
				}
			}
			if tc.cloud.calls != tc.calls {
				t.Errorf("EC2 was called %d times", tc.cloud.calls)
			}
		})
	}
}
