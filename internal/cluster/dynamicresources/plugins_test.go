package dynamicresources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// On one type devices serve an extended resource, on another a device plugin: the first pod has devices on the first alone. The second
// does not fit on the other type any more.
func TestDevicesServeOneTypeAndADevicePluginAnother(t *testing.T) {
	const gpus = resourcev1.ResourceDeviceClassPrefix + "gpu"
	served := with(Type("served", 1, "cpu", "8", gpus, "2"), 2)
	served.DRAResources = []corev1.ResourceName{corev1.ResourceName(gpus)}
	s := World(pool(served, Type("plugin", 2, "cpu", "8", gpus, "1")), Pods(2, "p", Requests("cpu", "1", gpus, "1"))...)
	devicesOf(s, dynamicresources.Objects{Served: served.DRAResources})
	if diff := cmp.Diff([]string{"served with gpu.example.com: p-000 p-001"}, plan(t, s)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// A node with devices that may still come up in several domains is kept to one, as any other: pods that spread are counted there.
func TestPodsWithDevicesAreCountedInADomain(t *testing.T) {
	small := with(WithLabel(WithOfferings(Type("small", 1, "cpu", "2"), Offering("z2", "spot", 1)), Arch, "amd64"), 2)
	large := with(WithLabel(WithOfferings(Type("large", 2, "cpu", "8"), Offering("z3", "spot", 2)), Arch, "amd64"), 1)
	s := World([]snapshot.Pool{Pool("gpus", list(small, large))},
		Pod("a", Labeled("app", "x"), Requests("cpu", "3"), uses("a"), Near(Zone, "x")),
		Pod("b", Labeled("app", "x"), uses("b"), Spread(Arch, 1, "x")),
	)
	nodes(s, Node("arm", "gpus", func(n *snapshot.Node) { n.Labels[Arch], n.Labels[Zone] = "arm64", "z2" }))
	devices(s, list(claim("a", 1), claim("b", 2)))
	if diff := cmp.Diff([]string{"no place (Topology): b", "large in z3 with gpu.example.com: a"}, plan(t, s)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}
