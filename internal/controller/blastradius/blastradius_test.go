package blastradius

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestNodesAreReplacedWhileAtMostAFifthIsUnhealthy(t *testing.T) {
	for _, tt := range []struct {
		count   Count
		blocked bool
	}{
		{Count{1, 1}, false},
		{Count{2, 2}, true},
		{Count{3, 1}, false},
		{Count{10, 2}, false},
		{Count{10, 3}, true},
		{Count{11, 3}, false},
		{Count{100, 20}, false},
		{Count{100, 21}, true},
		{Count{0, 0}, false},
	} {
		if got := tt.count.Blocked(); got != tt.blocked {
			t.Errorf("%s unhealthy: blocked %v, want %v", tt.count, got, tt.blocked)
		}
	}
}

func TestCollectableIsThreeOrATwentieth(t *testing.T) {
	for total, want := range map[int]int{0: 3, 1: 3, 79: 3, 80: 4, 100: 5, 4000: 200} {
		if got := DeletableLimit(total); got != want {
			t.Errorf("of %d: %d, want %d", total, got, want)
		}
	}
}

func TestScopeOfAClaim(t *testing.T) {
	claim := &karpv1.NodeClaim{}
	if PoolOf(claim).Kind() != "cluster" || ZoneOf(claim).Kind() != "cluster" {
		t.Error("a claim without labels counts with the cluster")
	}
	claim.Labels = map[string]string{karpv1.LabelNodePool: "general", corev1.LabelTopologyZone: "us-east-1a"}
	if got := PoolOf(claim); got != (Scope{NodePool: "general"}) || got.Kind() != "nodepool" {
		t.Errorf("pool %+v", got)
	}
	if got := ZoneOf(claim); got != (Scope{Zone: "us-east-1a"}) || got.Kind() != "zone" {
		t.Errorf("zone %+v", got)
	}
}
