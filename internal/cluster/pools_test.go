package cluster_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

var zero = intstr.FromInt32(0)

// shuffled is a cache that lists in another order each time, as the real one does.
type shuffled struct {
	client.Reader
	rand *rand.Rand
}

func (s shuffled) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := s.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	s.rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return meta.SetList(list, items)
}

func classOf() *awsv1.EC2NodeClass {
	return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class"}}
}

// poolOf returns a pool that may launch.
func poolOf(name string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	condition.SetTrue(p, karpv1.ConditionValidationSucceeded, start)
	condition.SetTrue(p, karpv1.ConditionNodeClassReady, start)
	for _, f := range change {
		f(p)
	}
	return p
}

func smallAndLarge() []*catalog.InstanceType {
	return []*catalog.InstanceType{
		{Name: "small", Capacity: room("2", "32Gi")},
		{Name: "large", Capacity: room("8", "16Gi")},
		{Name: "huge", Capacity: room("96", "384Gi")},
	}
}

func TestPoolsThatMayLaunch(t *testing.T) {
	replicas := int64(3)
	tests := []struct {
		name    string
		pool    *karpv1.NodePool
		objects []client.Object
		err     error
		open    bool
		closed  bool
	}{
		{"ready", poolOf("p"), []client.Object{classOf()}, nil, true, false},
		{"deleting", poolOf("p", func(p *karpv1.NodePool) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: start}, []string{"test/keep"}
		}), []client.Object{classOf()}, nil, false, true},
		{
			"not ready",
			poolOf("p", func(p *karpv1.NodePool) {
				condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("X", ""), start)
			}),
			[]client.Object{classOf()},
			nil,
			false,
			true,
		},
		{"one whose class selects nothing does not keep another from launching", poolOf("p", func(p *karpv1.NodePool) {
			condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("UnhealthyDependents", ""), start)
		}), []client.Object{classOf(), poolOf("q")}, nil, true, true},
		{
			"of a fixed size",
			poolOf("p", func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }),
			[]client.Object{classOf()},
			nil,
			false,
			true,
		},
		{"its class is not there", poolOf("p"), nil, nil, false, true},
		{
			"another provider's",
			poolOf("p", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Kind = "Other" }),
			[]client.Object{classOf()},
			nil,
			false,
			false,
		},
		{"its types cannot be listed", poolOf("p"), []client.Object{classOf()}, errors.New("throttled"), false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTestCluster(t, append(tt.objects, tt.pool)...)
			w.types, w.typesErr = smallAndLarge(), tt.err
			if tt.err != nil {
				w.types = nil
			}
			s := w.snapshot(t)
			if open, closed := len(s.Pools) == 1, len(s.Closed) == 1; open != tt.open || closed != tt.closed {
				t.Errorf("open %v, tainted %v; want %v, %v", open, closed, tt.open, tt.closed)
			}
			if told := len(w.leftOut) == 1; told != (tt.err != nil) {
				t.Errorf("told of %v", w.leftOut)
			}
			if tt.open && s.Pools[0].NodeClassLabel != [2]string{awsv1.LabelNodeClass, "default"} {
				t.Errorf("label %v", s.Pools[0].NodeClassLabel)
			}
		})
	}
}

func TestWhatCountsAgainstLimits(t *testing.T) {
	unlaunched := func(c *karpv1.NodeClaim) {
		c.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"small", "large"}},
		}
	}
	leaving := func(c *karpv1.NodeClaim) {
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: start}, []string{karpv1.FinalizerTermination}
	}
	tests := []struct {
		name    string
		objects []client.Object
		want    map[string]string
	}{
		{"nothing", nil, map[string]string{}},
		{
			"a claim counts as the largest, per resource, of what it may become",
			[]client.Object{claimOf("a", unlaunched)},
			map[string]string{"cpu": "8", "memory": "32Gi", "nodes": "1"},
		},
		{
			"launched: as what it is",
			[]client.Object{claimOf("a", unlaunched, launched("i-1"))},
			map[string]string{"cpu": "4", "memory": "16Gi", "nodes": "1"},
		},
		{
			"initialized: as what the Node reports",
			[]client.Object{claimOf("a", launched("i-1"), registered("a"), initialized), nodeOf("a", "i-1", joinedNode, initializedNode)},
			map[string]string{"cpu": "4", "memory": "15Gi", "nodes": "1"},
		},
		{
			"nodes add up",
			[]client.Object{claimOf("a", launched("i-1")), claimOf("b", launched("i-2"))},
			map[string]string{"cpu": "8", "memory": "32Gi", "nodes": "2"},
		},
		{
			"another pool's",
			[]client.Object{claimOf("a", launched("i-1"), func(c *karpv1.NodeClaim) { c.Labels[karpv1.LabelNodePool] = "other" })},
			map[string]string{},
		},
		{
			"those that leave make room for their successors",
			[]client.Object{claimOf("a", launched("i-1"), leaving), claimOf("b", unlaunched, leaving), claimOf("c", launched("i-3"))},
			map[string]string{"cpu": "4", "memory": "16Gi", "nodes": "1"},
		},
		{"nobody's nodes", []client.Object{nodeOf("theirs", "i-9")}, map[string]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTestCluster(t, append(tt.objects, poolOf("general"), classOf())...)
			w.types = smallAndLarge()
			s := w.snapshot(t)
			got := map[string]string{}
			for name, q := range s.Pools[0].Used {
				got[string(name)] = q.String()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsageOfALaunchedClaim(t *testing.T) {
	w := newTestCluster(t, claimOf("a", launched("i-1")), claimOf("b"))
	used, err := w.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cpu, nodes := used["general"][corev1.ResourceCPU], used["general"]["nodes"]
	if cpu.String() != "4" || nodes.Value() != 2 {
		t.Errorf("cpu %s, nodes %s; want 4, 2", cpu.String(), nodes.String())
	}
}
