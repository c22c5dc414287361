// Package quantity converts resource quantities into numbers without ever wrapping around.
//
// The API server accepts quantities that no int64 holds: 10P of cpu is 10^19 thousandths, and an exponent may have ten
// digits. Quantity.MilliValue and Value then return zero or an arbitrary number, and its Add and Cmp may write out
// millions of digits. Here such an amount saturates at the largest number: it fits nowhere, and a limit of it never
// restricts anything.
package quantity

import (
	"math"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Max and Min are the results for larger and smaller amounts.
const (
	Max = math.MaxInt64
	Min = -math.MaxInt64
)

// exact is the amount below which float64 arithmetic rules out an overflow, in thousandths too: 10^15 * 1,000 is below
// 2^63, with a margin far above the relative error of 2^-53.
const exact = 1e15

// digits sets how many decimal digits an int64 has at most.
const digits = 19

// Of is the amount in the engine's unit: millicores for cpu, whole units for everything else. It rounds away from zero.
func Of(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return Milli(q)
	}
	return Value(q)
}

// Value is the amount in whole units, rounded away from zero.
func Value(q resource.Quantity) int64 { return scaled(q, 0) }

// Milli is the amount in thousandths, rounded away from zero.
func Milli(q resource.Quantity) int64 { return scaled(q, resource.Milli) }

func scaled(q resource.Quantity, scale resource.Scale) int64 {
	if q.IsZero() { // whatever its exponent: ScaledValue would divide it out digit by digit
		return 0
	}
	if math.Abs(q.AsApproximateFloat64()) < exact { // and not NaN
		return q.ScaledValue(scale)
	}
	d := q.AsDec() // of a copy
	unscaled := new(big.Int).Set(d.UnscaledBig())
	end := Max
	if unscaled.Sign() < 0 {
		end = Min
	}
	// The number is unscaled * 10^shift.
	shift := -int64(d.Scale()) - int64(scale)
	length := int64(float64(unscaled.BitLen())*math.Log10(2)) + 1
	switch {
	case length+shift > digits+1:
		return int64(end)
	case length+shift < -1:
		return int64(unscaled.Sign())
	case shift >= 0:
		unscaled.Mul(unscaled, power(shift))
	default:
		var rest big.Int
		unscaled.QuoRem(unscaled, power(-shift), &rest)
		unscaled.Add(unscaled, big.NewInt(int64(rest.Sign())))
	}
	if !unscaled.IsInt64() || unscaled.Int64() < Min {
		return int64(end)
	}
	return unscaled.Int64()
}

func power(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// Exact reports whether the quantity is n of the engine's units: nothing finer, and not beyond Max.
func Exact(name corev1.ResourceName, q resource.Quantity, n int64) bool {
	if n >= Max || n <= Min {
		return false
	}
	if name == corev1.ResourceCPU {
		return q.Cmp(*resource.NewMilliQuantity(n, q.Format)) == 0
	}
	return q.CmpInt64(n) == 0
}

// New is n of the engine's units.
func New(name corev1.ResourceName, n int64, format resource.Format) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(n, format)
	}
	return *resource.NewQuantity(n, format)
}

// Clamp limits the amount to Min and Max, so that it can be added and compared at low cost.
func Clamp(q resource.Quantity) resource.Quantity {
	if within(q) {
		return q
	}
	return *resource.NewQuantity(Value(q), resource.DecimalSI)
}

// within reports whether the amount is one that Clamp returns unchanged.
func within(q resource.Quantity) bool {
	about := q.AsApproximateFloat64()
	if q.IsZero() {
		return !math.IsNaN(about) // zero with an exponent that would be divided out digit by digit
	}
	if math.Abs(about) < exact {
		return true
	}
	n := Value(q)
	return n != Max && n != Min
}

// Fits reports whether there is room for the requests: a resource that room does not name is zero.
func Fits(requests, room corev1.ResourceList) bool {
	for name, requested := range requests {
		if has := room[name]; requested.Cmp(has) > 0 {
			return false
		}
	}
	return true
}

// ClampList applies Clamp to each amount. It returns the same list if nothing changes.
func ClampList(list corev1.ResourceList) corev1.ResourceList {
	if Bounded(list) {
		return list
	}
	out := make(corev1.ResourceList, len(list))
	for name, q := range list {
		out[name] = Clamp(q)
	}
	return out
}

// AddTo adds the list to total. They do not share memory afterwards, since Quantity.Add may write to what it adds to.
func AddTo(total, list corev1.ResourceList) {
	for name, q := range list {
		sum := total[name].DeepCopy()
		sum.Add(Clamp(q))
		total[name] = sum
	}
}

// Add is a + b, Max or Min where that is beyond them.
func Add(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return Max
	case a < 0 && b < 0 && sum >= 0:
		return Min
	}
	return max(sum, Min)
}

// Sub is a - b, Max or Min where that is beyond them.
func Sub(a, b int64) int64 { return Add(a, -max(b, Min)) }

// Mul is a * b, Max or Min where that is beyond them.
func Mul(a, b int64) int64 {
	a, b = max(a, Min), max(b, Min)
	if a == 0 || b == 0 {
		return 0
	}
	if p := a * b; p/b == a && p >= Min {
		return p
	}
	if (a < 0) != (b < 0) {
		return Min
	}
	return Max
}

// ClampPod applies Clamp to every amount that the pod's requests are computed from. It returns the same pod if
// nothing changes.
func ClampPod(pod *corev1.Pod) *corev1.Pod {
	if !slices.ContainsFunc(lists(pod), func(l *corev1.ResourceList) bool { return !Bounded(*l) }) {
		return pod
	}
	out := pod.DeepCopy()
	for _, l := range lists(out) {
		*l = ClampList(*l)
	}
	return out
}

// Bounded reports whether ClampList returns the list unchanged.
func Bounded(list corev1.ResourceList) bool {
	for _, q := range list {
		if !within(q) {
			return false
		}
	}
	return true
}

// lists are the resource lists of a pod that count towards its requests.
func lists(pod *corev1.Pod) []*corev1.ResourceList {
	var out []*corev1.ResourceList
	of := func(r *corev1.ResourceRequirements) {
		if r != nil {
			out = append(out, &r.Requests, &r.Limits)
		}
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			of(&containers[i].Resources)
		}
	}
	of(pod.Spec.Resources)
	of(pod.Status.Resources)
	for _, statuses := range [...][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			of(statuses[i].Resources)
			out = append(out, &statuses[i].AllocatedResources)
		}
	}
	return append(out, &pod.Spec.Overhead, &pod.Status.AllocatedResources)
}
