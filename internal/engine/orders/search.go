package orders

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxOrders is the number of orders up to which all are tried: those of six different items. Seven would be 5,040.
	maxOrders = 720
	// maxClassesInOrder is the number of classes of which all orders are tried: 720 again.
	maxClassesInOrder = 6
	// minSteps are steps that a search may take in any case.
	minSteps = 100_000
	// allOrdersSteps bounds the steps of trying all orders.
	allOrdersSteps = 10_000_000
)

// Problem is a queue of items, of which some are left.
type Problem struct {
	// Classes are the classes of the items, in the order of the queue. Items of one class are equal.
	Classes []int
	// Left marks the items that the queue's own order leaves.
	Left []bool
	// Choices returns how many choices an item has: those with few are tried first.
	Choices func(item int) int
	// Required marks the items that others follow.
	Required func(item int) bool
	// Try places items in an order by first fit, within so many steps. It returns the items that are left, in that order,
	// and the steps that it took.
	Try func(order []int, most int) (left []int, steps int)
	// Stopped reports whether the search is to end at once.
	Stopped func() bool
}

// Result is the best order that a search found.
type Result struct {
	// Best is the order, nil if none is better than the queue's; Left is how many items it leaves.
	Best []int
	Left int
	// Steps are the steps that the search has taken.
	Steps int
}

// search is the state of one Search.
type search struct {
	Problem
	items []int
	best  []int
	left  int
	// steps holds those taken, most limits how many it may take.
	steps, most int
}

// Search tries orders. It may take half as many steps as planning took, and a number of steps in any case.
func Search(p Problem, planned int) Result {
	s := &search{Problem: p, items: make([]int, len(p.Classes))}
	for i := range s.items {
		s.items[i] = i
		if p.Left[i] {
			s.left++
		}
	}
	units := s.byClass()
	if few(units) {
		s.most = allOrdersSteps
		s.permute(units, make([]int, 0, len(s.items)))
		return Result{s.best, s.left, s.steps}
	}
	s.most = max(minSteps, planned/2)
	if len(units) <= maxClassesInOrder {
		whole := make([]unitList, len(units))
		for i, u := range units {
			whole[i] = unitList{slices.Concat(u...)}
		}
		s.permute(whole, make([]int, 0, len(s.items)))
	}
	s.better()
	return Result{s.best, s.left, s.steps}
}

// improve tries an order, and keeps it if it is better than the best. It returns what the order leaves.
func (s *search) improve(order []int) []int {
	left, steps := s.Try(order, max(1, s.most-s.steps))
	s.steps += steps
	if len(left) < s.left {
		s.best, s.left = slices.Clone(order), len(left)
	}
	return left
}

// done reports whether the search is over: nothing is left, or the steps are spent.
func (s *search) done() bool { return s.left == 0 || s.steps >= s.most || s.Stopped() }

// unitList are units of items that keep their order among each other: the items of one class, one by one or all at once.
type unitList [][]int

// byClass are the items by class, in the order of the first items, each item a unit.
func (s *search) byClass() []unitList {
	index := map[int]int{}
	var out []unitList
	for item, class := range s.Classes {
		i, known := index[class]
		if !known {
			i = len(out)
			index[class], out = i, append(out, nil)
		}
		out[i] = append(out[i], []int{item})
	}
	return out
}

// few reports whether the units have at most maxOrders distinct orders: the multinomial coefficient of their numbers.
func few(units []unitList) bool {
	orders, n := 1, 0
	for _, u := range units {
		for k := range u {
			n++
			if orders = orders * n / (k + 1); orders > maxOrders {
				return false
			}
		}
	}
	return true
}

// permute tries all orders that begin with prefix and go on with the units.
func (s *search) permute(units []unitList, prefix []int) {
	rest := false
	for i, u := range units {
		if len(u) == 0 {
			continue
		}
		rest = true
		units[i] = u[1:]
		s.permute(units, append(prefix, u[0]...))
		units[i] = u
		if s.done() {
			return
		}
	}
	if !rest {
		s.improve(prefix)
	}
}

// better tries a few orders that often place more, then improves the best one: items that are left go to the front
// (squeaky wheel optimization, Joslin and Clements 1999), and each class in turn to the end, until neither helps.
func (s *search) better() {
	for _, key := range []func(int) int{
		func(item int) int { return last(!s.Left[item]) },
		s.Choices,
		func(item int) int { return last(!s.Required(item)) },
	} {
		if s.squeak(sortedBy(s.items, key)); s.done() {
			return
		}
	}
	reversed := slices.Clone(s.items)
	slices.Reverse(reversed) // smallest first
	s.squeak(reversed)
	for before := math.MaxInt; s.left < before && !s.done(); {
		before = s.left
		s.postponeClasses()
	}
}

// maxSqueaks limits how often the items that an order leaves are moved to the front of it.
const maxSqueaks = 8

// squeak tries an order, then the same with the items that it leaves in front, and so on while that places more.
func (s *search) squeak(order []int) {
	fewest := math.MaxInt
	for range maxSqueaks {
		left := s.improve(order)
		if s.done() || len(left) >= fewest {
			return
		}
		fewest = len(left)
		squeaky := make(map[int]bool, len(left))
		for _, item := range left {
			squeaky[item] = true
		}
		order = sortedBy(order, func(item int) int { return last(!squeaky[item]) })
	}
}

// postponeClasses tries the best order with each of its classes at the end.
func (s *search) postponeClasses() {
	order := s.best
	if order == nil {
		order = s.items
	}
	for _, u := range s.byClass() {
		class := s.Classes[u[0][0]]
		if s.squeak(sortedBy(order, func(item int) int { return last(s.Classes[item] == class) })); s.done() {
			return
		}
	}
}

// last is a key that puts items last for which b is true.
func last(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sortedBy are the items by a key, and in their own order where the key is equal.
func sortedBy(items []int, key func(int) int) []int {
	keys := make(map[int]int, len(items))
	for _, item := range items {
		keys[item] = key(item)
	}
	out := slices.Clone(items)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	return out
}
