package consolidate_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestRecheck finds commands, changes something, and checks whether they are still valid.
func TestRecheck(t *testing.T) {
	replace := func() *snapshot.Snapshot {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("l", 2, 0.12, 0), priced("xl", 4, 0.2, 0)})
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		return s
	}
	move := func() *snapshot.Snapshot {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		add(s, 0, "room", "xl", onDemand, one("own", "1"), one("own-2", "1"))
		return s
	}
	type change func(s *snapshot.Snapshot)
	bind := func(i int, pods ...*corev1.Pod) change {
		return func(s *snapshot.Snapshot) {
			for _, p := range pods {
				s.Nodes[i].Pods = append(s.Nodes[i].Pods, Bound(p, s.Nodes[i].Name))
			}
		}
	}
	without := func(name string) change {
		return func(s *snapshot.Snapshot) {
			s.Pools[0].InstanceTypes = slices.DeleteFunc(
				slices.Clone(s.Pools[0].InstanceTypes),
				func(it *catalog.InstanceType) bool { return it.Name == name },
			)
		}
	}
	// reprice changes the price of a type, or makes it unavailable.
	reprice := func(name string, price float64, available bool) change {
		return func(s *snapshot.Snapshot) {
			list := slices.Clone(s.Pools[0].InstanceTypes)
			k := slices.IndexFunc(list, func(it *catalog.InstanceType) bool { return it.Name == name })
			it := *list[k]
			it.Offerings = slices.Clone(it.Offerings)
			for i := range it.Offerings {
				it.Offerings[i].Price, it.Offerings[i].Available = price, available
			}
			list[k] = &it
			s.Pools[0].InstanceTypes = list
		}
	}
	for _, tt := range []struct {
		name   string
		world  func() *snapshot.Snapshot
		change change
		kind   consolidate.InvalidKind
	}{
		{"nothing, before a replacement", replace, func(*snapshot.Snapshot) {}, ""},
		{"nothing, before pods move", move, func(*snapshot.Snapshot) {}, ""},
		{"the node is deleted", replace, func(s *snapshot.Snapshot) { s.Nodes = nil }, consolidate.Churn},
		{"the node is deleting", replace, func(s *snapshot.Snapshot) { s.Nodes[0].Deleting = true }, consolidate.Churn},
		{"a type is not offered any more", replace, without("l"), consolidate.Scheduling},
		{"a type is unavailable", replace, reprice("m", 0.1, false), consolidate.Scheduling},
		{"a type became more expensive than the node", replace, reprice("l", 0.3, true), consolidate.Scheduling},
		{"the node became cheaper than a type", replace, reprice("xl", 0.11, true), consolidate.Scheduling},
		{"another pod has come, and fits nowhere", replace, bind(0, one("new", "1")), consolidate.Scheduling},
		{"another pod has come, and fits elsewhere", move, bind(0, one("new", "1")), ""},
		{"the room is taken", move, bind(1, one("new", "2")), consolidate.Scheduling},
		{"a pending pod needs the room as well", move, func(s *snapshot.Snapshot) {
			s.Pods = []*corev1.Pod{Pod("new", Requests("cpu", "2"))}
		}, consolidate.Scheduling},
		{"the pod has left", move, func(s *snapshot.Snapshot) { s.Nodes[0].Pods = nil }, ""},
		{
			"the destination is not initialized any more", move, func(s *snapshot.Snapshot) { s.Nodes[1].Initialized = false },
			consolidate.Scheduling,
		},
		{"the pool cannot launch any more", replace, func(s *snapshot.Snapshot) { s.Pools = nil }, consolidate.Scheduling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := find(tt.world(), defaults())
			if len(r.Commands) != 1 || len(r.Commands[0].Candidates) != 1 || r.Commands[0].Candidates[0].Node.Name != "node" {
				t.Fatalf("found %s, want one command that removes one node", describe(r))
			}
			later := tt.world()
			tt.change(later)
			err := consolidate.Recheck(consolidate.Compile(later), later, &r.Commands[0], defaults())
			var invalid *consolidate.Invalid
			switch {
			case tt.kind == "" && err != nil:
				t.Errorf("it is no longer valid: %v", err)
			case tt.kind != "" && (!errors.As(err, &invalid) || invalid.Kind != tt.kind || err.Error() == ""):
				t.Errorf("it fails as %v, want kind %s", err, tt.kind)
			}
		})
	}
}

// TestRecheckBesideOthers has two commands that need the same free room: the second is valid only without the first.
func TestRecheckBesideOthers(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
	add(s, 0, "a", "xl", onDemand, one("pod-a", "1"))
	add(s, 0, "b", "xl", onDemand, one("pod-b", "1"))
	add(s, 0, "room", "xl", onDemand, one("own", "1"), one("own-2", "1"), one("own-3", "1"))
	command := func(from int) *disrupt.Command {
		other := *s
		other.Nodes = slices.Clone(s.Nodes)
		other.Nodes[1-from].Consolidatable = false
		other.Nodes[1-from].Taints = []corev1.Taint{{Key: "closed", Effect: corev1.TaintEffectNoSchedule}}
		r := find(budget(&other, "1"), defaults())
		if len(r.Commands) != 1 {
			t.Fatalf("found %s, want one command", describe(r))
		}
		return &r.Commands[0]
	}
	first, second := command(0), command(1)
	closed := *s
	closed.Nodes = slices.Clone(s.Nodes)
	for i := range 2 {
		closed.Nodes[i].Taints = []corev1.Taint{{Key: "closed", Effect: corev1.TaintEffectNoSchedule}}
	}
	p := consolidate.Compile(&closed)
	if err := consolidate.Recheck(p, &closed, first, defaults()); err != nil {
		t.Errorf("the first is not valid: %v", err)
	}
	if err := consolidate.Recheck(p, &closed, second, defaults()); err == nil {
		t.Error("the second is valid, though the first takes its room")
	}
	p.Revert()
	if err := consolidate.Recheck(p, &closed, second, defaults()); err != nil {
		t.Errorf("the second is not valid, though the first was released: %v", err)
	}
}
