package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each declared function counts its calls under the name of its package and receiver. Literals and declarations without a
// body do not, and files without functions stay as they are.
func TestFunctionsCountTheirCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.go")
	source := "package a\n\ntype list[T any] []T\n\nfunc (l *list[T]) len() int { return len(*l) }\n\n" +
		"func each(visit func()) { func() { visit() }() }\n\nfunc assembly()\n"
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := counted(path, "example.com/m/callwalk")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`import callwalk "example.com/m/callwalk"`, `defer callwalk.Enter("a.list.len", 1, 1)()`, `defer callwalk.Enter("a.each", 2, 0)()`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	if n := strings.Count(string(got), "Enter("); n != 2 {
		t.Errorf("%d functions count, want 2:\n%s", n, got)
	}
	if err := os.WriteFile(path, []byte("package a\n\nconst x = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := counted(path, "example.com/m/callwalk"); err != nil || strings.Contains(string(got), "import") {
		t.Errorf("a file without functions: %s, %v", got, err)
	}
}
