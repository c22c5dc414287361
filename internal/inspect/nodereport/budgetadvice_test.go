package nodereport

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// What explain advises for a budget that allows nothing makes it allow one eviction.
func TestAdviceForABudgetThatAllowsNothing(t *testing.T) {
	const never = "so that one may go: as it is, it never allows an eviction, however many replicas run"
	for _, c := range []struct{ budget, want string }{
		{"{spec: {maxUnavailable: 0}, status: {expectedPods: 3, currentHealthy: 3, desiredHealthy: 3}}", "set spec.maxUnavailable " + never},
		{"{spec: {maxUnavailable: 0%}, status: {expectedPods: 3, currentHealthy: 3, desiredHealthy: 3}}", "set spec.maxUnavailable " + never},
		{"{spec: {minAvailable: 100%}, status: {expectedPods: 3, currentHealthy: 3, desiredHealthy: 3}}", "set spec.minAvailable " + never},
		{"{spec: {minAvailable: 2}, status: {expectedPods: 2, currentHealthy: 2, desiredHealthy: 2}}", "run one more replica, or let spec.minAvailable"},
		{"{spec: {minAvailable: 50%}, status: {expectedPods: 1, currentHealthy: 1, desiredHealthy: 1}}", "run one more replica, or"},
		{"{spec: {minAvailable: 90%}, status: {expectedPods: 5, currentHealthy: 5, desiredHealthy: 5}}", "run 5 more replicas, or"},
		{
			"{spec: {maxUnavailable: 1}, status: {expectedPods: 5, currentHealthy: 4, desiredHealthy: 4}}",
			"make all of its pods healthy (4 of 5 are), or let spec.maxUnavailable allow one to go",
		},
		{"{spec: {maxUnavailable: 1}, status: {expectedPods: 5, currentHealthy: 2, desiredHealthy: 4}}", "make its pods healthy: it wants 4, 2 are"},
	} {
		pdb := &policyv1.PodDisruptionBudget{}
		if err := yaml.UnmarshalStrict([]byte(c.budget), pdb); err != nil {
			t.Fatal(err)
		}
		if got := exhausted(pdb, nil).Change; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.budget, got, c.want)
		}
	}
}
