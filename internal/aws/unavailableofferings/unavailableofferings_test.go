package unavailableofferings

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

var spotA = Scope{OfferingKey: catalog.OfferingKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"}}

// with is spotA, changed.
func with(change func(*Scope)) Scope {
	o := spotA
	change(&o)
	return o
}

var (
	onDemandA = with(func(o *Scope) { o.CapacityType = "on-demand" })
	spotB     = with(func(o *Scope) { o.Zone = "b" })
	largerA   = with(func(o *Scope) { o.InstanceType = "m5.xlarge" })
	inGroup   = with(func(o *Scope) { o.PlacementGroup = "pg-1" })
	inOther   = with(func(o *Scope) { o.PlacementGroup = "pg-2" })
	part1     = with(func(o *Scope) { o.PlacementGroup, o.Partition = "pg-1", "1" })
	part2     = with(func(o *Scope) { o.PlacementGroup, o.Partition = "pg-1", "2" })
)

func TestIsUnavailable(t *testing.T) {
	two := []string{"subnet-1", "subnet-2"}
	offering := func(o Scope) func(*Cache) { return func(m *Cache) { m.Mark(o) } }
	for _, tc := range []struct {
		name    string
		mark    func(*Cache)
		asked   Scope
		subnets []string
		want    bool
	}{
		{"nothing is marked", func(*Cache) {}, spotA, two, false},
		{"the offering", offering(spotA), spotA, two, true},
		{"another zone", offering(spotA), spotB, two, false},
		{"on-demand", offering(spotA), onDemandA, two, false},
		{"another type", offering(spotA), largerA, two, false},
		{"a whole capacity type", func(m *Cache) { m.MarkCapacityType("spot") }, spotB, two, true},
		{"on-demand while spot is marked", func(m *Cache) { m.MarkCapacityType("spot") }, onDemandA, two, false},
		{"one subnet of two", func(m *Cache) { m.MarkSubnet("subnet-1") }, spotA, two, false},
		{"all subnets of a zone", func(m *Cache) { m.MarkSubnet("subnet-1"); m.MarkSubnet("subnet-2") }, onDemandA, two, true},
		{"a class without a subnet there", func(m *Cache) { m.MarkSubnet("subnet-1") }, spotA, nil, false},
		{"in a group, launches into it", offering(inGroup), inGroup, two, true},
		{"in a group, launches into none", offering(inGroup), spotA, two, false},
		{"in a group, launches into another", offering(inGroup), inOther, two, false},
		{"a general mark, launches into a group", offering(spotA), inGroup, two, true},
		{"a general mark, launches into a partition", offering(spotA), part1, two, true},
		{"in a group, launches into a partition of it", offering(inGroup), part2, two, true},
		{"in a partition, launches into it", offering(part1), part1, two, true},
		{"in a partition, launches into another", offering(part1), part2, two, false},
		{"in a partition, launches into the group wherever", offering(part1), inGroup, two, false},
		{
			"every type of a zone in a group", offering(Scope{OfferingKey: catalog.OfferingKey{Zone: "a"}, PlacementGroup: "pg-1"}), part2, two,
			true,
		},
		{
			"every type of a zone in a group, outside of it", offering(Scope{OfferingKey: catalog.OfferingKey{Zone: "a"}, PlacementGroup: "pg-1"}),
			spotA, two, false,
		},
		{"a whole zone", func(m *Cache) { m.MarkZone("a") }, onDemandA, two, true},
		{"another zone than the whole one", func(m *Cache) { m.MarkZone("a") }, spotB, two, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New(func() time.Time { return time.Time{}.Add(time.Hour) })
			tc.mark(m)
			if got := m.IsUnavailable(tc.asked, tc.subnets); got != tc.want {
				t.Errorf("scarce is %v", got)
			}
		})
	}
}

// A sequence number is about marks and of when they stop, and of nothing else. The version is about those of all types.
func TestSequence(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mark   func(*Cache)
		m5, c5 bool // the sequence numbers of which types change
	}{
		{"an offering concerns its type", func(m *Cache) { m.Mark(spotA) }, true, false},
		{"a capacity type concerns every type", func(m *Cache) { m.MarkCapacityType("spot") }, true, true},
		{"a subnet concerns every type", func(m *Cache) { m.MarkSubnet("subnet-1") }, true, true},
		{"a zone concerns every type", func(m *Cache) { m.MarkZone("a") }, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			m := New(func() time.Time { return now })
			numbers := func() [2]uint64 { return [2]uint64{m.Sequence("m5.large"), m.Sequence("c5.large")} }
			expect := func(when string, before, after [2]uint64) {
				t.Helper()
				if (before[0] != after[0]) != tc.m5 || (before[1] != after[1]) != tc.c5 {
					t.Errorf("%s: %v became %v", when, before, after)
				}
			}
			before, version := numbers(), m.Version()
			tc.mark(m)
			marked := numbers()
			expect("the mark", before, marked)
			if m.Version() == version {
				t.Error("the version has not changed with the mark")
			}
			version = m.Version()
			now = now.Add(TTL - time.Second)
			if numbers() != marked || m.Version() != version {
				t.Errorf("%v of version %d has changed to %v of version %d for nothing", marked, version, numbers(), m.Version())
			}
			now = now.Add(time.Second)
			if m.Version() == version {
				t.Error("the version has not changed with the end of the mark")
			}
			expect("its end", marked, numbers())
		})
	}
}

func TestMarksExpireAfterThreeMinutes(t *testing.T) {
	t.Run("three minutes later", func(t *testing.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		m := New(func() time.Time { return now })
		m.Mark(spotA)
		m.MarkSubnet("subnet-1")
		now = now.Add(2 * time.Minute)
		m.Mark(spotA) // extends
		now = now.Add(2 * time.Minute)
		if !m.IsUnavailable(spotA, nil) {
			t.Error("a mark that was renewed two minutes ago is gone")
		}
		if m.IsUnavailable(onDemandA, []string{"subnet-1"}) {
			t.Error("a mark that was not renewed is still there")
		}
		marked := m.Sequence("m5.large")
		now = now.Add(time.Minute)
		if m.IsUnavailable(spotA, nil) {
			t.Error("a mark of three minutes ago is still there")
		}
		if m.Sequence("m5.large") == marked {
			t.Error("what was computed while the mark held does not look out of date")
		}
	})
}

func TestMarksAreCounted(t *testing.T) {
	m := New(time.Now)
	m.MarkSubnet("subnet-1")
	m.Mark(spotA)
	if m.Marks() != 2 {
		t.Errorf("%d marks, want 2", m.Marks())
	}
}
