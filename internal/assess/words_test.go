package assess

import "testing"

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		amount         float64
		hourly, a30day string
	}{
		{0, "$0.0000", "$0.00"},
		{0.00004, "$0.0000", "$0.00"},
		{-0.001, "-$0.0010", "$0.00"},
		{1.5, "$1.5000", "$1.50"},
		{99.994, "$99.99", "$99.99"},
		{1234.5, "$1,234.50", "$1,235"},
		{-1234567.8, "-$1,234,567.80", "-$1,234,568"},
	} {
		if got := perHour(c.amount); got != c.hourly {
			t.Errorf("%v per hour is %s, want %s", c.amount, got, c.hourly)
		}
		if got := PerMonth(c.amount); got != c.a30day {
			t.Errorf("%v per month is %s, want %s", c.amount, got, c.a30day)
		}
	}
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0.256: "26 %", -0.001: "0 %", -0.104: "-10 %", -1: "-100 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v is %s, want %s", share, got, want)
		}
	}
}

// Moves of a pass that only remove nodes are one row, with all nodes and savings; others stay apart.
func TestGroupedMoves(t *testing.T) {
	empty := func(pass int) Move {
		return Move{Pass: pass, Removed: []Node{{Name: "n"}}, HourlySavings: 1, MonthlySavings: 730}
	}
	moves := []Move{empty(1), empty(1), {Pass: 1, Evictions: 3, Removed: []Node{{}}}, empty(1), empty(2)}
	got := grouped(moves)
	if len(got) != 4 || len(got[0].Removed) != 2 || got[0].HourlySavings != 2 || len(moves[0].Removed) != 1 {
		t.Errorf("%d rows: %+v", len(got), got)
	}
}
