package consistency

import (
	"context"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// A node that publishes fewer devices than its type has in the catalog is reported: pods were planned for them.
func TestDevicesThatAreNotPublished(t *testing.T) {
	const driver = "gpu.example.com"
	devices := func(n int) []resourcev1.Device { return []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}}[:n] }
	for _, tt := range []struct {
		name      string
		requested string
		published int
		want      metav1.ConditionStatus
	}{
		{"all", driver, 2, metav1.ConditionTrue},
		{"one of two", driver, 1, metav1.ConditionFalse},
		{"the node was not launched for them", "", 1, metav1.ConditionTrue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim := controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationRequestedDRADrivers, tt.requested)
			})
			node := controllertest.ReadyNode("a")
			f := controllertest.New(t, claim, node, &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "published"},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: driver, NodeName: &node.Name, Devices: devices(tt.published),
					Pool: resourcev1.ResourcePool{Name: "a", ResourceSliceCount: 1, Generation: 1},
				},
			})
			r := &Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now}
			r.Devices = func(context.Context, *karpv1.NodeClaim) ([]resourcev1.ResourceSliceSpec, error) {
				return []resourcev1.ResourceSliceSpec{{Driver: driver, Devices: devices(2)}}, nil
			}
			f.Reconcile(r, "a")
			const says = "expected 2 devices of DRA driver gpu.example.com, but 1 of them were not published: gpu-1: there are fewer devices"
			c, _ := condition.Get(f.Claim("a"), karpv1.ConditionConsistentStateFound)
			reported := slices.ContainsFunc(f.RecordedEvents(), func(s string) bool { return strings.Contains(s, says) })
			if c.Status != tt.want || reported != (tt.want == metav1.ConditionFalse) || reported != strings.Contains(c.Message, says) {
				t.Errorf("ConsistentStateFound is %q: %s; event: %v", c.Status, c.Message, reported)
			}
		})
	}
}
