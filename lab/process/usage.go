package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, in which Linux counts the CPU time of processes on every architecture.
const ticksPerSecond = 100

// Usage is what a process has used so far.
type Usage struct {
	At  time.Time
	CPU time.Duration // user and system, all threads
	RSS int64         // bytes
	// PeakRSS is the largest RSS so far, in bytes.
	PeakRSS int64
}

// UsageOf reads the usage of a process from /proc.
func UsageOf(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("measure process %d: %w", pid, err)
	}
	u, err := parseUsage(string(stat), string(status))
	u.At = time.Now()
	return u, err
}

// parseUsage reads the files stat and status, see proc(5).
func parseUsage(stat, status string) (Usage, error) {
	// The name of the program is in parentheses, and may have any character.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const utime, stime = 11, 12 // counted from the state, which is field 3
	if len(fields) <= stime {
		return Usage{}, fmt.Errorf("stat has %d fields", len(fields))
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	if err1 != nil || err2 != nil {
		return Usage{}, fmt.Errorf("stat has no CPU time: %q, %q", fields[utime], fields[stime])
	}
	u := Usage{CPU: time.Duration(user+system) * time.Second / ticksPerSecond}
	for line := range strings.Lines(status) {
		for prefix, into := range map[string]*int64{"VmRSS:": &u.RSS, "VmHWM:": &u.PeakRSS} {
			rest, found := strings.CutPrefix(line, prefix)
			if !found {
				continue
			}
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return Usage{}, fmt.Errorf("status has no RSS: %q", line)
			}
			*into = kib << 10
		}
	}
	return u, nil
}
