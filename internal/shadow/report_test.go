package shadow

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	et "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

var update = flag.Bool("update", false, "write testdata/report.json; commit only what you understand")

// Programs read the report as JSON: nobody changes it by accident. It has a launch and a removal of the shadow, and a launch of
// the acting controller.
func TestReportAsJSON(t *testing.T) {
	half := et.Node("half", "general", func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{et.Bound(et.Pod("a", et.Requests("cpu", "1")), "half")}
	})
	other := et.Node("other", "general", func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{et.Bound(et.Pod("b", et.Requests("cpu", "2500m")), "other")}
	})
	c := newCluster(t, half, other)
	for range 5 {
		c.pass(5 * time.Second)
	}
	c.pods = et.Pods(2, "web", et.Requests("cpu", "1900m"))
	c.pass(5 * time.Second)
	c.launches("big", 0.4)
	c.pass(5 * time.Second)
	c.binds()
	r := c.pass(5 * time.Second)
	c.want(r, "removals", float64(r.Shadow.Removed), 1)
	c.want(r, "launches", float64(r.Shadow.Launches), 1)
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const path = "testdata/report.json"
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the report has changed (-want +got); go test ./internal/shadow -run ReportAsJSON -update writes it:\n%s", diff)
	}
}
