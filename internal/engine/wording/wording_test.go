package wording_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

func TestRequirementsAreWordedAsSelectors(t *testing.T) {
	for want, r := range map[string]requirement.Requirement{
		"zone=z1":                         requirement.In("zone", "z1"),
		"zone in (z1, z2)":                requirement.In("zone", "z2", "z1"),
		"n in (a, b, c, d, e and 2 more)": requirement.In("n", "a", "b", "c", "d", "e", "f", "g"),
		"zone not in (z1)":                requirement.NotIn("zone", "z1"),
		"no label zone":                   requirement.DoesNotExist("zone"),
		"any zone":                        requirement.Exists("zone"),
		"cpu >= 3 and cpu <= 8":           requirement.AtLeast("cpu", 3).Intersect(requirement.AtMost("cpu", 8)),
	} {
		if got := wording.Requirement(r); got != want {
			t.Errorf("%v: %q, want %q", r, got, want)
		}
	}
}

func TestAmountsAreWordedAsQuantities(t *testing.T) {
	for _, c := range []struct {
		name corev1.ResourceName
		n    int64
		want string
	}{
		{corev1.ResourceCPU, 1500, "1500m"},
		{corev1.ResourceCPU, 2000, "2"},
		{corev1.ResourceMemory, 3 << 30, "3Gi"},
		{corev1.ResourcePods, 110, "110"},
	} {
		if got := wording.Amount(c.name, c.n); got != c.want {
			t.Errorf("%d of %s: %q, want %q", c.n, c.name, got, c.want)
		}
	}
}

func TestFindsTheWordThatAMisspelledOneIsSimilarTo(t *testing.T) {
	known := []string{"topology.kubernetes.io/zone", "kubernetes.io/arch", "team"}
	for word, want := range map[string]string{
		"topology.kubernets.io/zone":  "topology.kubernetes.io/zone",
		"zone":                        "topology.kubernetes.io/zone",
		"tema":                        "team",
		"something-else":              "",
		"topology.kubernetes.io/zone": "",
	} {
		if got := wording.Similar(word, known); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
