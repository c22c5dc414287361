package resources

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

// Vec is an amount per axis in the units of package quantity: millicores for cpu, whole units for everything else.
// Amounts are not negative, except what is left of a room or a limit. Sums saturate at the largest number. Amounts that
// fit into a room can be added without saturation.
type Vec []int64

// Plus is v + o.
func (v Vec) Plus(o Vec) Vec {
	out := make(Vec, len(v))
	for i := range v {
		out[i] = quantity.Add(v[i], o[i])
	}
	return out
}

// Minus is v - o.
func (v Vec) Minus(o Vec) Vec {
	out := make(Vec, len(v))
	for i := range v {
		out[i] = quantity.Sub(v[i], o[i])
	}
	return out
}

// Fits reports whether a room holds v. A room that is overdrawn on any axis holds nothing.
func (v Vec) Fits(room Vec) bool {
	for i, x := range v {
		if room[i] < 0 || x > room[i] {
			return false
		}
	}
	return true
}

// TimesIn returns how many times the amounts fit into a room together; 0 if they are all 0, or do not fit once.
func (v Vec) TimesIn(room Vec) int {
	if !v.Fits(room) {
		return 0
	}
	least := int64(0)
	for i, amount := range v {
		if amount > 0 && (least == 0 || room[i]/amount < least) {
			least = room[i] / amount
		}
	}
	return int(least)
}

// FitsBeside is Fits for v on top of used.
//
// Invariant: used fits in room wherever room is not negative, so the subtraction cannot wrap around. No allocation:
// this is the innermost check of the search.
func (v Vec) FitsBeside(used, room Vec) bool {
	used, room = used[:len(v)], room[:len(v)]
	for i, x := range v {
		if room[i] < 0 || x > room[i]-used[i] {
			return false
		}
	}
	return true
}

// WithinSum is Within for a limit of a + b.
func (v Vec) WithinSum(a, b Vec) bool {
	for i, x := range v {
		if x-b[i] > a[i] {
			return false
		}
	}
	return true
}

// Within is Fits for limits: an overdrawn limit refuses only resources that it counts.
func (v Vec) Within(limit Vec) bool {
	for i, x := range v {
		if x > limit[i] {
			return false
		}
	}
	return true
}

// Max is the larger amount on each axis.
func (v Vec) Max(o Vec) Vec {
	out := slices.Clone(v)
	for i, x := range o {
		out[i] = max(out[i], x)
	}
	return out
}
