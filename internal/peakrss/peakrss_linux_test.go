package peakrss

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestHighWaterMark(t *testing.T) {
	for status, want := range map[string]int64{
		"Name:\tdovetail\nVmPeak:\t 1234 kB\nVmHWM:\t   20480 kB\nVmRSS:\t   100 kB\n": 20 << 20,
		"Name:\tkthreadd\n":  0,
		"VmHWM:\t 1 MB\n":    0,
		"VmHWM:\t many kB\n": 0,
		"VmHWM:\t -1 kB\n":   0,
		"":                   0,
	} {
		if got := highWaterMark([]byte(status)); got != want {
			t.Errorf("%q: %d bytes, want %d", status, got, want)
		}
	}
}

// What a large process starts reports its own memory, not that of the large one.
func TestPeakMemoryIsNotInherited(t *testing.T) {
	const child = "DOVETAIL_TEST_PRINT_PEAK_RSS"
	if os.Getenv(child) != "" {
		fmt.Printf("peak %d\n", Bytes())
		return
	}
	large := make([]byte, 512<<20)
	for i := 0; i < len(large); i += os.Getpagesize() {
		large[i] = 1
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemoryIsNotInherited$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	runtime.KeepAlive(large)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), "peak ")
	text, _, _ := strings.Cut(rest, "\n")
	theirs, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("the child printed %q: %v", out, err)
	}
	if ours := Bytes(); ours < 512<<20 || theirs <= 0 || theirs > ours/2 {
		t.Errorf("this process had %d MiB, its child reports %d MiB", ours>>20, theirs>>20)
	}
}
