package recorder

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// Each fact that a Snapshot is built from comes back from a recording: a replay without it would decide otherwise.
func TestAllFactsAreRecorded(t *testing.T) {
	cfg := testConfig(t, 64<<20)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 4, 2)
	policies, err := repair.Compile([]karpv1.RepairPolicy{{Condition: "StorageReady", Status: "False", Action: karpv1.RepairReplace}})
	if err != nil {
		t.Fatal(err)
	}
	w.facts.TaintGracePeriod, w.facts.Repair, w.facts.LifecycleConditions = time.Minute, policies, true
	w.facts.MarkedForDeletion = map[types.UID]bool{"claim-node-1": true}
	w.facts.Disrupting = map[types.UID][]string{"claim-node-1": {"general-a"}}
	w.facts.Nominated, w.facts.BufferPods = map[string]time.Time{"node-1": w.facts.Now}, map[string]int{"node-1": 1}
	zero := func(f cluster.Facts, where string) {
		for _, field := range reflect.VisibleFields(reflect.TypeFor[cluster.Facts]()) {
			if reflect.ValueOf(f).FieldByIndex(field.Index).IsZero() {
				t.Errorf("%s: the fact %s is missing", where, field.Name)
			}
		}
	}
	zero(w.facts, "the world of this test")
	w.pass(r)
	r.Close()
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	passes := 0
	err = rec.Passes(Range{}, func(p *PassRecord) error {
		passes++
		zero(p.Facts, "the recording")
		return nil
	})
	if err != nil || passes != 1 {
		t.Errorf("%d passes: %v", passes, err)
	}
}
