package propertytest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is decided, and the messages, into testdata; commit only what you understand")

// The digests in testdata hold for all decisions that these tests make: a change of the engine that must not change decisions
// changes none of them. A digest does not show what has changed. To see that, write the texts of the commit before, and then
// compare:
//
//	git stash; DOVETAIL_DECISIONS=/tmp/decisions go test ./internal/engine/propertytest -run Decisions
//	git stash pop; DOVETAIL_DECISIONS=/tmp/decisions go test ./internal/engine/propertytest -run Decisions
//
// The first run writes a text for each world, whether the digests match or not. The second one finds the texts, and names
// the first line of each that differs.
const decisionsVariable = "DOVETAIL_DECISIONS"

// digestLine has the name of a text, its length, and its digest. The text of a large plan has hundreds of megabytes, so it is
// in memory only if it is kept or compared.
func digestLine(t *testing.T, name string, write func(io.Writer)) string {
	t.Helper()
	if os.Getenv(decisionsVariable) != "" {
		keepOrCompare(t, name, textOf(write))
	}
	h := &hashed{Hash: sha256.New()}
	buffered := bufio.NewWriterSize(h, 1<<16)
	write(buffered)
	if err := buffered.Flush(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %d bytes %s", name, h.length, shortSum(h.Sum(nil)))
}

// hashed is a hash that counts the bytes.
type hashed struct {
	hash.Hash
	length int
}

func (h *hashed) Write(p []byte) (int, error) {
	h.length += len(p)
	return h.Hash.Write(p)
}

// compareDigests compares a file of testdata with lines of digestLine.
func compareDigests(t *testing.T, file string, lines []string) {
	t.Helper()
	compareLines(t, file, lines, func(line int, want string) string {
		return fmt.Sprintf("the decision is %q, want %q", lines[line], want) + howToCompare
	})
}

// digest is 16 hexadecimal digits of a SHA-256 sum.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return shortSum(sum[:])
}

func shortSum(sum []byte) string { return hex.EncodeToString(sum[:8]) }

// keepOrCompare writes a text into the directory of DOVETAIL_DECISIONS. If there is one by that name, it reports the first
// line that differs instead.
func keepOrCompare(t *testing.T, name string, text []byte) {
	t.Helper()
	dir := os.Getenv(decisionsVariable)
	if dir == "" {
		return
	}
	path := filepath.Join(dir, name+".txt")
	before, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if before != nil && !bytes.Equal(before, text) {
		t.Errorf("%s differs: %s", path, firstDifference(string(before), string(text)))
	}
}

// firstDifference shows the first line that differs, below the line that it belongs to.
func firstDifference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	at, head := 0, ""
	for at < len(a) && at < len(b) && a[at] == b[at] {
		if !strings.HasPrefix(a[at], " ") {
			head = a[at]
		}
		at++
	}
	line := func(list []string) string {
		if at < len(list) {
			return list[at]
		}
		return "(no more lines)"
	}
	return fmt.Sprintf("line %d, below %q\n-%s\n+%s", at+1, head, line(a), line(b))
}

func TestFirstDifferenceNamesTheLineAndItsHead(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{"reject a\n  p0: x", "reject a\n  p0: y", "line 2, below \"reject a\"\n-  p0: x\n+  p0: y"},
		{"a", "a\nb", "line 2, below \"a\"\n-(no more lines)\n+b"},
	} {
		if got := firstDifference(tt.before, tt.after); got != tt.want {
			t.Errorf("%q and %q: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

// compareLines compares a file of testdata with the lines that it should have, and writes it with -update. Lines that differ
// are explained by the caller.
func compareLines(t *testing.T, name string, got []string, explain func(line int, want string) string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(want) != len(got) {
		t.Errorf("%s has %d lines, want %d: was it written by another version of the test?", path, len(want), len(got))
		return
	}
	const mostReported = 5
	reported := 0
	for i := range got {
		if got[i] == want[i] {
			continue
		}
		if reported++; reported > mostReported {
			t.Errorf("more lines of %s differ", path)
			return
		}
		t.Errorf("%s:%d: %s", path, i+1, explain(i, want[i]))
	}
}

// howToCompare states what to do about a digest that differs.
const howToCompare = "\nTo see what has changed, run this test with " + decisionsVariable +
	"=DIR at the commit before, and then here.\nIf the change is meant: " +
	"go test ./internal/engine/propertytest -run 'Decisions|Messages' -update"

// textOf is a text, in memory.
func textOf(write func(io.Writer)) []byte {
	var b bytes.Buffer
	write(&b)
	return b.Bytes()
}
