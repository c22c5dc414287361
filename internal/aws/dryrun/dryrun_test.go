package dryrun

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func TestCache(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var jitter float64
	m := NewCache(func() time.Time { return now }, func() float64 { return jitter })
	// wait lets a verdict expire and reports how long that took.
	wait := func(about string, v Verdict) time.Duration {
		left := m.Put("class", about, v)
		if got, still, known := m.Get("class", about); !known || got != v || still != left {
			t.Fatalf("%+v, %v, %v", got, still, known)
		}
		now = now.Add(left)
		if _, _, known := m.Get("class", about); known {
			t.Fatal("it is believed for longer than was said")
		}
		return left
	}
	no := Verdict{Reason: CreateFleet, Message: "m"}
	var got []time.Duration
	for range 6 {
		got = append(got, wait("a", no))
	}
	s := time.Second
	if want := []time.Duration{30 * s, 60 * s, 120 * s, 240 * s, 300 * s, 300 * s}; !slices.Equal(got, want) {
		t.Errorf("a no is believed for %v, want %v", got, want)
	}
	if d := wait("b", no); d != 30*s {
		t.Errorf("after an edit, a no is believed for %v", d)
	}
	for random, want := range map[float64]time.Duration{0: 25 * time.Minute, 0.5: 30 * time.Minute, 0.9: 34 * time.Minute} {
		jitter = random
		if d := wait("b", Verdict{}); d != want {
			t.Errorf("with the random number %v a yes is believed for %v, want %v", random, d, want)
		}
	}
	if d := wait("b", no); d != 30*s {
		t.Errorf("after a yes, a no is believed for %v", d)
	}
	if d := wait("b", Verdict{Reason: InstanceProfileNotFound}); d > 10*s {
		t.Errorf("a missing profile is believed for %v", d)
	}
	m.Put("class", "a", no)
	if _, _, known := m.Get("class", "b"); known {
		t.Error("a verdict about something else")
	}
	m.Invalidate("class")
	if _, _, known := m.Get("class", "a"); known {
		t.Error("forgotten and known")
	}
}

func TestChooseInstanceType(t *testing.T) {
	typ := func(name string, zones ...string) *catalog.InstanceType {
		out := &catalog.InstanceType{Name: name, Requirements: requirement.NewSet(requirement.In(corev1.LabelInstanceTypeStable, name))}
		for _, z := range []string{"a", "b", "c"} {
			out.Offerings = append(out.Offerings, catalog.Offering{Zone: z, Available: slices.Contains(zones, z)})
		}
		return out
	}
	all := []*catalog.InstanceType{
		typ("c5.large", "a"),
		typ("c6i.large", "a", "b"),
		typ("g5.xlarge", "a", "b", "c"),
		typ("gone.large"),
		typ("m5.large", "a"),
		typ("m6g.large", "b"),
	}
	pool := func(names ...string) requirement.Set {
		return requirement.NewSet(requirement.In(corev1.LabelInstanceTypeStable, names...))
	}
	standard := func(t *catalog.InstanceType) bool { return t.Name != "g5.xlarge" }
	for _, tc := range []struct {
		name  string
		types []*catalog.InstanceType
		pools []requirement.Set
		want  string
	}{
		{"of the pool", all, []requirement.Set{pool("c5.large")}, "c5.large"},
		{"of any pool, in the most zones", all, []requirement.Set{pool("c5.large"), pool("c6i.large")}, "c6i.large"},
		{"a usual one if the pool allows it", all, []requirement.Set{pool("c6i.large", "m5.large")}, "m5.large"},
		{"pools that nothing suits", all, []requirement.Set{pool("x9.large")}, "m5.large"},
		{"pools with unavailable types", all, []requirement.Set{pool("gone.large")}, "m5.large"},
		{"no pools", all, nil, "m5.large"},
		{"nothing usual", all[:3], nil, "c6i.large"},
		{"standard before accelerated images", all[:3], []requirement.Set{pool("g5.xlarge", "c5.large")}, "c5.large"},
		{"accelerated if there is nothing else", all, []requirement.Set{pool("g5.xlarge")}, "g5.xlarge"},
		{"nothing can be had", all[3:4], nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := ChooseInstanceType(tc.types, tc.pools, standard)
			if ok != (tc.want != "") || ok && got.Name != tc.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTenancy(t *testing.T) {
	in := func(values ...string) requirement.Set {
		return requirement.NewSet(requirement.In(awsv1.LabelInstanceTenancy, values...))
	}
	for name, tc := range map[string]struct {
		pools []requirement.Set
		want  string
	}{
		"no pool":                   {nil, "default"},
		"a pool that does not care": {[]requirement.Set{requirement.NewSet()}, "default"},
		"shared hardware only":      {[]requirement.Set{in("default")}, "default"},
		"a pool that allows both":   {[]requirement.Set{requirement.NewSet(), in("default", "dedicated")}, "dedicated"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Tenancy(tc.pools); got != tc.want {
				t.Errorf("%s", got)
			}
		})
	}
}
