package consolidate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestRowsOfSpot(t *testing.T) {
	on := consolidate.Settings{SpotToSpot: true}
	single := func(list []*catalog.InstanceType, edit ...func(*karpv1.NodePool)) *snapshot.Snapshot {
		s := world(list, edit...)
		add(s, 0, "node", "dear", spot, one("pod", "1"))
		return s
	}
	t.Run("lifecycle row 149: spot and on-demand may become one without the rules of spot", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.09, 0.1), priced("xl", 4, 0.4, 0.15)})
		add(s, 0, "a", "m", spot, one("pod-a", "1200m"))
		add(s, 0, "b", "m", spot, one("pod-b", "1200m"))
		add(s, 0, "c", "m", onDemand, one("pod-c", "1200m"))
		r := find(s, none())
		wantEnded(t, r, "a", "b", "c")
		if got := launched(r); len(got) != 1 {
			t.Errorf("launched are %v, want one", got)
		}
	})
	t.Run("lifecycle row 150: spot is not replaced by spot unless that is enabled", func(t *testing.T) {
		s := single(spotTypes(20))
		wantNothing(t, find(s, none()), "node", "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
		add(s, 0, "other", "dear", spot, one("own", "1"), one("own-2", "1"))
		wantEnded(t, find(s, none()), "node")
	})
	t.Run("lifecycle row 151: one cheaper type is not enough", func(t *testing.T) {
		wantNothing(t, find(single(spotTypes(1)), on), "node", "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 1")
	})
	t.Run("lifecycle row 152: a node among the 15 cheapest is not replaced", func(t *testing.T) {
		s := world(spotTypes(30))
		add(s, 0, "node", "t13", spot, one("pod", "1"))
		wantNothing(t, find(s, on), "node", "got 13")
	})
	t.Run("lifecycle row 153: minValues of 16 of 18 types send the 16 cheapest", func(t *testing.T) {
		r := find(single(spotTypes(18), Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(16)), on)
		if got := launched(r); len(got) != 1 || len(got[0]) != 16 || got[0][0] != "t00" || got[0][15] != "t15" {
			t.Errorf("launched are %v, want t00 to t15", got)
		}
	})
	t.Run("lifecycle row 154: minValues of 10 send 15", func(t *testing.T) {
		r := find(single(spotTypes(18), Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(10)), on)
		if got := launched(r); len(got) != 1 || len(got[0]) != 15 || got[0][14] != "t14" {
			t.Errorf("launched are %v, want t00 to t14", got)
		}
	})
	t.Run("lifecycle row 155: the cheapest type is found wherever it is listed", func(t *testing.T) {
		list := append(spotTypes(20), priced("zz-cheapest", 4, 0, 0.01))
		r := find(single(list), on)
		if got := launched(r); len(got) != 1 || got[0][0] != "zz-cheapest" || len(got[0]) != 15 {
			t.Errorf("launched are %v, want zz-cheapest first of 15", got)
		}
	})
	t.Run("lifecycle row 156: several spot nodes may become one of fewer than 15 types", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0, 0.1), priced("xl", 4, 0, 0.15)})
		add(s, 0, "a", "m", spot, one("pod-a", "1500m"))
		add(s, 0, "b", "m", spot, one("pod-b", "1500m"))
		r := find(s, on)
		wantEnded(t, r, "a", "b")
		if got := launched(r); len(got) != 1 || !slices.Equal(got[0], []string{"xl"}) {
			t.Errorf("launched are %v, want one xl", got)
		}
		wantNothing(t, find(s, none()), "a", "SpotToSpotConsolidation is disabled")
	})
}

func TestRowsOfTheBound(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
	s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes))
	unbounded(s)
	for k := range 3 {
		add(s, 0, fmt.Sprintf("a%d", k), "xl", onDemand, one(fmt.Sprintf("pod-a%d", k), "3"))
		add(s, 1, fmt.Sprintf("b%d", k), "xl", onDemand, one(fmt.Sprintf("pod-b%d", k), "3"))
	}
	t.Run("lifecycle row 157: no work is allowed", func(t *testing.T) {
		r := find(s, consolidate.Settings{Questions: -1})
		if len(r.Commands) > 0 || !r.TimedOut || r.Examined != 0 || !slices.Equal(r.Unseen, []string{"general", "other"}) {
			t.Errorf("result is %+v, want nothing but that it timed out", r)
		}
	})
	t.Run("lifecycle row 158: pools that were not come to go first", func(t *testing.T) {
		// One question seats pending pods; the next is about the first candidate.
		r := find(s, consolidate.Settings{Questions: 2})
		if !r.TimedOut || r.Examined != 1 || len(r.Unseen) != 1 {
			t.Fatalf("%d are examined, not yet seen are %v; want one, and the other's pool", r.Examined, r.Unseen)
		}
		again := find(s, consolidate.Settings{Questions: 2, First: r.Unseen})
		if len(again.Unseen) != 1 || again.Unseen[0] == r.Unseen[0] {
			t.Errorf("not yet seen are %v, want the other pool", again.Unseen)
		}
		asked := 0
		late := find(s, consolidate.Settings{Over: func() bool { asked++; return asked > 1 }})
		if !late.TimedOut || late.Examined != 1 || !slices.Equal(late.Unseen, r.Unseen) {
			t.Errorf("when time is up after one candidate, %d are examined, not yet seen are %v", late.Examined, late.Unseen)
		}
		if all := find(s, none()); all.TimedOut || len(all.Unseen) > 0 || all.Examined != 6 {
			t.Errorf("without a bound, %d are examined and %v are not seen", all.Examined, all.Unseen)
		}
	})
	t.Run("lifecycle row 159: what is easiest to disturb for its price goes first", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
		for _, pods := range []int{20, 1, 5} {
			name := fmt.Sprintf("pods-%02d", pods)
			n := add(s, 0, name, "xl", onDemand)
			for k := range pods {
				n.Pods = append(n.Pods, Bound(one(fmt.Sprintf("%s-%d", name, k), "10m"), name))
			}
		}
		add(s, 0, "zz-room", "xl", onDemand, Pods(60, "own", Asks("cpu", "10m"))...)
		var order []string
		for range 3 {
			r := find(budget(s, "1"), none())
			order = append(order, ended(r)...)
			s = carryOut(s, r.Commands, time.Hour)
		}
		if want := []string{"pods-01", "pods-05", "pods-20"}; !slices.Equal(order, want) {
			t.Errorf("nodes end in the order %v, want %v", order, want)
		}
	})
}

func TestNotForConsolidation(t *testing.T) {
	for _, tt := range []struct {
		why   string
		quiet bool
		edit  func(s *snapshot.Snapshot)
	}{
		{`Instance Type "nowhere" not found`, false, func(s *snapshot.Snapshot) { s.Nodes[0].Labels[corev1.LabelInstanceTypeStable] = "nowhere" }},
		{`Node does not have label "karpenter.sh/capacity-type"`, false, func(s *snapshot.Snapshot) { delete(s.Nodes[0].Labels, Capacity) }},
		{`Node does not have label "topology.kubernetes.io/zone"`, false, func(s *snapshot.Snapshot) { delete(s.Nodes[0].Labels, Zone) }},
		{`NodePool "general" has consolidation disabled`, false, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.Never()
		}},
		{`NodePool "general" has consolidation policy WhenEmpty, but node is not empty`, false, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty
		}},
		{"Node is empty", true, func(s *snapshot.Snapshot) { s.Nodes[0].Pods = nil }},
		{"Pods came or went too lately", true, func(s *snapshot.Snapshot) { s.Nodes[0].Consolidatable = false }},
		{`NodePool "general" keeps a fixed number of nodes`, true, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Replicas = new(int64)
			s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes))
		}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
			add(s, 0, "node", "xl", onDemand, one("pod", "1"))
			tt.edit(s)
			r := find(s, none())
			wantNothing(t, r, "node", tt.why)
			if len(r.Left) != 1 || r.Left[0].Quiet != tt.quiet {
				t.Errorf("left are %+v, want one, quiet %v", r.Left, tt.quiet)
			}
		})
	}
}
