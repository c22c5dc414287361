package deletioncost

import (
	"math"
	"slices"
	"sort"
)

// lowest is the least value that a ReplicaSet reads.
const lowest = int64(math.MinInt32)

// chooseValues returns a value for each group of pods, strictly increasing, all below 0 if other pods stay, since these
// have none, which counts as 0; otherwise the last may be 0. Of all such values they are those that the most pods have
// already.
//
// A value v of group i and a later one w of group j leave room for the groups between them if w-v >= j-i, or if v-i <=
// w-j: the values to keep are a heaviest non-decreasing subsequence of value minus position (Fredman, "On computing the
// length of longest increasing subsequences", 1975; a Fenwick tree takes the weights). Groups that keep none get values
// spread evenly between their neighbors, so that later insertions seldom move others. It costs O(p log p) for p pods.
func chooseValues(groups [][]placed, othersStay, leaving bool) []int64 {
	n := len(groups)
	out := make([]int64, n)
	below := int64(n - 1) // the last group may have 0
	if othersStay {
		below = int64(n)
	}
	keep := heaviest(keepable(groups, below))
	fixed := []fixedValue{{-1, lowest - 1}}
	if leaving && (len(keep) == 0 || keep[0].group > 0) {
		fixed = append(fixed, fixedValue{0, lowest})
	}
	for _, k := range keep {
		fixed = append(fixed, fixedValue{k.group, k.value})
	}
	if end := int(below); fixed[len(fixed)-1].group < end {
		fixed = append(fixed, fixedValue{end, 0})
	}
	for i := 1; i < len(fixed); i++ {
		a, b := fixed[i-1], fixed[i]
		for g := a.group + 1; g < min(b.group+1, n); g++ {
			out[g] = a.value + (b.value-a.value)*int64(g-a.group)/int64(b.group-a.group)
		}
	}
	return out
}

// fixedValue is the value of one group, by its position.
type fixedValue struct {
	group int
	value int64
}

// option is a value that some pods of a group have.
type option struct {
	fixedValue
	pods int
}

// keepable returns the values that could stay: those that leave room below 0 for the later groups, and above the lowest
// for the earlier ones. They are in the order of the groups, and within one in descending order, so that a
// non-decreasing subsequence of value minus position has at most one of each group.
func keepable(groups [][]placed, below int64) []option {
	var out []option
	for i, pods := range groups {
		count := map[int64]int{}
		for _, p := range pods {
			if p.value <= int64(i)-below && p.value >= lowest+int64(i) {
				count[p.value]++
			}
		}
		first := len(out)
		for value, n := range count {
			out = append(out, option{fixedValue{i, value}, n})
		}
		slices.SortFunc(out[first:], func(a, b option) int { return int(b.value - a.value) })
	}
	return out
}

// heaviest returns the subsequence with non-decreasing value minus position that has the most pods.
func heaviest(options []option) []option {
	keys := make([]int64, len(options))
	for i, o := range options {
		keys[i] = o.value - int64(o.group)
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	// best[k] is the index+1 of the option that stops the heaviest subsequence, over a range of keys that finishes at k.
	best, weight, before := make([]int, len(sorted)+1), make([]int, len(options)+1), make([]int, len(options)+1)
	for i, o := range options {
		k := sort.Search(len(sorted), func(j int) bool { return sorted[j] >= keys[i] }) + 1
		last := 0
		for j := k; j > 0; j -= j & -j {
			if weight[best[j]] > weight[last] {
				last = best[j]
			}
		}
		weight[i+1], before[i+1] = weight[last]+o.pods, last
		for j := k; j < len(best); j += j & -j {
			if weight[i+1] > weight[best[j]] {
				best[j] = i + 1
			}
		}
	}
	end := 0
	for i := range weight {
		if weight[i] > weight[end] {
			end = i
		}
	}
	var out []option
	for ; end > 0; end = before[end] {
		out = append(out, options[end-1])
	}
	slices.Reverse(out)
	return out
}
