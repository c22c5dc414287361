package initialization

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// published is one of so many slices of a driver's pool on node-a.
func published(name, driver string, generation, declared int64, edit ...func(*resourcev1.ResourceSlice)) client.Object {
	node := "node-a"
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: "node-a", Generation: generation, ResourceSliceCount: declared},
	}}
	for _, e := range edit {
		e(s)
	}
	return s
}

func elsewhere(s *resourcev1.ResourceSlice) { *s.Spec.NodeName = "node-b" }

func owned(s *resourcev1.ResourceSlice) {
	s.Spec.NodeName = nil
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-a"}}
}

func forAll(s *resourcev1.ResourceSlice) {
	owned(s)
	yes := true
	s.Spec.AllNodes = &yes
}

func TestDriversPublishFirst(t *testing.T) {
	asks := func(drivers string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationRequestedDRADrivers, drivers)
		}
	}
	tests := []struct {
		name    string
		drivers string
		ignored bool
		slices  []client.Object
		missing string // the driver that is waited for
	}{
		{"one slice of two", "a.example.com", false, []client.Object{published("1", "a.example.com", 1, 2)}, "a.example.com"},
		{"both", "a.example.com", false, []client.Object{published("1", "a.example.com", 1, 2), published("2", "a.example.com", 1, 2)}, ""},
		{
			"the newer generation is incomplete", "a.example.com", false,
			[]client.Object{published("1", "a.example.com", 1, 1), published("2", "a.example.com", 2, 2)},
			"a.example.com",
		},
		{
			"in whatever order", "a.example.com", false,
			[]client.Object{published("1", "a.example.com", 2, 2), published("2", "a.example.com", 1, 1)},
			"a.example.com",
		},
		{
			"the other of two drivers",
			"a.example.com,b.example.com",
			false,
			[]client.Object{published("1", "a.example.com", 1, 1)},
			"b.example.com",
		},
		{"ignored", "a.example.com", true, nil, ""},
		{"nothing published", "a.example.com", false, nil, "a.example.com"},
		{"nothing requested", "", false, nil, ""},
		{
			"published for another node",
			"a.example.com",
			false,
			[]client.Object{published("1", "a.example.com", 1, 1, elsewhere)},
			"a.example.com",
		},
		{"owned by the node", "a.example.com", false, []client.Object{published("1", "a.example.com", 1, 1, owned)}, ""},
		{
			"owned by the node, for all nodes",
			"a.example.com",
			false,
			[]client.Object{published("1", "a.example.com", 1, 1, forAll)},
			"a.example.com",
		},
		{"a pool that declares nothing", "a.example.com", false, []client.Object{published("1", "a.example.com", 1, 0)}, "a.example.com"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := controllertest.ReadyNode("a", func(n *corev1.Node) { delete(n.Labels, karpv1.LabelInitialized) })
			f := controllertest.New(t, append(tt.slices, node, controllertest.Claim("a", controllertest.Registered, asks(tt.drivers)))...)
			f.Reconcile(&Reconciler{Client: f.API, Log: f.Log, Now: f.Now, Devices: !tt.ignored}, "a")
			c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if tt.missing == "" {
				if c.Status != metav1.ConditionTrue {
					t.Errorf("Initialized %s: %s", c.Status, c.Message)
				}
				return
			}
			if c.Status != metav1.ConditionUnknown || c.Reason != "DRADriverPoolsNotPublished" || !strings.Contains(c.Message, tt.missing) {
				t.Errorf("Initialized %s, %s: %s; want one that waits for %s", c.Status, c.Reason, c.Message, tt.missing)
			}
		})
	}
}

func TestSlicesBringBackTheirClaim(t *testing.T) {
	f := controllertest.New(t, controllertest.ReadyNode("a"), controllertest.Claim("a", controllertest.Registered))
	requests := claimRequests(f.API)
	for _, tt := range []struct {
		slice client.Object
		want  int
	}{{published("1", "d", 1, 1), 1}, {published("1", "d", 1, 1, owned), 1}, {published("1", "d", 1, 1, elsewhere), 0}} {
		got := requests(t.Context(), tt.slice)
		if len(got) != tt.want || tt.want == 1 && got[0] != (reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}}) {
			t.Errorf("requests %v, want %d", got, tt.want)
		}
	}
}
