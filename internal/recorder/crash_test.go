//go:build unix

package recorder

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childPath names the recording to the child process of a test.
const childPath = "DOVETAIL_TEST_RECORDING"

// TestChild is the child process: it records until it is killed, and prints each pass once it is written. With a limit on the
// size of files, it records a number of passes, and states that it has survived. In the test run itself it does nothing.
func TestChild(t *testing.T) {
	path, limited := strings.CutPrefix(os.Getenv(childPath), "limited:")
	if path == "" {
		return
	}
	cfg := testConfig(t, 64<<20)
	cfg.Path = path
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 8, 2)
	if limited {
		const limit = 48 << 10
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; !limited || n < 60; n++ {
		id, plan := w.pass(r)
		r.settle()
		fmt.Println("pass", id, plan)
		w.change()
	}
	r.Close()
	fmt.Println("survived")
}

// child runs TestChild, and stops it after so many lines; 0 waits for its end.
func child(t *testing.T, path string, lines int) (out []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childPath+"="+path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(stdout); s.Scan(); {
		if out = append(out, s.Text()); len(out) == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if err := cmd.Wait(); lines == 0 && err != nil {
		t.Fatalf("the child process: %v\n%s", err, strings.Join(out, "\n"))
	}
	return out
}

func TestAKilledProcessLosesAtMostThePassInProgress(t *testing.T) {
	cfg := testConfig(t, 64<<20)
	var lines []string
	for _, passes := range []int{1, 4, 7} {
		lines = append(lines, child(t, cfg.Path, passes)...)
	}
	got := replayed(t, cfg.Path)
	for _, line := range lines {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) == 3 && fields[0] == "pass" && got[fields[1]] != fields[2] {
			t.Errorf("pass %s: planned %s, replayed %q", fields[1], fields[2], got[fields[1]])
		}
	}
	if len(got) < 7 { // the processes have one clock, so their passes have the same IDs
		t.Errorf("%d passes are recorded", len(got))
	}
}

func TestAFullDiskStopsNothing(t *testing.T) {
	cfg := testConfig(t, 64<<20)
	lines := child(t, "limited:"+cfg.Path, 0)
	if !strings.Contains(strings.Join(lines, "\n"), "survived") {
		t.Errorf("the child process printed %q", lines)
	}
	if got := replayed(t, cfg.Path); len(got) == 0 {
		t.Error("nothing was recorded before the disk was full")
	}
}
