package consolidate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// pricedPreferences sets the policy Priced at a tenth of pods' own prices.
func pricedPreferences(s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Settings.PreferencePolicy, s.Settings.PreferenceCost = snapshot.PreferencesPriced, 0.1
	return s
}

// TestPricedPreferencesGiveWayToRoom puts two pods that prefer nodes of their own on one of their two nodes.
func TestPricedPreferencesGiveWayToRoom(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 1, 0)})
	for _, name := range []string{"a", "b"} {
		add(s, 0, name, "xl", onDemand, one("pod-"+name, "1", Labeled("app", "web"), PreferApart(10, Host, "web")))
	}
	if r := find(s, defaults()); len(removedNames(r)) != 0 {
		t.Errorf("under Respect found %s, want nothing", describe(r))
	}
	if r := find(pricedPreferences(s), defaults()); len(removedNames(r)) != 1 {
		t.Errorf("found %s, want one node to be removed", describe(r))
	}
}

// TestPricedPreferencesKeepTheirNodes leaves a pod where it prefers to be if that costs 5 % more than elsewhere, and moves
// it if that costs 50 % more.
func TestPricedPreferencesKeepTheirNodes(t *testing.T) {
	for _, c := range []struct {
		price   float64
		removed int
	}{{1.05, 0}, {1.5, 1}} {
		preferred := WithOfferings(Type("preferred", 1, "cpu", "4", "memory", "16Gi"), Offering("z2", onDemand, c.price))
		cheap := WithOfferings(Type("cheap", 1, "cpu", "4", "memory", "16Gi"), Offering("z1", onDemand, 1))
		s := world([]*catalog.InstanceType{preferred, cheap})
		zone := corev1.NodeSelectorRequirement{Key: Zone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z2"}}
		add(s, 0, "a", "preferred", onDemand, one("pod", "3", Prefers(1, zone)))
		if r := find(pricedPreferences(s), defaults()); len(removedNames(r)) != c.removed {
			t.Errorf("at $%v/h found %s, want %d nodes to be replaced", c.price, describe(r), c.removed)
		}
	}
}
