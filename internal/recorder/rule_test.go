package recorder

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A recording has what keeps a pod pending as data, and one of a version without it is read as before.
func TestRejectionsAreRecordedWithTheirRule(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types(), PoolTaint("dedicated", "NoSchedule"))}, Pod("web"))
	p := schedule.Solve(s, schedule.Budget{})
	data := mustJSON(RecordPlan(&p))
	var read PlanRecord
	if err := json.Unmarshal(data, &read); err != nil || len(read.Rejected) != 1 || read.Rejected[0].Rule == nil {
		t.Fatalf("%v, %s: want one pod with its rule", err, data)
	}
	if taints := read.Rejected[0].Rule.Taints; len(taints) != 1 || taints[0].Key != "dedicated" {
		t.Errorf("taints %v, want the pool's", taints)
	}
	old := strings.Replace(string(data), `,"rule":`+read.Rejected[0].Rule.String(), "", 1)
	if old == string(data) {
		t.Fatalf("no rule in %s", data)
	}
	var before PlanRecord
	if err := json.Unmarshal([]byte(old), &before); err != nil {
		t.Fatal(err)
	}
	if r := before.Rejected[0]; r.Rule != nil || r.Message != read.Rejected[0].Message || r.Codes[0] != "general Taints" {
		t.Errorf("%+v, want the message and the code alone", r)
	}
}
