package drift

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// fakeCloud is a cloud that returns the same for every instance.
type fakeCloud struct {
	reason string
	err    error
	types  []*catalog.InstanceType
	// calls counts the calls for instance types.
	calls int
}

func (s *fakeCloud) Drift(context.Context, *awsv1.EC2NodeClass, *karpv1.NodeClaim) (string, error) {
	return s.reason, s.err
}

func (s *fakeCloud) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	s.calls++
	return s.types, nil
}

func stamped(hash string) map[string]string {
	return map[string]string{karpv1.AnnotationNodePoolHash: hash, karpv1.AnnotationNodePoolHashVersion: karpv1.NodePoolHashVersion}
}

func large(c *karpv1.NodeClaim) {
	controllertest.Initialized(c)
	c.Labels[corev1.LabelInstanceTypeStable], c.Labels[corev1.LabelTopologyZone], c.Labels[karpv1.LabelCapacityType] = "m.large", "z1", karpv1.CapacityTypeOnDemand
}

func drifted(c *karpv1.NodeClaim) {
	condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", "AMIDrift"), controllertest.Start)
}

func reconciler(f *controllertest.Fixture, s *fakeCloud) *Reconciler {
	return &Reconciler{Client: f.API, Cloud: s, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Log: f.Log, Now: f.Now}
}

func reasonOf(f *controllertest.Fixture) string {
	c, _ := condition.Get(f.Claim("a"), karpv1.ConditionDrifted)
	return c.Reason
}

func TestDrift(t *testing.T) {
	replicas := int64(1)
	asks := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z2"}},
		}
	}
	tests := []struct {
		name  string
		claim func(*karpv1.NodeClaim)
		pool  *karpv1.NodePool
		cloud fakeCloud
		want  string
		fails bool
	}{
		{name: "up to date", claim: large, pool: controllertest.Pool("general")},
		{name: "up to date again", claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) }, pool: controllertest.Pool("general")},
		{
			name:  "the cloud reports it",
			claim: large,
			pool:  controllertest.Pool("general"),
			cloud: fakeCloud{reason: "AMIDrift"},
			want:  "AMIDrift",
		},
		{
			name: "not launched", pool: controllertest.Pool("general"), cloud: fakeCloud{reason: "AMIDrift"},
			claim: func(c *karpv1.NodeClaim) { drifted(c) },
		},
		{
			name: "launching has failed so far", pool: controllertest.Pool("general"), cloud: fakeCloud{reason: "AMIDrift"},
			claim: func(c *karpv1.NodeClaim) {
				drifted(c)
				condition.SetUnknown(c, karpv1.ConditionLaunched, condition.Because("LaunchFailed", "no"), controllertest.Start)
			},
		},
		{
			name:  "the pool is missing",
			claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) },
			cloud: fakeCloud{reason: "SubnetDrift"},
			want:  "AMIDrift",
		},
		{
			name: "the pool's hash differs, too", claim: func(c *karpv1.NodeClaim) { large(c); c.Annotations = stamped("1") },
			pool: controllertest.Pool(
				"general",
				func(p *karpv1.NodePool) { p.Annotations = stamped("2") },
			), cloud: fakeCloud{reason: "AMIDrift"}, want: "NodePoolDrifted",
		},
		{
			name:  "the requirements do not suit it, too",
			claim: large,
			pool:  controllertest.Pool("general", asks),
			cloud: fakeCloud{reason: "AMIDrift"},
			want:  "RequirementsDrifted",
		},
		{
			name: "a pool of a fixed size", claim: large,
			pool: controllertest.Pool(
				"general",
				func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas },
			), cloud: fakeCloud{reason: "AMIDrift"}, want: "AMIDrift",
		},
		{
			name:  "the cloud fails",
			claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) },
			pool:  controllertest.Pool("general"),
			cloud: fakeCloud{err: errors.New("throttled")},
			want:  "AMIDrift",
			fails: true,
		},
		{name: "the instance is gone", claim: large, pool: controllertest.Pool("general"), cloud: fakeCloud{err: cloudprovider.ErrNotFound}},
		{
			name:  "it is being deleted",
			claim: func(c *karpv1.NodeClaim) { large(c); controllertest.Deleting(c) },
			pool:  controllertest.Pool("general"),
			cloud: fakeCloud{reason: "AMIDrift"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{controllertest.Class(), controllertest.Claim("a", tt.claim)}
			if tt.pool != nil {
				objects = append(objects, tt.pool)
			}
			f := controllertest.New(t, objects...)
			_, err := f.Try(reconciler(f, &tt.cloud), "a")
			if got := reasonOf(f); got != tt.want || (err != nil) != tt.fails {
				t.Errorf("%q, error %v; want %q, error %v", got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestTypeIsNotOfferedAnyMore(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), controllertest.Claim("a", large))
	s := &fakeCloud{}
	r := reconciler(f, s)
	f.Clock = controllertest.Start.Add(time.Hour)
	if result := f.Reconcile(r, "a"); reasonOf(f) != "" || s.calls != 0 || result.RequeueAfter != 5*time.Minute {
		t.Errorf("%q at an hour, called %d times, again after %v", reasonOf(f), s.calls, result.RequeueAfter)
	}
	f.Clock = f.Clock.Add(time.Second)
	s.types = []*catalog.InstanceType{engine.Type("m.large", 1)}
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	if reasonOf(f) != "" || s.calls != 1 {
		t.Errorf("%q while it is offered; called %d times, want once", reasonOf(f), s.calls)
	}
	s.types = []*catalog.InstanceType{engine.Type("m.small", 1)}
	f.Clock = f.Clock.Add(30 * time.Minute)
	f.Reconcile(r, "a")
	if reasonOf(f) != "InstanceTypeNotFound" {
		t.Errorf("%q when it is not offered any more", reasonOf(f))
	}
	t.Run("the offerings of a class that is not ready are unknown", func(t *testing.T) {
		class := controllertest.Class()
		f.Do(f.API.Get(t.Context(), client.ObjectKeyFromObject(class), class))
		condition.SetFalse(class, awsv1.ConditionSubnetsReady, condition.Because("SubnetsNotFound", "none"), f.Now())
		f.Do(f.API.Status().Update(t.Context(), class))
		if f.Reconcile(r, "a"); reasonOf(f) != "" {
			t.Errorf("%q", reasonOf(f))
		}
	})
}

// A claim gets many writes while its node joins. Each check compares its instance with the node class.
func TestOnlyWhatMattersWakes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*karpv1.NodeClaim)
		want   bool
	}{
		{"launched", func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, controllertest.Start) }, true},
		{"an instance", func(c *karpv1.NodeClaim) { c.Status.ProviderID = "aws:///us-east-1a/i-2" }, true},
		{"an image", func(c *karpv1.NodeClaim) { c.Status.ImageID = "ami-2" }, true},
		{"somebody removes the condition", func(c *karpv1.NodeClaim) { condition.Clear(c, karpv1.ConditionDrifted, controllertest.Start) }, true},
		{"registered", func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionRegistered, controllertest.Start) }, false},
		{"its node", func(c *karpv1.NodeClaim) { c.Status.NodeName = "node-a" }, false},
		{"a pod came", func(c *karpv1.NodeClaim) { c.Status.LastPodEventTime.Time = controllertest.Start }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := controllertest.Claim("a", drifted)
			condition.SetUnknown(before, karpv1.ConditionLaunched, condition.Because("LaunchFailed", ""), controllertest.Start)
			after := before.DeepCopy()
			tt.change(after)
			if got := statusMatters().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("wakes: %v, want %v", got, tt.want)
			}
		})
	}
}
