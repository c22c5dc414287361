package spelling_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// Inline is embedded in an object.
type Inline struct {
	First string `json:"first"`
}

// The fields of an object are found by its path, in their order, those that are inline as its own.
func TestFieldsAt(t *testing.T) {
	type inner struct {
		B string         `json:"b,omitempty"`
		M map[string]int `json:"m"`
	}
	type object struct {
		Inline `json:",inline"`
		List   []*inner `json:"list"`
		Hidden string   `json:"-"`
	}
	for path, want := range map[string][]string{
		"": {"first", "list"}, "list[3]": {"b", "m"}, "list": {"b", "m"}, "list.m": nil, "other": nil, "list.other": nil,
	} {
		if got := spelling.FieldsAt(reflect.TypeFor[object](), path); !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", path, got, want)
		}
	}
}
