package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// storageWorld has types with disks of 0, 100 and 400 GB, and a driver that publishes the storage that is left.
type storageWorld struct {
	cluster.Objects
}

func newStorageWorld(driver string) *storageWorld {
	w := &storageWorld{}
	var types []*catalog.InstanceType
	for _, t := range []struct {
		name  string
		price float64
		disks int64
	}{{"plain", 0.1, 0}, {"small", 0.2, 100e9}, {"large", 0.5, 400e9}} {
		it := enginetest.Type(t.name, t.price, "cpu", "8", "memory", "32Gi")
		it.LocalStorage = t.disks
		types = append(types, it)
	}
	pool := poolOf("general")
	pool.Spec.Template.Spec.Requirements = nil
	w.Pools = []cluster.Pool{{NodePool: pool, InstanceTypes: types}}
	yes, wait := true, storagev1.VolumeBindingWaitForFirstConsumer
	w.CSIDrivers = []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}}}
	w.StorageClasses = []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: driver, VolumeBindingMode: &wait}}
	return w
}

// pod adds a pending pod with a claim of the size.
func (w *storageWorld) pod(name, size string) {
	class := "local"
	p := podOf(name, unschedulable)
	p.UID = types.UID("uid-" + name)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	w.Pods = append(w.Pods, p)
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}}
	c.Spec.StorageClassName = &class
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	w.PersistentVolumeClaims = append(w.PersistentVolumeClaims, c)
}

// publish adds an object of the class about nodes with the label; without a key about none.
func (w *storageWorld) publish(key, value, size string) *storagev1.CSIStorageCapacity {
	q := resource.MustParse(size)
	c := &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Namespace: "kube-system", Name: fmt.Sprintf("c-%d", len(w.CSIStorageCapacities))},
		StorageClassName: "local", Capacity: &q,
	}
	if key != "" {
		c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	w.CSIStorageCapacities = append(w.CSIStorageCapacities, c)
	return c
}

// node adds an unmanaged node in zone z1, with a label of the driver with its name.
func (w *storageWorld) node(name string) {
	n := nodeOf(name, "i-"+name)
	n.Labels = map[string]string{
		corev1.LabelHostname: name, "topology.example.com/node": name, enginetest.Zone: "z1", corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("50"),
	}
	w.Nodes = append(w.Nodes, n)
}

func (w *storageWorld) plan(t *testing.T) (out []string, said string) {
	t.Helper()
	s := cluster.BuildSnapshot(w.Objects, cluster.Facts{Now: start, Labels: enginetest.World(nil).Labels})
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	for _, r := range p.Rejected {
		out = append(out, fmt.Sprintf("no place (%s): %s", r.Reasons[0].Code, r.Pod.Name))
		said = wording.Reason(r.Reasons[0])
	}
	for _, pl := range p.Placements {
		out = append(out, pl.Node+": "+strings.Join(sortedNames(pl.Pods), " "))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		text := l.InstanceTypes[0].Name
		if zone, one := l.Requirements.Get(enginetest.Zone).Single(); one {
			text += " in " + zone
		}
		out = append(out, text+": "+strings.Join(sortedNames(l.Pods), " "))
	}
	slices.Sort(out)
	return out, said
}

// kube-scheduler puts a pod with a volume to make only where the driver has published enough storage, for drivers that publish
// it. New nodes have published none: volumes on their own disks are held by the disks of their type.
func TestStorageCapacity(t *testing.T) {
	const ofNode, network, known = "topology.example.com/node", "net.example.com", "lis.csi.aws.com"
	for _, c := range []struct {
		name   string
		driver string
		edit   func(*storageWorld)
		want   []string
		says   string
	}{
		{"local: the cheapest type whose disks hold it", known, func(w *storageWorld) { w.pod("a", "80G") }, []string{"small: a"}, ""},
		{"local: a larger one", known, func(w *storageWorld) { w.pod("a", "200G") }, []string{"large: a"}, ""},
		{
			"local: larger than any number", known, func(w *storageWorld) { w.pod("a", "99999999999999Ei") },
			[]string{"no place (Resources): a"},
			"9223372036854775807 storageclass.storage.k8s.io/local",
		},
		{"local: larger than all disks", known, func(w *storageWorld) { w.pod("a", "500G") }, []string{"no place (Resources): a"}, "storageclass.storage.k8s.io/local"},
		{
			"two of 60 % do not share a node", known, func(w *storageWorld) { w.pod("a", "60G"); w.pod("b", "60G") },
			[]string{"small: a", "small: b"},
			"",
		},
		{"local: two that fit together", known, func(w *storageWorld) { w.pod("a", "40G"); w.pod("b", "40G") }, []string{"small: a b"}, ""},
		{
			"local: room on a node", known, func(w *storageWorld) { w.pod("a", "80G"); w.node("n1"); w.publish(ofNode, "n1", "80G") },
			[]string{"n1: a"},
			"",
		},
		{
			"local: too little room on the node", known, func(w *storageWorld) { w.pod("a", "80G"); w.node("n1"); w.publish(ofNode, "n1", "79G") },
			[]string{"small: a"},
			"",
		},
		{"local: the node has published none", known, func(w *storageWorld) { w.pod("a", "80G"); w.node("n1") }, []string{"small: a"}, ""},
		{"local: the largest volume counts before the sum", known, func(w *storageWorld) {
			w.pod("a", "80G")
			w.node("n1")
			most := resource.MustParse("50G")
			w.publish(ofNode, "n1", "500G").MaximumVolumeSize = &most
		}, []string{"small: a"}, ""},
		{"a driver that is known by what it publishes", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.node("n1")
			w.publish(ofNode, "n1", "10G")
		}, []string{"small: a"}, ""},
		{"network: where there is room", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.publish(enginetest.Zone, "z1", "10G")
			w.publish(enginetest.Zone, "z2", "100G")
		}, []string{"plain in z2: a"}, ""},
		{"network: not on a node of another zone", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.node("n1")
			w.publish(enginetest.Zone, "z2", "100G")
		}, []string{"plain in z2: a"}, ""},
		{"network: on a node of the zone", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.node("n1")
			w.publish(enginetest.Zone, "z1", "100G")
		}, []string{"n1: a"}, ""},
		{"an empty topology is everywhere", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.publish("", "", "100G").NodeTopology = &metav1.LabelSelector{}
		}, []string{"plain: a"}, ""},
		{"nothing is published", network, func(w *storageWorld) { w.pod("a", "80G") }, []string{"no place (Volume): a"}, "CSIStorageCapacity"},
		{
			"too little everywhere", network, func(w *storageWorld) { w.pod("a", "80G"); w.publish(enginetest.Zone, "z1", "10G") },
			[]string{"no place (Volume): a"},
			"large enough",
		},
		{"bad input: no topology; the other object counts", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.publish("", "", "100G")
			w.publish(enginetest.Zone, "z3", "100G")
		}, []string{"plain in z3: a"}, ""},
		{
			"bad input: no topology in any", network, func(w *storageWorld) { w.pod("a", "80G"); w.publish("", "", "100G") },
			[]string{"no place (Volume): a"},
			"CSIStorageCapacity kube-system/c-0 has no nodeTopology",
		},
		{"bad input: a topology that no label can have", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.publish("not a key", "x", "100G")
			w.publish(enginetest.Zone, "z3", "100G")
		}, []string{"plain in z3: a"}, ""},
		{
			"bad input: neither a size", network, func(w *storageWorld) { w.pod("a", "80G"); w.publish(enginetest.Zone, "z3", "1").Capacity = nil },
			[]string{"no place (Volume): a"},
			"",
		},
		{"the driver does not ask for it", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.CSIDrivers[0].Spec.StorageCapacity = nil
		}, []string{"plain: a"}, ""},
		{"there is no CSIDriver", network, func(w *storageWorld) { w.pod("a", "80G"); w.CSIDrivers = nil }, []string{"plain: a"}, ""},
		{"a volume that is made already", network, func(w *storageWorld) {
			w.pod("a", "80G")
			w.node("n1")
			w.PersistentVolumeClaims[0].Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n1"}
		}, []string{"n1: a"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newStorageWorld(c.driver)
			c.edit(w)
			got, said := w.plan(t)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("the pod is said to wait because %q, want one that says %q", said, c.says)
			}
		})
	}
}
