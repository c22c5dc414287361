package resources_test

import (
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestAxes(t *testing.T) {
	a := resources.NewAxes(list("1", "1"), corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, list("2", "2"))
	if got, want := a.All(), []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"}; !slices.Equal(got, want) {
		t.Fatalf("axes %v, want each name once, sorted: %v", got, want)
	}
	if i, ok := a.Lookup("memory"); i != 1 || !ok || a.IndexOf("memory") != 1 || a.Name(1) != "memory" {
		t.Errorf("axis of memory: %d, %v", i, ok)
	}
	if _, ok := a.Lookup("pods"); ok {
		t.Error("pods has an axis although no list names it")
	}
	l := list("1500m", "1Ki")
	l["pods"] = resource.MustParse("7")
	if got, want := a.Vec(l), (resources.Vec{1500, 1024, 0}); !slices.Equal(got, want) {
		t.Errorf("amounts %v, want millicores, bytes and zero for what the list lacks: %v", got, want)
	}
}

func TestFits(t *testing.T) {
	type vec = resources.Vec
	tests := []struct {
		name                     string
		v, room                  vec
		fits, within, besideSelf bool
	}{
		{"smaller", vec{1, 2}, vec{2, 4}, true, true, true},
		{"equal", vec{2, 4}, vec{2, 4}, true, true, false},
		{"too large on one axis", vec{1, 5}, vec{2, 4}, false, false, false},
		{"an overdrawn room holds nothing", vec{0, 0}, vec{-1, 4}, false, false, false},
		{"nothing fits everywhere else", vec{0, 0}, vec{0, 0}, true, true, true},
		{"the largest number", vec{math.MaxInt64, 0}, vec{math.MaxInt64, 0}, true, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.v.Fits(tt.room); got != tt.fits {
				t.Errorf("Fits = %v", got)
			}
			if got := tt.v.Within(tt.room); got != tt.within {
				t.Errorf("Within = %v", got)
			}
			if got := tt.fits && tt.v.FitsBeside(tt.v, tt.room); got != tt.besideSelf {
				t.Errorf("FitsBeside = %v", got)
			}
		})
	}
	if !(vec{3, 0}).WithinSum(vec{1, -1}, vec{2, 1}) || (vec{4, 0}).WithinSum(vec{1, 0}, vec{2, 0}) {
		t.Error("WithinSum compares with something else than the sum")
	}
}

type vec = resources.Vec

func TestSums(t *testing.T) {
	tests := []struct {
		name            string
		a, b            vec
		plus, minus, mx vec
	}{
		{"ordinary", vec{1, 5}, vec{3, 2}, vec{4, 7}, vec{-2, 3}, vec{3, 5}},
		{"saturated", vec{math.MaxInt64}, vec{1}, vec{math.MaxInt64}, vec{math.MaxInt64 - 1}, vec{math.MaxInt64}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := slices.Clone(tt.a)
			if got := a.Plus(tt.b); !slices.Equal(got, tt.plus) {
				t.Errorf("Plus = %v, want %v", got, tt.plus)
			}
			if got := a.Minus(tt.b); !slices.Equal(got, tt.minus) {
				t.Errorf("Minus = %v, want %v", got, tt.minus)
			}
			if got := a.Max(tt.b); !slices.Equal(got, tt.mx) {
				t.Errorf("Max = %v, want %v", got, tt.mx)
			}
			if !slices.Equal(a, tt.a) {
				t.Error("the operand changed")
			}
		})
	}
}

func TestBitset(t *testing.T) {
	var b resources.Bitset
	for _, i := range []int{0, 63, 64, 200} {
		if b.Has(i) {
			t.Errorf("has %d before it is added", i)
		}
		b.Add(i)
	}
	for i := range 300 {
		if got, want := b.Has(i), slices.Contains([]int{0, 63, 64, 200}, i); got != want {
			t.Errorf("has %d: %v", i, got)
		}
	}
}

// Rivals all conflict with each other. Where one conflicts with two that go together, several may run on a node.
func TestRivals(t *testing.T) {
	port := func(ip string, n int32) []resources.HostPort {
		return []resources.HostPort{{IP: ip, Port: n, Protocol: corev1.ProtocolTCP}}
	}
	rivals, contested := resources.Rivals([][]resources.HostPort{
		port("0.0.0.0", 80), nil, port("0.0.0.0", 80), port("10.0.0.1", 81), port("0.0.0.0", 81), port("10.0.0.2", 81),
	})
	for i, want := range [][]int{{2}, nil, {0}, nil, nil, nil} {
		if got := rivals[i].Members(); !slices.Equal(got, want) {
			t.Errorf("list %d: rivals %v, want %v", i, got, want)
		}
	}
	if want := []bool{false, false, false, true, true, true}; !slices.Equal(contested, want) {
		t.Errorf("contested %v, want %v", contested, want)
	}
}
