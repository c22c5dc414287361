package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestLinesOfParallelScenariosHaveTheirName(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	var scenarios sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		scenarios.Go(func() {
			w := &prefixWriter{mu: &mu, out: &out, prefix: name + " │ "}
			for i := range 100 {
				fmt.Fprintf(w, "step %d of %s\n  a note of %s\n", i, name, name)
			}
		})
	}
	scenarios.Wait()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 400 {
		t.Fatalf("%d lines, want 400", len(lines))
	}
	for i, line := range lines {
		name, rest, _ := strings.Cut(line, " │ ")
		if !strings.HasSuffix(rest, " of "+name) {
			t.Errorf("line %d: %q", i, line)
		}
		if strings.HasPrefix(rest, "step") && (i+1 == len(lines) || lines[i+1] != name+" │   a note of "+name) {
			t.Errorf("line %d: %q is separated from its note", i, line)
		}
	}
}
