// Package peakrss measures the memory of this process.
package peakrss

import (
	"bytes"
	"os"
	"strconv"
)

// Bytes is the most memory that this process ever had, in bytes; 0 if it cannot be known.
//
// It is the field VmHWM of proc_pid_status(5), which exec sets back. The ru_maxrss of getrusage(2) is kept across fork and
// exec, so a small process that a large one starts would report the memory of the large one.
func Bytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	return highWaterMark(status)
}

// highWaterMark is the field VmHWM of a process's status, in bytes; 0 if it has none.
func highWaterMark(status []byte) int64 {
	for line := range bytes.Lines(status) {
		value, found := bytes.CutPrefix(line, []byte("VmHWM:"))
		if !found {
			continue
		}
		if fields := bytes.Fields(value); len(fields) == 2 && string(fields[1]) == "kB" {
			if kib, err := strconv.ParseInt(string(fields[0]), 10, 64); err == nil && kib >= 0 {
				return kib << 10
			}
		}
	}
	return 0
}
