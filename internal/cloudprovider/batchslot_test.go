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
