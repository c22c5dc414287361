package policy

import (
	"os"
	"strings"
	"testing"
)

// docs/aws.md lists the statements, in their order.
func TestStatementsAreDocumented(t *testing.T) {
	d, err := New(shop)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(text)
	for _, s := range d {
		_, after, found := strings.Cut(rest, "\n| `"+s.Sid+"` | ")
		if !found {
			t.Errorf("docs/aws.md has no row for %s, or not in this place", s.Sid)
			continue
		}
		rest = after
	}
	if strings.Contains(rest, "| `Allow") {
		t.Error("docs/aws.md has rows for statements that there are not")
	}
}
