package cluster_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// offers are the instance types of each node class.
type offers map[string][]*catalog.InstanceType

func (o offers) InstanceTypes(_ context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return o[class.Name], nil
}

// noon is the time of these tests.
func noon() time.Time { return start }

// everything is a configuration with which Snapshots read objects of every kind, but capacity buffers.
func everything() cluster.Config {
	return cluster.Config{
		Types: offers{}, Now: noon, OnPoolSkipped: func(*karpv1.NodePool, error) {}, Devices: cel.NewCache(1, cel.Features{}),
		Settings: snapshot.Settings{DefaultSpread: []corev1.TopologySpreadConstraint{{MaxSkew: 1}}},
	}
}

// A kind that is added to snapshots is counted, too.
func TestEveryKindThatSnapshotsReadIsCounted(t *testing.T) {
	cfg := everything()
	counted := map[string]bool{}
	for _, kind := range cfg.SnapshotKinds() {
		counted[reflect.TypeOf(kind).Elem().Name()] = true
	}
	read := 0
	note := func(o any) {
		name := reflect.TypeOf(o).Elem().Name()
		if list, is := o.(client.ObjectList); is {
			items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
			name = items.Type.Elem().Name()
		}
		if read++; !counted[name] {
			t.Errorf("snapshots read objects of kind %s, and changes of these do not count", name)
		}
	}
	api := apitest.New(t, noon, poolOf("general"), classOf())
	cfg.Cache = interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			note(o)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			note(list)
			return c.List(ctx, list, opts...)
		},
	})
	cfg.Live = api
	if _, err := cluster.NewState(cfg).Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read < len(counted) {
		t.Errorf("%d reads, of %d kinds", read, len(counted))
	}
}

func TestChangesCountButHeartbeatsAndResyncs(t *testing.T) {
	var informers informertest.FakeInformers
	changes := cluster.NewChanges(&informers, &corev1.Node{}, &corev1.Pod{})
	count := func() uint64 {
		t.Helper()
		n, err := changes.Count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	nodes, err := informers.FakeInformerFor(t.Context(), &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := informers.FakeInformerFor(t.Context(), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	later := func(edit func(n *corev1.Node)) *corev1.Node {
		n := node.DeepCopy()
		n.ResourceVersion = "2"
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon())
		edit(n)
		return n
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	moved := pod.DeepCopy()
	moved.ResourceVersion, moved.Spec.NodeName = "2", "a"
	for _, tt := range []struct {
		name   string
		happen func()
		counts bool
	}{
		{"a node joins", func() { nodes.Add(node) }, true},
		{"a heartbeat", func() { nodes.Update(node, later(func(*corev1.Node) {})) }, false},
		{"a resync", func() { nodes.Update(node, node.DeepCopy()) }, false},
		{"a node is not Ready", func() {
			nodes.Update(node, later(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }))
		}, true},
		{"a node leaves", func() { nodes.Delete(node) }, true},
		{"a pod comes", func() { pods.Add(pod) }, true},
		{"a pod is bound", func() { pods.Update(pod, moved) }, true},
		{"a pod leaves", func() { pods.Delete(moved) }, true},
	} {
		tt.happen()
		after := count()
		if (after > before) != tt.counts {
			t.Errorf("%s: counts %v, want %v", tt.name, after > before, tt.counts)
		}
		before = after
	}
}

// Decisions of this process change the version, and what a pool may launch does.
func TestTheVersionChangesWithDecisionsAndOffers(t *testing.T) {
	list := offers{"default": smallAndLarge()}
	cfg := everything()
	api := apitest.New(t, noon, poolOf("general"), classOf())
	cfg.Cache, cfg.Live, cfg.Types = api, api, list
	cfg.Changes = func(context.Context) (uint64, error) { return 1, nil }
	s := cluster.NewState(cfg)
	if _, known := s.Version(t.Context()); known {
		t.Error("the version is known before the API server was read")
	}
	if _, err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	version := func() cluster.Version {
		t.Helper()
		v, known := s.Version(t.Context())
		if !known {
			t.Fatal("the version is not known")
		}
		return v
	}
	seen := []cluster.Version{version()}
	if again := version(); again != seen[0] {
		t.Errorf("%v without a change, %v before", again, seen[0])
	}
	for name, happen := range map[string]func(){
		"a claim is marked for deletion": func() { s.MarkForDeletion("a") },
		"a claim is being disrupted":     func() { s.MarkDisrupting("b", nil) },
		"a mark is removed":              func() { s.Unmark("a") },
		"a node is nominated":            func() { s.Nominate("n") },
		"prices change":                  func() { list["default"] = slices.Clone(list["default"]) },
	} {
		happen()
		v := version()
		if slices.Contains(seen, v) {
			t.Errorf("%s: the version stays %v", name, v)
		}
		seen = append(seen, v)
	}
	s.Invalidate()
	if _, known := s.Version(t.Context()); known {
		t.Error("the version is known although the cache may lack claims")
	}
}
