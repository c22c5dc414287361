// Package requirement is the algebra of label constraints.
//
// A Requirement defines which values one label may have. A Set holds at most one Requirement per key and means their
// conjunction. Both are values: no operation changes its operands, so snapshots, plans and goroutines can share them.
//
// Everything that constrains or describes a node has this one form: node selectors and affinity of pods, requirements
// of NodePools, labels of nodes, instance types and their offerings, topologies of volumes. Labels parses these from
// API objects, because the meaning of a key (its aliases, whether it is well-known) is data that the caller provides.
package requirement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Requirement constrains the value of one label.
//
// Invariants: values is sorted and without duplicates. A concrete requirement (complement false) has no bounds; all its
// values satisfy them. With both bounds, min <= max. Bounds are not negative, since no label value begins with a minus,
// and leave at least one integer that is not excluded.
type Requirement struct {
	key    string
	values []string
	// Inclusive integer bounds; with either, values that are not integers are excluded. Only on complements.
	min, max  int64
	minValues int
	// The flags are together at the end: of each of 5,000 nodes, a plan has a Requirement per label.

	// complement is true if values are the excluded ones, false if they are the only allowed ones.
	complement bool
	// present is true when the label must exist. On complements it distinguishes "Exists and not a" from "not a", which
	// a node without the label satisfies too. On an empty list it distinguishes what nothing satisfies from
	// DoesNotExist. It is false on a list of values.
	present        bool
	hasMin, hasMax bool
}

// In allows exactly the given values; without values it is DoesNotExist.
func In(key string, values ...string) Requirement {
	return Requirement{key: key, values: sortedUnique(values)}
}

// NotIn allows every value except the given ones, and the absence of the label.
func NotIn(key string, values ...string) Requirement {
	return Requirement{key: key, complement: true, values: sortedUnique(values), present: len(values) == 0}
}

// Exists allows every value.
func Exists(key string) Requirement { return Requirement{key: key, complement: true, present: true} }

// DoesNotExist allows only the absence of the label.
func DoesNotExist(key string) Requirement { return Requirement{key: key} }

// nothing is satisfied by no node, with or without the label.
func nothing(key string) Requirement { return Requirement{key: key, present: true} }

// AtLeast allows integers n and above; with a negative n, all integers that a label can have.
func AtLeast(key string, n int64) Requirement {
	return Requirement{key: key, complement: true, present: true, min: max(n, 0), hasMin: true}
}

// AtMost allows integers n and below; with a negative n, none that a label can have.
func AtMost(key string, n int64) Requirement {
	if n < 0 {
		return nothing(key)
	}
	return Requirement{key: key, complement: true, present: true, max: n, hasMax: true}
}

// New parses key, operator and values of an API object. It rejects an unknown operator, In or NotIn without values, and
// a bound that is not exactly one integer.
func New(key string, op corev1.NodeSelectorOperator, values ...string) (Requirement, error) {
	switch op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(values) == 0 {
			return Requirement{}, fmt.Errorf("label %q: operator %s needs at least one value", key, op)
		}
		if op == corev1.NodeSelectorOpIn {
			return In(key, values...), nil
		}
		return NotIn(key, values...), nil
	case corev1.NodeSelectorOpExists:
		return Exists(key), nil
	case corev1.NodeSelectorOpDoesNotExist:
		return DoesNotExist(key), nil
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
		return newBound(key, op, values)
	default:
		return Requirement{}, fmt.Errorf("label %q: unknown operator %q", key, op)
	}
}

func newBound(key string, op corev1.NodeSelectorOperator, values []string) (Requirement, error) {
	if len(values) != 1 {
		return Requirement{}, fmt.Errorf("label %q: operator %s needs exactly one value, has %d", key, op, len(values))
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return Requirement{}, fmt.Errorf("label %q: operator %s needs an integer, has %q", key, op, values[0])
	}
	switch {
	case op == corev1.NodeSelectorOpGt && n == math.MaxInt64:
		return nothing(key), nil
	case op == corev1.NodeSelectorOpGt:
		return AtLeast(key, n+1), nil
	case op == corev1.NodeSelectorOpLt:
		return AtMost(key, max(n, 0)-1), nil
	case op == karpv1.OperatorGte:
		return AtLeast(key, n), nil
	default:
		return AtMost(key, n), nil
	}
}

// WithMinValues returns r with the minimum number of distinct values that must stay possible. Zero means none.
func (r Requirement) WithMinValues(n int) Requirement {
	r.minValues = n
	return r
}

// Key is the label's name.
func (r Requirement) Key() string { return r.key }

// MinValues is the minimum number of distinct values that must stay possible, 0 if there is none.
func (r Requirement) MinValues() int { return r.minValues }

// Values returns those allowed (operator In) or excluded (NotIn), sorted. The caller must not modify them.
func (r Requirement) Values() []string { return r.values }

// ListedValues are the only values that the label may have; nil if it may have any but some.
func (r Requirement) ListedValues() []string {
	if r.complement {
		return nil
	}
	return r.values
}

// Bounds returns the inclusive integer bounds; nil means unbounded.
func (r Requirement) Bounds() (lowest, highest *int64) {
	if r.hasMin {
		lowest = &r.min
	}
	if r.hasMax {
		highest = &r.max
	}
	return lowest, highest
}

// Operator is the one of In, NotIn, Exists and DoesNotExist that describes r best; bounds do not show in it. A
// contradiction is described as DoesNotExist; see Impossible.
func (r Requirement) Operator() corev1.NodeSelectorOperator {
	switch {
	case r.complement && len(r.values) > 0:
		return corev1.NodeSelectorOpNotIn
	case r.complement:
		return corev1.NodeSelectorOpExists
	case len(r.values) > 0:
		return corev1.NodeSelectorOpIn
	default:
		return corev1.NodeSelectorOpDoesNotExist
	}
}

// AllowsAbsent reports whether a node without the label satisfies r.
func (r Requirement) AllowsAbsent() bool {
	if r.complement {
		return !r.present
	}
	return len(r.values) == 0 && !r.present
}

// Impossible reports whether r is a contradiction: no node satisfies it, with or without the label.
func (r Requirement) Impossible() bool { return !r.complement && len(r.values) == 0 && r.present }

// Has reports whether the label may have this value.
func (r Requirement) Has(value string) bool {
	_, listed := slices.BinarySearch(r.values, value)
	return listed != r.complement && r.inBounds(value)
}

func (r Requirement) inBounds(value string) bool {
	if !r.hasMin && !r.hasMax {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (!r.hasMin || n >= r.min) && (!r.hasMax || n <= r.max)
}

// Single returns the only value that the label may have, if there is exactly one.
func (r Requirement) Single() (string, bool) {
	if r.complement || len(r.values) != 1 {
		return "", false
	}
	return r.values[0], true
}

// Example returns one value that satisfies r: the first listed, or the smallest natural number
// within the bounds that is not excluded. It is false when the label must not exist.
func (r Requirement) Example() (string, bool) {
	if !r.complement {
		if len(r.values) == 0 {
			return "", false
		}
		return r.values[0], true
	}
	n := int64(0)
	if r.hasMax && r.max < 0 {
		n = r.max - int64(len(r.values))
	}
	if r.hasMin && r.min > n {
		n = r.min
	}
	for range len(r.values) + 1 {
		if s := strconv.FormatInt(n, 10); r.Has(s) {
			return s, true
		}
		if n == math.MaxInt64 {
			break
		}
		n++
	}
	return "", false
}

// Intersect returns the requirement that allows what both allow. Keys must be equal; the result has r's.
func (r Requirement) Intersect(o Requirement) Requirement {
	out := Requirement{key: r.key, minValues: max(r.minValues, o.minValues), complement: r.complement && o.complement}
	out.min, out.hasMin, out.max, out.hasMax = commonBounds(r, o)
	if out.hasMin && out.hasMax && out.min > out.max {
		return nothing(r.key).WithMinValues(out.minValues)
	}
	if out.complement {
		out.present = r.present || o.present
		out.values = out.bounded(union(r.values, o.values))
		if out.exhausted() {
			return nothing(r.key).WithMinValues(out.minValues)
		}
		return out
	}
	concrete, other := r, o
	if concrete.complement {
		concrete, other = o, r
	}
	if subset(concrete.values, other.Has) {
		out.values = concrete.values
	} else {
		out.values = filter(concrete.values, other.Has)
	}
	out.min, out.hasMin, out.max, out.hasMax = 0, false, 0, false
	out.present = len(out.values) == 0 && !(r.AllowsAbsent() && o.AllowsAbsent())
	return out
}

// exhausted reports whether every integer within the bounds is excluded. Other spellings of an excluded integer, with
// leading zeros, do not count: nodes do not get them.
func (r Requirement) exhausted() bool {
	if !r.hasMin && !r.hasMax {
		return false
	}
	lowest, highest := int64(0), int64(math.MaxInt64)
	if r.hasMin {
		lowest = r.min
	}
	if r.hasMax {
		highest = r.max
	}
	if highest-lowest >= int64(len(r.values)) {
		return false
	}
	for n := range highest - lowest + 1 {
		if r.Has(strconv.FormatInt(lowest+n, 10)) {
			return false
		}
	}
	return true
}

// bounded drops excluded values that the bounds exclude anyway.
func (r Requirement) bounded(values []string) []string {
	if !r.hasMin && !r.hasMax {
		return values
	}
	return filter(values, r.inBounds)
}

func commonBounds(a, b Requirement) (lo int64, hasLo bool, hi int64, hasHi bool) {
	lo, hasLo = a.min, a.hasMin
	if b.hasMin && (!hasLo || b.min > lo) {
		lo, hasLo = b.min, true
	}
	hi, hasHi = a.max, a.hasMax
	if b.hasMax && (!hasHi || b.max < hi) {
		hi, hasHi = b.max, true
	}
	return lo, hasLo, hi, hasHi
}

// Overlaps reports whether some value satisfies both. Absence is not a value.
func (r Requirement) Overlaps(o Requirement) bool {
	if r.complement && o.complement {
		if _, hasLo, _, hasHi := commonBounds(r, o); !hasLo && !hasHi {
			return true
		}
		return r.Intersect(o).complement
	}
	concrete, other := r, o
	if concrete.complement || (!other.complement && len(other.values) < len(concrete.values)) {
		concrete, other = o, r
	}
	return slices.ContainsFunc(concrete.values, other.Has)
}

// Agrees reports whether a node can satisfy both, with or without the label.
func (r Requirement) Agrees(o Requirement) bool {
	return (r.AllowsAbsent() && o.AllowsAbsent()) || r.Overlaps(o)
}

// Equal reports whether r and o are the same requirement, minValues included.
func (r Requirement) Equal(o Requirement) bool {
	return r.key == o.key && r.complement == o.complement && r.present == o.present && r.minValues == o.minValues &&
		r.hasMin == o.hasMin && r.hasMax == o.hasMax && r.min == o.min && r.max == o.max && slices.Equal(r.values, o.values)
}

// String is for people: "key In [a b]", "key Exists >=3 <=7".
func (r Requirement) String() string {
	var b strings.Builder
	b.WriteString(r.key + " " + string(r.Operator()))
	switch {
	case len(r.values) > 5:
		fmt.Fprintf(&b, " [%s and %d others]", strings.Join(r.values[:5], " "), len(r.values)-5)
	case len(r.values) > 0:
		fmt.Fprintf(&b, " [%s]", strings.Join(r.values, " "))
	}
	if r.hasMin {
		fmt.Fprintf(&b, " >=%d", r.min)
	}
	if r.hasMax {
		fmt.Fprintf(&b, " <=%d", r.max)
	}
	if r.minValues > 0 {
		fmt.Fprintf(&b, " minValues %d", r.minValues)
	}
	return b.String()
}

func sortedUnique(values []string) []string {
	if len(values) == 0 {
		return nil
	}
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}

func union(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return sortedUnique(slices.Concat(a, b))
}

func subset(values []string, keep func(string) bool) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !keep(v) })
}

func filter(values []string, keep func(string) bool) []string {
	var out []string
	for _, v := range values {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
