package scenario

import (
	"fmt"
	"testing"
)

func TestSeedsAreDividedAmongWorlds(t *testing.T) {
	for _, tt := range []struct {
		mixes  Seeds
		worlds int
		want   string
	}{
		{Seeds{First: 1, Count: 200}, 3, "[{1 67} {68 67} {135 66}]"},
		{Seeds{First: 7, Count: 4}, 1, "[{7 4}]"},
		{Seeds{First: 7, Count: 2}, 3, "[{7 1} {8 1}]"},
	} {
		if got := fmt.Sprint(tt.mixes.split(tt.worlds)); got != tt.want {
			t.Errorf("%+v in %d worlds: got %s, want %s", tt.mixes, tt.worlds, got, tt.want)
		}
	}
}
