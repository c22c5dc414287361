package screen

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// session is the program behind a pseudo-terminal, seen through a terminal emulator.
type session struct {
	t    *testing.T
	keys io.Writer
	size func(columns, rows int)
	vt   vt10x.Terminal
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	written strings.Builder
}

func start(t *testing.T) *session {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	ctx, stop := context.WithCancel(t.Context())
	s := &session{t: t, keys: master, vt: vt10x.New(vt10x.WithSize(80, 24)), stop: stop, done: make(chan error, 1)}
	s.size = func(columns, rows int) {
		s.vt.Resize(columns, rows)
		if err := pty.Setsize(master, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)}); err != nil {
			t.Fatal(err)
		}
	}
	s.size(80, 24)
	go func() { _, _ = io.Copy(s, master) }()
	model := top.NewModel(top.Link{}).Update(top.Observed{Fleet: fleet(), Prices: "a test"})
	terminal := Terminal{Input: slave, Output: slave, Environment: []string{"TERM=xterm-256color"}}
	go func() { s.done <- Run(ctx, terminal, model, func(context.Context, func(any)) {}) }()
	return s
}

// Write implements io.Writer: what the program writes goes to the emulator.
func (s *session) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.written.Write(b)
	s.mu.Unlock()
	return s.vt.Write(b)
}

func fleet() *top.Fleet {
	var o top.Objects
	for _, name := range []string{"alpha", "beta", "gamma"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "nvme"}}}
		o.Nodes = append(o.Nodes, n)
	}
	o.Now = time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC)
	return top.Observe(o)
}

func (s *session) press(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
}

// until waits until the screen has a text, or has it no more.
func (s *session) until(what string, condition func(screen string) bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return condition(s.vt.String()), nil
	})
	if err != nil {
		s.t.Fatalf("the screen never %s:\n%s", what, s.vt.String())
	}
}

func (s *session) shows(text string) {
	s.t.Helper()
	s.until("shows "+text, func(screen string) bool { return strings.Contains(screen, text) })
}

// restored waits until the program has stopped, and checks that the terminal is as before.
func (s *session) restored() error {
	s.t.Helper()
	err := <-s.done
	s.until("is left", func(string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		out := s.written.String()
		return strings.LastIndex(out, "\x1b[?1049l") > strings.LastIndex(out, "\x1b[?1049h") &&
			strings.LastIndex(out, "\x1b[?25h") > strings.LastIndex(out, "\x1b[?25l")
	})
	return err
}

func TestASessionInATerminal(t *testing.T) {
	s := start(t)
	s.shows("Nodes 3")
	s.press("s")
	s.shows("sort price")
	s.press("/bet\r")
	s.until("filters", func(screen string) bool {
		return strings.Contains(screen, "beta") && !strings.Contains(screen, "alpha")
	})
	s.press("\r")
	s.shows("disk=nvme")
	s.press("\x1b")
	s.shows("enter open  tab list")
	for _, columns := range []int{200, 40, 80} {
		s.size(columns, 24)
		s.until("fits", func(screen string) bool { return strings.Contains(screen, "beta") && s.fits(columns) })
	}
	s.press("q")
	if err := s.restored(); err != nil {
		t.Error(err)
	}
}

// fits reports whether the emulator shows as many columns.
func (s *session) fits(columns int) bool {
	got, _ := s.vt.Size()
	return got == columns
}

// Main cancels the context at SIGINT and SIGTERM; in raw mode, Ctrl-C is a key.
func TestTheTerminalIsRestored(t *testing.T) {
	t.Run("at a signal", func(t *testing.T) {
		s := start(t)
		s.shows("alpha")
		s.stop()
		if err := s.restored(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("at Ctrl-C", func(t *testing.T) {
		s := start(t)
		s.shows("alpha")
		s.press("\x03")
		if err := s.restored(); err != nil {
			t.Error(err)
		}
	})
}
