package dynamicresources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// rule taints the devices that the edits select; without any, none.
func rule(effect resourcev1.DeviceTaintEffect, edits ...func(*resourcev1.DeviceTaintSelector)) *resourcev1.DeviceTaintRule {
	r := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	r.Spec.Taint = resourcev1.DeviceTaint{Key: "example.com/broken", Effect: effect}
	for _, e := range edits {
		if r.Spec.DeviceSelector == nil {
			r.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
		}
		e(r.Spec.DeviceSelector)
	}
	return r
}

func everyDevice(*resourcev1.DeviceTaintSelector) {}

func ofDriver(name string) func(*resourcev1.DeviceTaintSelector) {
	return func(s *resourcev1.DeviceTaintSelector) { s.Driver = &name }
}

func ofPool(name string) func(*resourcev1.DeviceTaintSelector) {
	return func(s *resourcev1.DeviceTaintSelector) { s.Pool = &name }
}

func named(name string) func(*resourcev1.DeviceTaintSelector) {
	return func(s *resourcev1.DeviceTaintSelector) { s.Device = &name }
}

func tolerates(c *resourcev1.ResourceClaim) {
	c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{
		{Key: "example.com/broken", Operator: resourcev1.DeviceTolerationOpExists},
	}
}

// A rule taints devices as kube-scheduler sees them: those of nodes, of the network, and those that new nodes will publish.
func TestDeviceTaintRules(t *testing.T) {
	const launched, onNode, none = "gpu1 with gpu.example.com: a", "n1: a", "no place (Devices): a"
	for _, c := range []struct {
		name  string
		rule  *resourcev1.DeviceTaintRule
		claim *resourcev1.ResourceClaim
		node  bool // an existing node has a free device, too
		want  string
	}{
		{"a rule without a selector selects nothing", rule(resourcev1.DeviceTaintEffectNoSchedule), claim("c", 1), false, launched},
		{"all devices", rule(resourcev1.DeviceTaintEffectNoSchedule, everyDevice), claim("c", 1), false, none},
		{"all devices, also with NoExecute", rule(resourcev1.DeviceTaintEffectNoExecute, everyDevice), claim("c", 1), false, none},
		{"an effect that only informs", rule(resourcev1.DeviceTaintEffectNone, everyDevice), claim("c", 1), false, launched},
		{"an effect that nobody knows", rule("Explode", everyDevice), claim("c", 1), false, launched},
		{"all of the driver", rule(resourcev1.DeviceTaintEffectNoSchedule, ofDriver(driver)), claim("c", 1), false, none},
		{"all of another driver", rule(resourcev1.DeviceTaintEffectNoSchedule, ofDriver(network)), claim("c", 1), false, launched},
		{"the claim tolerates it", rule(resourcev1.DeviceTaintEffectNoSchedule, ofDriver(driver)), claim("c", 1, tolerates), false, launched},
		{"a pool that is published", rule(resourcev1.DeviceTaintEffectNoSchedule, ofPool("gpus-n1")), claim("c", 1), true, launched},
		{"another pool", rule(resourcev1.DeviceTaintEffectNoSchedule, ofPool("gpus-n2")), claim("c", 1), true, onNode},
		{"a device by its name, which that of a new node has, too", rule(resourcev1.DeviceTaintEffectNoSchedule, named("dev-0")), claim("c", 1), true, none},
		{"driver and device must both match", rule(resourcev1.DeviceTaintEffectNoSchedule, ofDriver(network), named("dev-0")), claim("c", 1), true, onNode},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := World(pool(with(Type("gpu1", 1, "cpu", "8"), 1)), Pod("a", uses("c")))
			o := dynamicresources.Objects{
				Claims: list(c.claim), TaintRules: list(c.rule), Slices: list(slice(spec("gpus-n1", 1), on("n1"))),
			}
			if c.node {
				nodes(w, Node("n1", "general"))
			}
			if diff := cmp.Diff([]string{c.want}, plan(t, devicesOf(w, o))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// The slices are those of an informer: a rule must not change them.
func TestDeviceTaintRulesChangeNoSlice(t *testing.T) {
	s := slice(spec("gpus-n1", 1), on("n1"))
	s.Spec.Devices[0].Taints = append(make([]resourcev1.DeviceTaint, 0, 4), resourcev1.DeviceTaint{Key: "own"})
	before := s.DeepCopy()
	w := nodes(World(pool(), Pod("a", uses("c"))), Node("n1", "general"))
	devicesOf(w, dynamicresources.Objects{
		Claims: list(claim("c", 1)), Slices: list(s),
		TaintRules: list(rule(resourcev1.DeviceTaintEffectNoSchedule, everyDevice), rule(resourcev1.DeviceTaintEffectNoExecute, everyDevice)),
	})
	plan(t, w)
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
	if got := s.Spec.Devices[0].Taints[:2][1]; got.Key != "" {
		t.Errorf("the array behind the taints has %v", got)
	}
}
