package cloudprovider

import "testing"

func TestBatchSlot(t *testing.T) {
	want := Ticket{Launch: "a1b2", Place: 3, Of: 5}
	if got, ok := ParseTicket(want.String()); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, s := range []string{"", Unlaunched, "a1b2", "a1b2/3", "/3/5", "a1b2/5/5", "a1b2/-1/5", "a1b2/x/5", "a1b2/3/5/7"} {
		if got, ok := ParseTicket(s); ok {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
}
