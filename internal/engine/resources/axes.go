package resources

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

// Axes are the resources of one Solve, in a fixed order, so that amounts are vectors.
type Axes struct {
	names []corev1.ResourceName
	index map[corev1.ResourceName]int
}

// NewAxes are the resources that any of the lists names, sorted by name.
func NewAxes(lists ...corev1.ResourceList) Axes {
	seen := map[corev1.ResourceName]bool{}
	for _, l := range lists {
		for name := range l {
			seen[name] = true
		}
	}
	a := Axes{names: slices.SortedFunc(maps.Keys(seen), func(x, y corev1.ResourceName) int { return cmp.Compare(x, y) })}
	a.index = make(map[corev1.ResourceName]int, len(a.names))
	for i, n := range a.names {
		a.index[n] = i
	}
	return a
}

// Vec reads the amounts of l. Resources that l lacks are zero; resources without an axis are dropped.
func (a Axes) Vec(l corev1.ResourceList) Vec {
	v := make(Vec, len(a.names))
	a.Read(l, v)
	return v
}

// Len is the number of axes, which is the length of each Vec.
func (a Axes) Len() int { return len(a.names) }

// Name is the resource of an axis.
func (a Axes) Name(i int) corev1.ResourceName { return a.names[i] }

// All are the resources in the order of the axes. The caller must not change them.
func (a Axes) All() []corev1.ResourceName { return a.names }

// IndexOf is the axis of a resource, which must have one.
func (a Axes) IndexOf(name corev1.ResourceName) int { return a.index[name] }

// Lookup is the axis of a resource, if it has one.
func (a Axes) Lookup(name corev1.ResourceName) (int, bool) {
	i, ok := a.index[name]
	return i, ok
}

// Read is Vec into a zeroed v.
func (a Axes) Read(l corev1.ResourceList, v Vec) {
	for name, q := range l {
		if i, ok := a.index[name]; ok {
			v[i] = quantity.Of(name, q)
		}
	}
}
