package process

import (
	"testing"
	"time"
)

func TestParseUsage(t *testing.T) {
	stat := "4242 (dove) tail) S 1 4242 4242 0 -1 4194304 100 0 0 0 1234 66 0 0 20 0 12 0 100 200 300"
	u, err := parseUsage(stat, "Name:\tdovetail\nVmHWM:\t  900000 kB\nVmRSS:\t  716800 kB\n")
	if err != nil || u.CPU != 13*time.Second || u.RSS != 700<<20 || u.PeakRSS != 900000<<10 {
		t.Errorf("%v of CPU, %d bytes, at most %d, %v", u.CPU, u.RSS, u.PeakRSS, err)
	}
	if _, err := parseUsage("4242 (dovetail) S 1", ""); err == nil {
		t.Error("a stat without CPU time is accepted")
	}
}
