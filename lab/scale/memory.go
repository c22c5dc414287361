package scale

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What a filled world takes, all processes together: 14.2 GiB with 5,000 nodes and 100,000 pods, at rest. How much of
// that nodes are is an estimate.
const (
	baseBytes    = 1 << 30
	bytesPerNode = 400 << 10
	bytesPerPod  = 120 << 10
)

// bytes is how much memory a filled world of this size takes.
func (s Size) bytes() int64 {
	return baseBytes + bytesPerNode*int64(s.Nodes) + bytesPerPod*int64(s.Pods)
}

// CheckMemory reports a size that takes more memory than this host has available. Where that is not known, each size
// fits.
func (s Size) CheckMemory() error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil
	}
	return s.fits(string(text))
}

// fits takes the text of /proc/meminfo.
func (s Size) fits(meminfo string) error {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "MemAvailable:" || fields[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || s.bytes() <= kib<<10 {
			return nil
		}
		const gib = 1 << 30
		return fmt.Errorf("%d nodes and %d pods take about %.1f GiB of memory, and %.1f GiB are available: choose fewer",
			s.Nodes, s.Pods, float64(s.bytes())/gib, float64(kib<<10)/gib)
	}
	return nil
}
