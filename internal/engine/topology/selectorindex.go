package topology

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selectorIndex finds the selectors, by number, that may match given labels, without evaluating all of them.
type selectorIndex struct {
	byValue map[string]map[string][]int // selectors that need one of some values of a label
	byKey   map[string][]int            // selectors that need a label
	any     []int                       // all others
}

func (l *selectorIndex) add(i int, s labels.Selector) {
	if l.byValue == nil {
		l.byValue, l.byKey = map[string]map[string][]int{}, map[string][]int{}
	}
	reqs, selectable := s.Requirements()
	if !selectable {
		return // it matches nothing
	}
	for k := range reqs {
		switch reqs[k].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			key := reqs[k].Key()
			if l.byValue[key] == nil {
				l.byValue[key] = map[string][]int{}
			}
			for v := range reqs[k].Values() {
				l.byValue[key][v] = append(l.byValue[key][v], i)
			}
			return
		}
	}
	for k := range reqs {
		switch reqs[k].Operator() {
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			l.byKey[reqs[k].Key()] = append(l.byKey[reqs[k].Key()], i)
			return
		}
	}
	l.any = append(l.any, i)
}

// find calls is with the number of each selector that may match, until it returns true.
func (l *selectorIndex) find(set map[string]string, is func(i int) bool) bool {
	for key, value := range set {
		if slices.ContainsFunc(l.byValue[key][value], is) || slices.ContainsFunc(l.byKey[key], is) {
			return true
		}
	}
	return slices.ContainsFunc(l.any, is)
}
