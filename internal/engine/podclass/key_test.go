package podclass_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// keysOf are the keys of a pod, which stay valid.
func keysOf(t *testing.T, f *podclass.Keys, pod *corev1.Pod) (all, constraints string) {
	t.Helper()
	key, err := f.Of(pod)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(key.All, key.Constraints) {
		t.Error("the constraints are not the end of the key")
	}
	return string(key.All), string(key.Constraints)
}

// TestKeys compares each pod with one that requests a CPU and has the label app=web.
func TestKeys(t *testing.T) {
	web := func(edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod("web", append([]func(*corev1.Pod){Requests("cpu", "1"), Labeled("app", "web")}, edit...)...)
	}
	image := func(p *corev1.Pod) { p.Name, p.Spec.Containers[0].Image = "other", "other:1" }
	namespace := func(p *corev1.Pod) { p.Namespace = "other" }
	devices := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	tests := []struct {
		name                  string
		pod                   *corev1.Pod
		equal, sameConstraint bool
	}{
		{"name and image do not matter", web(image), true, true},
		{"the same amount in other units", web(Requests("cpu", "1000m")), true, true},
		{"another request", web(Requests("cpu", "2")), false, true},
		{"one more request", web(Requests("cpu", "1", "memory", "1Gi")), false, true},
		{"another label", web(Labeled("tier", "front")), false, false},
		{"another namespace", web(namespace), false, false},
		{"a node selector", web(Selects(Zone, "z1")), false, false},
		{"node affinity", web(Needs(Expr(Zone, corev1.NodeSelectorOpIn, "z1"))), false, false},
		{"a toleration", web(Tolerates("gpu")), false, false},
		{"a spread", web(Spread(Zone, 1, "web")), false, false},
		{"a host port", web(HostPort("", 80, corev1.ProtocolTCP)), false, false},
		{"a volume claim", web(Claims("data")), false, false},
		{"devices", web(devices), false, false},
	}
	f := podclass.NewKeys(false, &snapshot.Settings{})
	all, constraints := keysOf(t, f, web())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, c := keysOf(t, f, tt.pod)
			if (a == all) != tt.equal || (c == constraints) != tt.sameConstraint {
				t.Errorf("equal keys: %v, equal constraints: %v", a == all, c == constraints)
			}
		})
	}
}

func TestPodsWithDevicesAreTakenOneByOne(t *testing.T) {
	a, b := Pod("p"), Pod("p")
	a.UID, b.UID = "a", "b"
	for _, p := range []*corev1.Pod{a, b} {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	}
	for _, planned := range []bool{false, true} {
		f := podclass.NewKeys(planned, &snapshot.Settings{})
		one, _ := keysOf(t, f, a)
		other, _ := keysOf(t, f, b)
		if (one == other) == planned {
			t.Errorf("devices are planned: %v, equal keys: %v", planned, one == other)
		}
	}
}
