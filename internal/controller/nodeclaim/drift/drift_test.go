package drift

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// sky is a cloud that says one thing of every instance.
type sky struct {
	reason string
	err    error
	types  []*catalog.InstanceType
	// asked counts how often it was asked what it sells.
	asked int
}

func (s *sky) Drift(context.Context, *awsv1.EC2NodeClass, *karpv1.NodeClaim) (string, error) {
	return s.reason, s.err
}

func (s *sky) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	s.asked++
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
	condition.SetTrueWithReason(c, karpv1.ConditionDrifted, "AMIDrift", "AMIDrift", controllertest.Start)
}

func reconciler(f *controllertest.Fixture, s *sky) *Reconciler {
	return &Reconciler{Client: f.API, Cloud: s, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Log: f.Log, Now: f.Now}
}

func reasonOf(f *controllertest.Fixture) string {
	c, _ := condition.Get(f.Claim("a"), karpv1.ConditionDrifted)
	return c.Reason
}

func TestDrift(t *testing.T) {
	replicas := int64(1)
	asks := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z2"}}}
	}
	tests := []struct {
		name  string
		claim func(*karpv1.NodeClaim)
		pool  *karpv1.NodePool
		sky   sky
		want  string
		fails bool
	}{
		{name: "up to date", claim: large, pool: controllertest.Pool("general")},
		{name: "up to date again", claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) }, pool: controllertest.Pool("general")},
		{name: "the cloud says so", claim: large, pool: controllertest.Pool("general"), sky: sky{reason: "AMIDrift"}, want: "AMIDrift"},
		{
			name: "not launched", pool: controllertest.Pool("general"), sky: sky{reason: "AMIDrift"},
			claim: func(c *karpv1.NodeClaim) { drifted(c) },
		},
		{
			name: "launching has failed so far", pool: controllertest.Pool("general"), sky: sky{reason: "AMIDrift"},
			claim: func(c *karpv1.NodeClaim) {
				drifted(c)
				condition.SetUnknown(c, karpv1.ConditionLaunched, "LaunchFailed", "no", controllertest.Start)
			},
		},
		{name: "the pool is missing", claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) }, sky: sky{reason: "SubnetDrift"}, want: "AMIDrift"},
		{
			name: "the pool's hash differs, too", claim: func(c *karpv1.NodeClaim) { large(c); c.Annotations = stamped("1") },
			pool: controllertest.Pool("general", func(p *karpv1.NodePool) { p.Annotations = stamped("2") }), sky: sky{reason: "AMIDrift"}, want: "NodePoolDrifted",
		},
		{name: "the requirements do not suit it, too", claim: large, pool: controllertest.Pool("general", asks), sky: sky{reason: "AMIDrift"}, want: "RequirementsDrifted"},
		{
			name: "a pool of a fixed size", claim: large,
			pool: controllertest.Pool("general", func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }), sky: sky{reason: "AMIDrift"}, want: "AMIDrift",
		},
		{name: "the cloud does not know", claim: func(c *karpv1.NodeClaim) { large(c); drifted(c) }, pool: controllertest.Pool("general"), sky: sky{err: errors.New("throttled")}, want: "AMIDrift", fails: true},
		{name: "the instance is gone", claim: large, pool: controllertest.Pool("general"), sky: sky{err: cloudprovider.ErrNotFound}},
		{name: "it is being deleted", claim: func(c *karpv1.NodeClaim) { large(c); controllertest.Deleting(c) }, pool: controllertest.Pool("general"), sky: sky{reason: "AMIDrift"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{controllertest.Class(), controllertest.Claim("a", tt.claim)}
			if tt.pool != nil {
				objects = append(objects, tt.pool)
			}
			f := controllertest.New(t, objects...)
			_, err := f.Try(reconciler(f, &tt.sky), "a")
			if got := reasonOf(f); got != tt.want || (err != nil) != tt.fails {
				t.Errorf("%q, error %v; want %q, error %v", got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestTypeIsNotSoldAnyMore(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), controllertest.Claim("a", large))
	s := &sky{}
	r := reconciler(f, s)
	f.Clock = controllertest.Start.Add(time.Hour)
	if result := f.Reconcile(r, "a"); reasonOf(f) != "" || s.asked != 0 || result.RequeueAfter != 5*time.Minute {
		t.Errorf("%q at an hour, asked %d times, again after %v", reasonOf(f), s.asked, result.RequeueAfter)
	}
	f.Clock = f.Clock.Add(time.Second)
	s.types = []*catalog.InstanceType{engine.Type("m.large", 1)}
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	if reasonOf(f) != "" || s.asked != 1 {
		t.Errorf("%q while it is sold; asked %d times, want once", reasonOf(f), s.asked)
	}
	s.types = []*catalog.InstanceType{engine.Type("m.small", 1)}
	f.Clock = f.Clock.Add(30 * time.Minute)
	f.Reconcile(r, "a")
	if reasonOf(f) != "InstanceTypeNotFound" {
		t.Errorf("%q when it is not sold any more", reasonOf(f))
	}
	t.Run("what a class sells that is not ready is not known", func(t *testing.T) {
		class := controllertest.Class()
		f.Do(f.API.Get(t.Context(), client.ObjectKeyFromObject(class), class))
		condition.SetFalse(class, awsv1.ConditionSubnetsReady, "SubnetsNotFound", "none", f.Now())
		f.Do(f.API.Status().Update(t.Context(), class))
		if f.Reconcile(r, "a"); reasonOf(f) != "" {
			t.Errorf("%q", reasonOf(f))
		}
	})
}
