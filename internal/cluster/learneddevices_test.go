package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// TestDevicesAreLearned has nodes publish devices, and finds out what plans expect of new nodes.
func TestDevicesAreLearned(t *testing.T) {
	slice := func(node, driver string, devices ...string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + driver}, Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		}}
		for _, d := range devices {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d})
		}
		return s
	}
	type node struct {
		name, pool, instanceType string
		age                      time.Duration
		starting                 bool
	}
	old, young := node{"old", "general", "small", time.Hour, false}, node{"young", "general", "small", time.Minute, false}
	starting := node{"starting", "general", "small", 0, true}
	known := resourcev1.ResourceSliceSpec{Driver: "known.example.com", Devices: []resourcev1.Device{{Name: "from-the-table"}}}
	for _, tt := range []struct {
		name   string
		nodes  []node
		slices []*resourcev1.ResourceSlice
		want   string // devices of the type small
	}{
		{"nothing is published", []node{old}, nil, "from-the-table"},
		{
			"a driver that is not in the table",
			[]node{old},
			[]*resourcev1.ResourceSlice{slice("old", "a.example.com", "a0", "a1")},
			"from-the-table a0 a1",
		},
		{"one that is", []node{old}, []*resourcev1.ResourceSlice{slice("old", "known.example.com", "b0")}, "from-the-table"},
		{
			"the newest node counts",
			[]node{old, young},
			[]*resourcev1.ResourceSlice{slice("old", "a.example.com", "a0"), slice("young", "a.example.com", "a1")},
			"from-the-table a1",
		},
		{
			"not before it is initialized",
			[]node{starting},
			[]*resourcev1.ResourceSlice{slice("starting", "a.example.com", "a0")},
			"from-the-table",
		},
		{
			"a node of another pool",
			[]node{{"other", "special", "small", time.Hour, false}},
			[]*resourcev1.ResourceSlice{slice("other", "a.example.com", "a0")},
			"from-the-table",
		},
		{
			"a node of another type",
			[]node{{"other", "general", "large", time.Hour, false}},
			[]*resourcev1.ResourceSlice{slice("other", "a.example.com", "a0")},
			"from-the-table",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := cluster.Objects{Devices: &cluster.Devices{Slices: tt.slices, Expressions: dynamicresources.NewExpressions()}}
			types := []*catalog.InstanceType{{Name: "small", DeviceSlices: []resourcev1.ResourceSliceSpec{known}}, {Name: "large"}}
			o.Pools = []cluster.Pool{{NodePool: poolOf("general"), InstanceTypes: types}}
			for _, n := range tt.nodes {
				id := "i-" + n.name
				o.Nodes = append(o.Nodes, nodeOf(n.name, id, func(o *corev1.Node) {
					o.Labels = map[string]string{
						karpv1.LabelNodePool: n.pool, corev1.LabelInstanceTypeStable: n.instanceType, karpv1.LabelRegistered: "true",
					}
					if !n.starting {
						o.Labels[karpv1.LabelInitialized] = "true"
					}
				}))
				o.NodeClaims = append(o.NodeClaims, claimOf(n.name, func(c *karpv1.NodeClaim) {
					c.Labels[karpv1.LabelNodePool], c.Status.ProviderID = n.pool, "aws:///us-east-1a/"+id
					c.CreationTimestamp = metav1.NewTime(start.Add(-n.age))
				}))
			}
			s := cluster.BuildSnapshot(o, cluster.Facts{Now: start})
			var got []string
			for _, spec := range s.Pools[0].InstanceTypes[0].DeviceSlices {
				for _, d := range spec.Devices {
					got = append(got, d.Name)
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("devices %s, want %s", text, tt.want)
			}
			if !slices.Equal(types, o.Pools[0].InstanceTypes) || len(types[0].DeviceSlices) != 1 {
				t.Error("the instance types of the cloud were changed")
			}
		})
	}
}
