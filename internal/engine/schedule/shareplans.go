package schedule

import (
	"maps"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// turnOf is a number that differs from pass to pass, with remainders that are evenly spread however far passes are apart: each group, and
// each domain of it, has its turn again and again. It is a function of the snapshot's instant, so that a plan can be made again.
func turnOf(now time.Time) uint64 {
	// SplitMix64, by Sebastiano Vigna, over the seconds.
	x := uint64(now.Unix()) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sharePlans divides plans among groups that want some. Namespaces take turns, so that the groups of one tenant take none from those of
// another, and in each its groups do. Each group gets two, if there are as many: one for its most promising domain, and one for another.
// Where the plans do not suffice, the turn decides who begins.
//
// Cost: O(groups * most).
func sharePlans(groups []*snapshot.Group, wants func(*snapshot.Group) int, turn uint64, most int) map[*snapshot.Group]int {
	order := inTurn(slices.DeleteFunc(slices.Clone(groups), func(g *snapshot.Group) bool { return wants(g) == 0 }), turn)
	shares := map[*snapshot.Group]int{}
	for each := 2; most > 0; each = 1 {
		before := most
		for _, g := range order {
			n := min(each, wants(g)-shares[g], most)
			shares[g] += n
			most -= n
		}
		if most == before {
			break
		}
	}
	return shares
}

// inTurn are the groups in the order in which they get plans: one of each namespace, then another of each.
func inTurn(groups []*snapshot.Group, turn uint64) []*snapshot.Group {
	if len(groups) == 0 {
		return nil
	}
	byNamespace := map[string][]*snapshot.Group{}
	for _, g := range groups {
		byNamespace[g.Namespace] = append(byNamespace[g.Namespace], g)
	}
	names := slices.Sorted(maps.Keys(byNamespace))
	rotate(names, turn)
	for _, name := range names {
		rotate(byNamespace[name], turn/uint64(len(names)))
	}
	out := make([]*snapshot.Group, 0, len(groups))
	for i := 0; len(out) < len(groups); i++ {
		for _, name := range names {
			if list := byNamespace[name]; i < len(list) {
				out = append(out, list[i])
			}
		}
	}
	return out
}

// rotate has a list begin at another of its elements, by turn.
func rotate[T any](list []T, turn uint64) {
	at := int(turn % uint64(len(list)))
	copy(list, append(slices.Clone(list[at:]), list[:at]...))
}

// turnOver are n of a group's domains: the first of them, and others of which the turn decides. One alone is the first, or in every other
// pass another.
func turnOver(values []string, n int, turn uint64) []string {
	if n >= len(values) {
		return values
	}
	rest := slices.Clone(values[1:])
	rotate(rest, turn/2)
	if n == 1 && turn%2 == 1 {
		return rest[:1]
	}
	return append([]string{values[0]}, rest[:n-1]...)
}
