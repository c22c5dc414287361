// Package labtest runs the lab's binary for tests, as a user would.
package labtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Root is the root of the repository, seen from a package two directories below it.
const Root = "../.."

// Binary is the path of the lab's binary. It is built once, by make, because that takes minutes.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("DOVETAIL_LAB")
	if path == "" {
		path = filepath.Join(Root, "bin", "dovetail-lab")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the lab's binary is missing (%v): run `make build`, or set DOVETAIL_LAB", err)
	}
	return path
}

// Session is a run of the lab's binary.
type Session struct {
	// Temp is the directory for its temporary files, of its own.
	Temp string

	cmd  *exec.Cmd
	done chan struct{} // closed when it has finished
	err  error         // how; to be read after done

	mu      sync.Mutex
	lines   []string
	newLine chan struct{} // closed and replaced at each line
}

// Start runs the lab's binary until the test finishes, then at the latest.
func Start(t testing.TB, args ...string) *Session {
	t.Helper()
	s := &Session{Temp: t.TempDir(), done: make(chan struct{}), newLine: make(chan struct{})}
	s.cmd = exec.Command(Binary(t), args...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.Temp)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = writer, writer
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read(reader)
	}()
	go func() {
		s.err = s.cmd.Wait()
		<-read
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has finished, unless the test failed
		<-s.done
	})
	return s
}

func (s *Session) read(from io.ReadCloser) {
	defer from.Close()
	for scanner := bufio.NewScanner(from); scanner.Scan(); {
		s.mu.Lock()
		s.lines = append(s.lines, scanner.Text())
		close(s.newLine)
		s.newLine = make(chan struct{})
		s.mu.Unlock()
	}
}

// Output is what it has written so far.
func (s *Session) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// Await waits for a line that contains want, and returns it. The test fails if it does not come.
func (s *Session) Await(t testing.TB, want string, within time.Duration) string {
	t.Helper()
	late := time.After(within)
	for {
		s.mu.Lock()
		for _, line := range s.lines {
			if strings.Contains(line, want) {
				s.mu.Unlock()
				return line
			}
		}
		more := s.newLine
		s.mu.Unlock()
		select {
		case <-more:
		case <-s.done:
			t.Fatalf("it exited (%v) without printing %q:\n%s", s.err, want, s.Output())
		case <-late:
			t.Fatalf("it did not print %q within %v:\n%s", want, within, s.Output())
		}
	}
}

// Exports are the variables that it has printed as "export NAME=VALUE".
func (s *Session) Exports() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, line := range s.lines {
		if assignment, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			name, value, _ := strings.Cut(assignment, "=")
			value, _, _ = strings.Cut(value, " ") // of a comment
			out[name] = value
		}
	}
	return out
}

// Signal sends it a signal.
func (s *Session) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("signal %v: %v", signal, err)
	}
}

// Wait waits for its end and returns its exit code, -1 if a signal stopped it.
func (s *Session) Wait(t testing.TB, within time.Duration) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(within):
		t.Fatalf("it did not exit within %v:\n%s", within, s.Output())
	}
	var exit *exec.ExitError
	if s.err != nil && !errors.As(s.err, &exit) {
		t.Fatal(s.err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// InterruptAndCheck interrupts it, as Ctrl-C does, and fails the test unless it finishes with exit code 0 and leaves
// neither process nor temporary file.
func (s *Session) InterruptAndCheck(t testing.TB, within time.Duration) {
	t.Helper()
	children := s.Children(t)
	s.Signal(t, syscall.SIGINT)
	if code := s.Wait(t, within); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.Output())
	}
	s.CheckCleanedUp(t, children)
}

// CheckCleanedUp fails the test if one of its former children runs, or a temporary file is left.
func (s *Session) CheckCleanedUp(t testing.TB, children []int) {
	t.Helper()
	AwaitExit(t, children, 0)
	left, err := os.ReadDir(s.Temp)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files that are left: %v (%v)", left, err)
	}
}

// Children are the IDs of the processes that it has started and that run.
func (s *Session) Children(t testing.TB) []int {
	t.Helper()
	var out []int
	for _, p := range processes(t) {
		if p.parent == s.cmd.Process.Pid {
			out = append(out, p.id)
		}
	}
	return out
}

// Component is the process that it has started for a component, such as etcd or the controller. The order of IDs does not show it: they
// begin again at the smallest when all have been used.
func (s *Session) Component(t testing.TB, name string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-axo", "pid=,ppid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	parent := strconv.Itoa(s.cmd.Process.Pid)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[1] != parent {
			continue
		}
		if words[3] != name && (words[3] != "component" || len(words) < 5 || words[4] != name) {
			continue
		}
		id, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	t.Fatalf("no process of %s:\n%s", name, out)
	return 0
}

// AwaitExit waits until none of the processes runs any more.
func AwaitExit(t testing.TB, ids []int, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		left := stillRunning(t, ids)
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("processes that still run: %v", left)
		case <-ticker.C:
		}
	}
}

func stillRunning(t testing.TB, ids []int) []string {
	t.Helper()
	wanted := map[int]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	var left []string
	for _, p := range processes(t) {
		if wanted[p.id] {
			left = append(left, fmt.Sprintf("%d %s", p.id, p.command))
		}
	}
	return left
}

type processInfo struct {
	id, parent int
	command    string
}

// processes returns all processes of this host, without zombies. Zombies are processes that exited and that nobody
// waited for.
func processes(t testing.TB) []processInfo {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-axo", "pid=,ppid=,stat=,comm=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []processInfo
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 4 || strings.HasPrefix(words[2], "Z") {
			continue
		}
		id, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		parent, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, processInfo{id: id, parent: parent, command: words[3]})
	}
	return all
}
