package spelling_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

func TestNearest(t *testing.T) {
	known := []string{"NodeRepair", "NodeOverlay", "m5.large"}
	for _, tt := range []struct {
		word string
		most int
		want string
	}{
		{"NodeRepair", 2, "NodeRepair"},
		{"noderepair", 0, "NodeRepair"},
		{"NodeRepiar", 2, "NodeRepair"},
		{"NodeRepiar", 1, ""},
		{"m5.larg", 2, "m5.large"},
		{"Unheard", 2, ""},
		{"", 9, ""},
	} {
		if got := spelling.Nearest(tt.word, known, tt.most); got != tt.want {
			t.Errorf("%q within %d: %q, want %q", tt.word, tt.most, got, tt.want)
		}
	}
}
