package controllertest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/writes.txt of packages that compare their writes; commit only what you understand")

// writesPath is the file that has the writes of all tests of a package.
const writesPath = "testdata/writes.txt"

const writesHeader = `# What each test writes to the API server, its own changes included, and the events. The order is that of the calls.
# go test -update writes this file.
`

// writes compares the writes of the tests of a package; nil in packages that do not.
var writes *writesFile

// writesFile is testdata/writes.txt, and what the tests of this run have written.
type writesFile struct {
	mu     sync.Mutex
	want   map[string][]string
	active map[string]*writeLog
	got    map[string][]string
	except Exceptions
}

// Exceptions are tests that do not make the same writes in the same order each time. Names cover the tests that begin with them.
type Exceptions struct {
	// Parallel tests write from several goroutines. Their lines are sorted, and random identifiers are left out.
	Parallel []string
	// Varying tests stop what writes in parallel at any write. They are not compared.
	Varying []string
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// CompareWrites runs the tests of a package, for its TestMain. Each test with a Fixture must make the writes and events that
// testdata/writes.txt has, in that order. It returns the exit code.
func CompareWrites(m *testing.M) int { return CompareMostWrites(m, Exceptions{}) }

// CompareMostWrites is CompareWrites with exceptions.
func CompareMostWrites(m *testing.M, except Exceptions) int {
	flag.Parse()
	writes = &writesFile{want: map[string][]string{}, active: map[string]*writeLog{}, got: map[string][]string{}, except: except}
	data, err := os.ReadFile(writesPath)
	if err != nil && !*update {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	writes.want = parseWrites(data)
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := writes.finish(allTestsRun()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// allTestsRun reports whether no flag leaves tests out.
func allTestsRun() bool {
	for _, name := range []string{"test.run", "test.skip"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	f := flag.Lookup("test.list")
	return f == nil || f.Value.String() == ""
}

// finish writes the file with -update, or else finds tests in it that no longer exist.
func (w *writesFile) finish(all bool) error {
	if !*update {
		for _, name := range slices.Sorted(maps.Keys(w.want)) {
			if _, ran := w.got[name]; !ran && all {
				return fmt.Errorf("%s has writes of %s, and no test of that name makes any: go test -update removes them", writesPath, name)
			}
		}
		return nil
	}
	out := w.got
	if !all {
		out = maps.Clone(w.want)
		maps.Copy(out, w.got)
	}
	if err := os.MkdirAll("testdata", 0o750); err != nil {
		return err
	}
	return os.WriteFile(writesPath, formatWrites(out), 0o600)
}

// parseWrites reads the writes of each test.
func parseWrites(data []byte) map[string][]string {
	out := map[string][]string{}
	test := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		written, indented := strings.CutPrefix(line, "  ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented:
			out[test] = append(out[test], written)
		default:
			test = line
		}
	}
	return out
}

// formatWrites is the text of the file. Tests that write nothing are left out.
func formatWrites(all map[string][]string) []byte {
	var b bytes.Buffer
	b.WriteString(writesHeader)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(all[name]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", name)
		for _, line := range all[name] {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.Bytes()
}

// logOf returns the log of a test, which all fixtures of the test share. It is compared when the test finishes.
func (w *writesFile) logOf(t *testing.T) *writeLog {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.active[t.Name()]
	if log == nil {
		log = &writeLog{}
		w.active[t.Name()] = log
		t.Cleanup(func() { w.compare(t) })
	}
	return log
}

// compare stops the log of a test. A test that runs more than once, by -count, must write the same each time.
func (w *writesFile) compare(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	name := t.Name()
	log := w.active[name]
	delete(w.active, name)
	if hasPrefix(name, w.except.Varying) {
		return
	}
	if hasPrefix(name, w.except.Parallel) {
		log.sort()
	}
	got := log.text()
	if before, ran := w.got[name]; ran {
		if diff := cmp.Diff(before, got); diff != "" {
			t.Errorf("the test writes something else each time it runs (-first +now):\n%s", diff)
		}
	}
	w.got[name] = got
	if diff := cmp.Diff(w.want[name], got); diff != "" && !*update && !t.Failed() {
		t.Errorf("the test does not write what %s has (-want +got); go test -update writes it:\n%s", writesPath, diff)
	}
}

// numbered are the numbers of random identifiers, and of names that the API server makes.
var numbered = regexp.MustCompile(`#?\d+`)

// sort sorts the lines, and leaves out what the order of the calls decides: numbers, and the digests of lines that have them.
func (l *writeLog) sort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, line := range l.lines {
		line, _, _ = strings.Cut(line, "... sha256")
		l.lines[i] = numbered.ReplaceAllString(line, "#")
	}
	slices.Sort(l.lines)
}

// maxLines limits how many lines the file has of a test. A digest stands for the rest of tests that repeat themselves, such as
// those that stop a process after each of its writes.
const maxLines = 25

// text is the log as the file has it. Equal lines that follow each other are one.
func (l *writeLog) text() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for i := 0; i < len(l.lines); {
		n := i + 1
		for n < len(l.lines) && l.lines[n] == l.lines[i] {
			n++
		}
		line := strings.ReplaceAll(l.lines[i], "\n", `\n`)
		if n > i+1 {
			line += fmt.Sprintf(" (%d times)", n-i)
		}
		out, i = append(out, line), n
	}
	if len(out) <= maxLines {
		return out
	}
	rest := out[maxLines:]
	return append(out[:maxLines:maxLines], fmt.Sprintf("... and %d more lines, %s", len(rest), sum(strings.Join(rest, "\n"))))
}
