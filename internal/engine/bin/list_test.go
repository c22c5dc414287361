package bin

import (
	"fmt"
	"testing"
)

func TestWalkKeepsTheOrderOfBins(t *testing.T) {
	w := walk{bins: []int32{1, 3, 5, 7, 9}, read: 3, kept: 1}
	if got := fmt.Sprint(w.rest()); got != "[1 7 9]" {
		t.Errorf("after dropping bins 3 and 5, the list is %s", got)
	}
	l := List{}
	list := l.find(&Refusal{view: 1, domain: "z1"})
	for _, bin := range []int32{4, 2, 9, 3} {
		l.insert(list, bin)
	}
	if got := fmt.Sprint(l.lists[l.find(&Refusal{view: 1, domain: "z1"})].bins); got != "[2 3 4 9]" {
		t.Errorf("bins are on the list as %s", got)
	}
	if l.find(&Refusal{view: 0, domain: "z1"}) == list || l.find(&Refusal{}) == list {
		t.Error("bins that refuse for different reasons are on one list")
	}
}
