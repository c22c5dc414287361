package savings

import (
	"fmt"
	"math"
	"testing"
	"time"
)

var midnight = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

func at(hours float64) time.Time { return midnight.Add(time.Duration(hours * float64(time.Hour))) }

func node(pool string, price, hours float64) Node { return Node{pool, price, at(hours)} }

func TestWhatCommandsSave(t *testing.T) {
	for name, c := range map[string]struct {
		events func(*Ledger)
		now    float64
		want   Amount
	}{
		"a removed node saves its price from its end on": {
			func(l *Ledger) { l.Finish(Command{ID: "a", Removed: []Node{node("p", 0.5, 1)}}) }, 3, Amount{0.5, 1},
		},
		"a replacement saves the difference, less what it cost beside the old node": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 0.5, 2)}, Launched: []Node{node("p", 0.2, 1)}})
			}, 4, Amount{0.3, 0.3*2 - 0.2},
		},
		"of several nodes, each counts from its own end on": {
			func(l *Ledger) { l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0), node("p", 2, 1)}}) }, 2, Amount{3, 2 + 2},
		},
		"a dearer replacement costs": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 0.2, 1)}, Launched: []Node{node("p", 0.5, 1)}})
			}, 2, Amount{-0.3, -0.3},
		},
		"commands that replace each other's nodes add up": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0)}, Launched: []Node{node("p", 0.6, 0)}})
				l.Finish(Command{ID: "b", Removed: []Node{node("p", 0.6, 1)}, Launched: []Node{node("p", 0.3, 1)}})
			}, 2, Amount{0.7, 0.4 + 0.7},
		},
		"a launch for pods ends as much as it costs": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0)}})
				l.Launch(node("p", 0.4, 1))
			}, 2, Amount{0.6, 1 + 0.6},
		},
		"and never more than all": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0)}})
				l.Launch(node("p", 5, 1))
			}, 3, Amount{0, 1},
		},
		"a launch in another pool ends nothing": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0)}})
				l.Launch(node("q", 5, 1))
			}, 3, Amount{1, 3},
		},
		"a launch does not make up for a dearer replacement": {
			func(l *Ledger) {
				l.Finish(Command{ID: "a", Removed: []Node{node("p", 0.2, 0)}, Launched: []Node{node("p", 0.5, 0)}})
				l.Launch(node("p", 1, 1))
			}, 2, Amount{-0.3, -0.6},
		},
	} {
		for _, compact := range []bool{false, true} {
			var l Ledger
			c.events(&l)
			if compact {
				l.Compact()
				l.Compact()
			}
			var got Amount
			for _, p := range l.Pools(at(c.now)) {
				got.add(p.Amount)
			}
			if !near(got, c.want) {
				t.Errorf("%s (compact: %v): %+v, want %+v", name, compact, got, c.want)
			}
		}
	}
}

func near(a, b Amount) bool {
	return math.Abs(a.Hourly-b.Hourly) < 1e-9 && math.Abs(a.Dollars-b.Dollars) < 1e-9
}

// A fleet that removes a node each evening and launches one each morning saves the nights only, however many there are.
func TestNodesThatComeAgainAreNotSavedTwice(t *testing.T) {
	var l Ledger
	for day := range 30 {
		l.Finish(Command{ID: fmt.Sprint(day), Removed: []Node{node("p", 1, float64(24*day+20))}})
		l.Launch(node("p", 1, float64(24*day+28)))
		l.Compact()
	}
	if got := l.Pools(at(24 * 31))[0]; !near(got.Amount, Amount{0, 30 * 8}) {
		t.Errorf("30 nights of 8 hours at $1/h saved %+v", got.Amount)
	}
}

func TestTheLatestCommandEndsFirst(t *testing.T) {
	var l Ledger
	l.Finish(Command{ID: "a", Removed: []Node{node("p", 1, 0)}})
	l.Finish(Command{ID: "b", Removed: []Node{node("p", 1, 1), node("q", 2, 1)}})
	l.Launch(node("p", 1, 2))
	got := l.Commands(at(3))
	if !near(got["a"], Amount{1, 3}) || !near(got["b"], Amount{2, 1 + 4}) {
		t.Errorf("%+v", got)
	}
}

func TestACompactLedgerIsSmall(t *testing.T) {
	var l Ledger
	for i := range 5 * most {
		l.Finish(Command{ID: fmt.Sprint(i), Removed: []Node{node("p", 1, 0)}})
		l.Compact()
	}
	if got := l.Pools(at(1))[0]; len(l.pools["p"]) > most+1 || !near(got.Amount, Amount{5 * most, 5 * most}) {
		t.Errorf("%d entries with %+v", len(l.pools["p"]), got)
	}
}

// A command counts only if all prices are known, of what it removes and of what it launches.
func TestACommandWithAnUnknownPriceDoesNotCount(t *testing.T) {
	large, small, unknown := Node{HourlyCost: 1}, Node{HourlyCost: 0.25}, Node{}
	c, counts := Finished("d", []Node{large, large}, []Node{small})
	if !counts || c.ID != "d" || c.Hourly() != 1.75 {
		t.Errorf("%+v, %v", c, counts)
	}
	for _, nodes := range [][2][]Node{{{large, unknown}, {small}}, {{large}, {small, unknown}}} {
		if c, counts := Finished("d", nodes[0], nodes[1]); counts {
			t.Errorf("%+v counts", c)
		}
	}
}
