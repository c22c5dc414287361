package orders_test

import (
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/orders"
)

// shelf holds so much in all. Items are placed by first fit; each has a size.
func shelf(room int, classes, sizes []int) orders.Problem {
	p := orders.Problem{
		Classes: classes, Left: make([]bool, len(sizes)),
		Choices: func(int) int { return 1 }, Required: func(int) bool { return false }, Stopped: func() bool { return false },
	}
	p.Try = func(order []int, _ int) (left []int, steps int) {
		free := room
		for _, item := range order {
			if sizes[item] <= free {
				free -= sizes[item]
			} else {
				left = append(left, item)
			}
		}
		return left, len(order)
	}
	all := make([]int, len(sizes))
	for i := range all {
		all[i] = i
	}
	left, _ := p.Try(all, 0)
	for _, item := range left {
		p.Left[item] = true
	}
	return p
}

func TestSearchFindsAnOrderThatLeavesFewer(t *testing.T) {
	for _, c := range []struct {
		name           string
		room           int
		classes, sizes []int
		left           int
	}{
		{"six different items: all orders", 10, []int{0, 1, 2, 3, 4, 5}, []int{10, 2, 2, 2, 2, 2}, 1},
		{"two classes: all orders of classes", 10, []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
		{"eight classes: the items that are left first", 8, []int{0, 1, 2, 3, 4, 5, 6, 7, 7}, []int{8, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
	} {
		p := shelf(c.room, c.classes, c.sizes)
		got := orders.Search(p, 0)
		if got.Left != c.left {
			t.Errorf("%s: %d are left, want %d", c.name, got.Left, c.left)
			continue
		}
		left, _ := p.Try(got.Best, 0)
		sorted := slices.Sorted(slices.Values(got.Best))
		if len(left) != c.left || len(sorted) != len(c.sizes) || sorted[len(sorted)-1] != len(c.sizes)-1 {
			t.Errorf("%s: the best order %v leaves %v", c.name, got.Best, left)
		}
	}
}

func TestSearchWithoutABetterOrder(t *testing.T) {
	got := orders.Search(shelf(10, []int{0, 1}, []int{10, 10}), 0)
	if got.Best != nil || got.Left != 1 || got.Steps != 4 {
		t.Errorf("%+v: both orders leave one item", got)
	}
}

// Neither a stop nor spent steps let the search go on.
func TestSearchEnds(t *testing.T) {
	for name, end := range map[string]func(p *orders.Problem){
		"stopped": func(p *orders.Problem) { p.Stopped = func() bool { return true } },
		"spent": func(p *orders.Problem) {
			try := p.Try
			p.Try = func(order []int, most int) ([]int, int) {
				left, _ := try(order, most)
				return left, most
			}
		},
	} {
		p, tries := shelf(10, []int{0, 1, 2}, []int{10, 10, 10}), 0
		end(&p)
		try := p.Try
		p.Try = func(order []int, most int) ([]int, int) {
			tries++
			return try(order, most)
		}
		if orders.Search(p, 0); tries != 1 {
			t.Errorf("%s: %d orders are tried", name, tries)
		}
	}
}
