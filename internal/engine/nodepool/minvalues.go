package nodepool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// MinValuesShortfall returns, by key, how many values the types in list have of each key with minValues that they do
// not reach. The length is that of the shortest prefix that reaches all of them.
func (t *Template) MinValuesShortfall(reqs requirement.Set, list []Candidate) (missed map[string]int, length int) {
	seen := map[string]map[string]bool{}
	wanted := map[string]int{}
	for _, r := range reqs.All() {
		if r.MinValues() > 0 {
			wanted[r.Key()], seen[r.Key()] = r.MinValues(), map[string]bool{}
		}
	}
	for i, c := range list {
		for key := range wanted {
			for _, v := range t.types[c.Type].Requirements.Get(key).Values() {
				if reqs.Get(key).Has(v) {
					seen[key][v] = true
				}
			}
		}
		length = i + 1
		if reached(wanted, seen) {
			return nil, length
		}
	}
	missed = map[string]int{}
	for key, n := range wanted {
		if len(seen[key]) < n {
			missed[key] = len(seen[key])
		}
	}
	return missed, length
}

func reached(wanted map[string]int, seen map[string]map[string]bool) bool {
	for key, n := range wanted {
		if len(seen[key]) < n {
			return false
		}
	}
	return true
}

// DescribeShortfall is the message of a shortfall.
func DescribeShortfall(reqs requirement.Set, missed map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		parts = append(parts, fmt.Sprintf("%d values of %s instead of at least %d", missed[key], key, reqs.Get(key).MinValues()))
	}
	return "too few instance types are left to choose from: " + strings.Join(parts, ", ")
}

// Unusable lists, with the reason, each pool that has no instance types under its own requirements, or too few for
// its minValues, unless these may be lowered (policy BestEffort).
func (m *Models) Unusable(bestEffort bool) []rejection.Reason {
	var out []rejection.Reason
	for _, t := range m.All() {
		if t.unusable.Code != "" {
			out = append(out, t.unusable)
			continue
		}
		if bestEffort || !t.reqs.HasMinValues() {
			continue
		}
		all := make([]Candidate, len(t.types))
		for i := range all {
			all[i].Type = i
		}
		if missed, _ := t.MinValuesShortfall(t.reqs, all); len(missed) > 0 {
			out = append(out, rejection.Reason{Code: rejection.MinValues, NodePool: t.pool.Name, Message: DescribeShortfall(t.reqs, missed)})
		}
	}
	return out
}
