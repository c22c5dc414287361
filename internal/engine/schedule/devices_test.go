package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// claims makes a pod request a device: in its spec, a container, or an init container.
func claims(spec, main, first bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		gpu := []corev1.ResourceClaim{{Name: "gpu"}}
		if spec {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}
		if main {
			p.Spec.Containers[0].Resources.Claims = gpu
		}
		if first {
			p.Spec.InitContainers = append(
				p.Spec.InitContainers,
				corev1.Container{Name: "first", Resources: corev1.ResourceRequirements{Claims: gpu}},
			)
		}
	}
}

func TestResourceClaims(t *testing.T) {
	refused := []string{"unschedulable (ResourceClaims): a"}
	checkPlans(t, []planCase{
		{"in a container", world(Pod("a", claims(false, true, false))), refused},
		{"in an init container", world(Pod("a", claims(false, false, true))), refused},
		{"in both", world(Pod("a", claims(true, true, true))), refused},
		{"in the spec alone", world(Pod("a", claims(true, false, false))), refused},
		{"nothing is given up for it", world(Pod("a", claims(true, true, false), Prefers(1, Expr(Zone, in, "nowhere")))), refused},
		{"not on an existing node either", withNodes(world(Pod("a", claims(true, true, false))), Node("n1", "general")), refused},
		{
			"pods without go on",
			world(Pod("a", claims(true, true, false)), Pod("b")),
			[]string{"unschedulable (ResourceClaims): a", "general m.small: b"},
		},
		{
			"a daemon with claims takes no room",
			daemons(world(Pod("a", Requests("cpu", "1"))), Pod("driver", Requests("cpu", "500m"), claims(false, true, false))),
			[]string{"general m.small: a"},
		},
		{
			"a daemon without does",
			daemons(world(Pod("a", Requests("cpu", "1"))), Pod("agent", Requests("cpu", "500m"))),
			[]string{"general m.medium: a"},
		},
	})
}
