//go:build unix && !linux

package peakrss

import (
	"runtime"
	"syscall"
)

// Bytes is the most memory that this process ever had, in bytes; 0 if it cannot be known.
func Bytes() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) << 10 // everywhere else it is in KiB
}
