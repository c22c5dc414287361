package initialization

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// A node serves the GPUs that its pods request as an extended resource by a device plugin or by a DRA driver. It is initialized
// once one of them does, whichever was expected.
func TestExtendedResourcesAreServedByPluginOrDriver(t *testing.T) {
	const driver, gpu = "gpu.example.com", corev1.ResourceName("nvidia.com/gpu")
	class := func(named bool) client.Object {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}}}
		if name := string(gpu); named {
			c.Spec.ExtendedResourceName = &name
		}
		return c
	}
	device := func(s *resourcev1.ResourceSlice) { s.Spec.Devices = []resourcev1.Device{{Name: "gpu-0"}} }
	for _, c := range []struct {
		name        string
		drivers     string // that the plan expects
		allocatable string
		ignored     bool
		objects     []client.Object
		reason      string // why it is not initialized; empty if it is
	}{
		{"expected of a driver, which has published them", driver, "", false, []client.Object{class(true), published("1", driver, 1, 1, device)}, ""},
		{"the driver has published no device", driver, "", false, []client.Object{class(true), published("1", driver, 1, 1)}, "ResourceNotRegistered"},
		{"its pool is not complete", driver, "", false, []client.Object{class(true), published("1", driver, 1, 2, device)}, "ResourceNotRegistered"},
		{"no class has the name", driver, "", false, []client.Object{class(false), published("1", driver, 1, 1, device)}, "ResourceNotRegistered"},
		{"devices of another driver", "", "", false, []client.Object{class(true), published("1", "nic.example.com", 1, 1, device)}, "ResourceNotRegistered"},
		{"expected of a driver, and a plugin has come", driver, "1", false, []client.Object{class(true)}, ""},
		{"expected of a plugin, and a driver has come", "", "0", false, []client.Object{class(true), published("1", driver, 1, 1, device)}, ""},
		{"DRA is ignored", "", "", true, []client.Object{class(true), published("1", driver, 1, 1, device)}, "ResourceNotRegistered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := controllertest.ReadyNode("a", func(n *corev1.Node) {
				delete(n.Labels, karpv1.LabelInitialized)
				if c.allocatable != "" {
					n.Status.Allocatable[gpu] = resource.MustParse(c.allocatable)
				}
			})
			claim := controllertest.Claim("a", controllertest.Registered, func(n *karpv1.NodeClaim) {
				n.Spec.Resources.Requests = corev1.ResourceList{gpu: resource.MustParse("1")}
				if c.drivers != "" {
					metav1.SetMetaDataAnnotation(&n.ObjectMeta, karpv1.AnnotationRequestedDRADrivers, c.drivers)
				}
			})
			f := controllertest.New(t, append(c.objects, node, claim)...)
			f.Reconcile(&Reconciler{Client: f.API, Log: f.Log, Now: f.Now, Devices: !c.ignored}, "a")
			got, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized)
			if initialized := got.Status == metav1.ConditionTrue; initialized != (c.reason == "") || !initialized && got.Reason != c.reason {
				t.Errorf("Initialized %s, %s: %s; want %q", got.Status, got.Reason, got.Message, c.reason)
			}
		})
	}
}
