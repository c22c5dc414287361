package cloudprovider

import "testing"

func TestBatchSlot(t *testing.T) {
	want := BatchSlot{Launch: "a1b2", Index: 3, Of: 5}
	if got, ok := ParseBatchSlot(want.String()); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, s := range []string{"", Unlaunched, "a1b2", "a1b2/3", "/3/5", "a1b2/5/5", "a1b2/-1/5", "a1b2/x/5", "a1b2/3/5/7"} {
		if got, ok := ParseBatchSlot(s); ok {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
}

func TestAlone(t *testing.T) {
	if got := ParseAlone(Alone(3)); got != 3 {
		t.Errorf("%d", got)
	}
	for _, s := range []string{"", Unlaunched, "alone/", "alone/0", "alone/-1", "alone/x", "alone/1/2", "3"} {
		if got := ParseAlone(s); got != 0 {
			t.Errorf("%q is read as %d", s, got)
		}
	}
	if _, ok := ParseBatchSlot(Alone(3)); ok {
		t.Error("a claim that is launched alone has a slot")
	}
}
