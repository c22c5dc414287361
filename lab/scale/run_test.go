package scale_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scale"
)

// The controller takes written nodes for its own: it keeps them all, launches nodes for pending pods only, and continues after a kill.
// How long that takes is no matter here.
func TestASmallClusterIsMeasured(t *testing.T) {
	s := labtest.Start(t, "scale", "--nodes", "60", "--pods", "1200", "--pending", "300", "--churn", "20", "--window", "2s", "--no-bars",
		"-o", "json")
	s.Await(t, `"missed"`, 4*time.Minute)
	if code := s.Wait(t, time.Minute); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, s.Output())
	}
	out := s.Output()
	var report scale.Report
	if err := json.NewDecoder(strings.NewReader(out[strings.Index(out, "\n{")+1:])).Decode(&report); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	switch {
	case report.Lost != 0:
		t.Errorf("%d of the written nodes are gone", report.Lost)
	case report.Burst.Claims == 0 || report.Burst.CreateFleets == 0 || report.Burst.Claims > 60:
		t.Errorf("300 pending pods get %d nodes by %d calls", report.Burst.Claims, report.Burst.CreateFleets)
	case report.Start.ReadySeconds == 0 || report.Restart.ReadySeconds == 0 || report.Rest.EndMiB == 0:
		t.Errorf("not measured: %+v", report)
	case report.Rest.EC2CallsPerMinute["TerminateInstances"] != 0:
		t.Errorf("instances are terminated at rest: %v", report.Rest.EC2CallsPerMinute)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
