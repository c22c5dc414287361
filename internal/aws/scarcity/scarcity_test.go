package scarcity

import (
	"testing"
	"time"
)

var spotA = Offering{CapacityType: "spot", InstanceType: "m5.large", Zone: "a"}

func TestScarce(t *testing.T) {
	onDemandA, spotB := spotA, spotA
	onDemandA.CapacityType, spotB.Zone = "on-demand", "b"
	two := []string{"subnet-1", "subnet-2"}
	for _, tc := range []struct {
		name    string
		mark    func(*Memory)
		asked   Offering
		subnets []string
		want    bool
	}{
		{"nothing is marked", func(*Memory) {}, spotA, two, false},
		{"the offering", func(m *Memory) { m.MarkOffering(spotA) }, spotA, two, true},
		{"another zone", func(m *Memory) { m.MarkOffering(spotA) }, spotB, two, false},
		{"another capacity type", func(m *Memory) { m.MarkOffering(spotA) }, onDemandA, two, false},
		{"the whole capacity type", func(m *Memory) { m.MarkCapacityType("spot") }, spotB, two, true},
		{"on-demand while spot is marked", func(m *Memory) { m.MarkCapacityType("spot") }, onDemandA, two, false},
		{"one subnet of two", func(m *Memory) { m.MarkSubnet("subnet-1") }, spotA, two, false},
		{"both subnets", func(m *Memory) { m.MarkSubnet("subnet-1"); m.MarkSubnet("subnet-2") }, spotA, two, true},
		{"a class without a subnet there", func(m *Memory) { m.MarkSubnet("subnet-1") }, spotA, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New(func() time.Time { return time.Time{}.Add(time.Hour) })
			tc.mark(m)
			if got := m.Scarce(tc.asked, tc.subnets); got != tc.want {
				t.Errorf("scarce is %v", got)
			}
		})
	}
}

func TestMarksFadeAfterThreeMinutes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New(func() time.Time { return now })
	m.MarkOffering(spotA)
	now = now.Add(2 * time.Minute)
	m.MarkOffering(spotA) // extends
	now = now.Add(2 * time.Minute)
	if !m.Scarce(spotA, nil) {
		t.Error("a mark that was renewed two minutes ago is gone")
	}
	now = now.Add(time.Minute)
	if m.Scarce(spotA, nil) {
		t.Error("a mark of three minutes ago is still there")
	}
}

func TestMarksAreCounted(t *testing.T) {
	m := New(time.Now)
	before := m.Marks()
	m.MarkSubnet("subnet-1")
	if m.Marks() == before {
		t.Error("what was computed before the mark does not look out of date")
	}
}
