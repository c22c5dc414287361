package cluster_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestDevices has a node of others publish a device, and finds out which nodes a pod can use it on.
func TestDevices(t *testing.T) {
	name, node := "c", "theirs"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "uid-a"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-c"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	published := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	find := func(s *snapshot.Snapshot, node string) error {
		claims, err := s.Devices.Claims(pod)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Devices.Free(map[types.UID]bool{}).Find(claims, snapshot.DeviceNode{Node: node})
		return err
	}
	w := newTestCluster(t, nodeOf("theirs", "i-9"), claim, published, class)
	if s := w.snapshot(t); s.Devices != nil {
		t.Error("devices are read though they are ignored")
	}
	w.State = cluster.NewState(
		cluster.Config{
			Cache:            w.cache,
			Live:             w.live,
			Types:            w,
			NominationWindow: window,
			Now:              w.clock,
			Devices:          dynamicresources.NewExpressions(),
		},
	)
	s := w.snapshot(t)
	if err := find(s, "theirs"); err != nil {
		t.Error(err)
	}
	if find(s, "another") == nil {
		t.Error("the device can be used on another node")
	}
	var informers informertest.FakeInformers
	server := cluster.APIServer{Live: w.live, Informers: &informers, Now: w.clock}
	broken := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	broken.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	broken.Spec.Taint = resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	w.catchUp(t, broken)
	tainted := w.stateWith(func(cfg *cluster.Config) {
		cfg.Devices, cfg.DeviceTaintRules = dynamicresources.NewExpressions(), server.ServedDeviceTaintRules(func(error) {})
	})
	if s, err := tainted.Snapshot(t.Context()); err != nil || find(s, "theirs") == nil {
		t.Errorf("a rule taints all devices, and the pod can use one; %v", err)
	}
	theirs := nodeOf("theirs", "i-9")
	w.change(t, theirs, func() { theirs.Finalizers = []string{"example.com/stays"} })
	w.remove(t, theirs)
	if find(w.snapshot(t), "theirs") == nil {
		t.Error("the device of a node that goes counts")
	}
}
