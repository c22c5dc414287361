package nodereport_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// randomWorld is a pool with up to eight nodes, each with pods, and with random rules that protect them.
func randomWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := lone()
	maybe := func(percent int) bool { return r.IntN(100) < percent }
	sizes := [][3]string{{"m.small", "1", "4Gi"}, {"m.medium", "2", "8Gi"}, {"m.large", "4", "16Gi"}, {"m.xlarge", "8", "32Gi"}}
	for i := range r.IntN(8) {
		size := sizes[r.IntN(len(sizes))]
		w.addNode(fmt.Sprintf("n%d", i), size[0], size[1], size[2])
		for k := range r.IntN(4) {
			w.addPod(fmt.Sprintf("p%d-%d", i, k), fmt.Sprintf("n%d", i), []string{"100m", "250m", "500m"}[r.IntN(3)])
		}
	}
	for i := range r.IntN(3) {
		w.addPod(fmt.Sprintf("pending-%d", i), "", "500m")
	}
	for _, p := range w.Pods {
		if maybe(10) {
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: []string{"true", "30m", "2h", "nonsense"}[r.IntN(4)]}
		}
		if maybe(30) {
			p.Labels["app"] = "db"
		}
	}
	for i, c := range w.NodeClaims {
		switch {
		case maybe(10):
			w.Nodes[i].Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		case maybe(10):
			condition.Clear(c, karpv1.ConditionConsolidatable, now)
		case maybe(10):
			c.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(r.IntN(900)) * time.Second))
		case maybe(10):
			condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", ""), now.Add(-time.Hour))
		case maybe(5):
			delete(w.Nodes[i].Labels, karpv1.LabelInitialized)
		case maybe(5):
			c.DeletionTimestamp = &metav1.Time{Time: now}
		}
	}
	if maybe(20) {
		w.addPDB("web")
	}
	if maybe(30) {
		w.pool().Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: []string{"0", "1", "2", "100%"}[r.IntN(4)]}}
	} else {
		w.pool().Spec.Disruption.Budgets = []karpv1.Budget{}
	}
	if maybe(10) {
		w.pool().Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty
	}
	return w
}

// removed are the nodes that a pass of the planner removes.
func removed(v *inspect.View) map[string]karpv1.DisruptionReason {
	plan := schedule.Solve(v.Snapshot, schedule.DefaultBudget())
	out := map[string]karpv1.DisruptionReason{}
	for _, c := range planner.Consolidate(v.Snapshot, &plan, consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}).Commands {
		for _, n := range c.Candidates {
			out[n.Node.Name] = c.Reason
		}
	}
	return out
}

// A node of which the report states that it stays is in no command, and one that goes is in one, unless drift or its age is
// the reason. A node with nothing that blocks it is a candidate of the engine, and the reverse.
func TestVerdictsAgreeWithTheEngine(t *testing.T) {
	stays, goes := 0, 0
	for seed := range uint64(150) {
		w := randomWorld(seed)
		v := w.view(t)
		commands := removed(v)
		candidates := map[string]bool{}
		for _, c := range disrupt.NewView(v.Snapshot).Candidates {
			candidates[c.Node.Name] = true
		}
		for _, node := range w.Nodes {
			r, err := nodereport.OfNode(v, node.Name)
			if err != nil {
				t.Fatal(err)
			}
			reason, inCommand := commands[node.Name]
			switch r.Verdict.State {
			case nodereport.Stays:
				stays++
				if inCommand {
					t.Errorf("seed %d: %s, but a command removes it: %s", seed, r.Verdict.Text, reason)
				}
			case nodereport.Goes:
				goes++
				if !inCommand && r.Verdict.Reason != "Drifted" && r.Verdict.Reason != "Expired" {
					t.Errorf("seed %d: %s, but no command removes it", seed, r.Verdict.Text)
				}
			default:
				if inCommand {
					t.Errorf("seed %d: %s, but a command removes it", seed, r.Verdict.Text)
				}
			}
			if hard := isHard(r); r.Verdict.State == nodereport.Stays && !hard && !candidates[node.Name] {
				t.Errorf("seed %d: %s: the engine does not take it as a candidate, and the report names no object that blocks it: %+v", seed, node.Name, r.Blockers)
			} else if hard && candidates[node.Name] && r.Blockers[0].Code != "Nominated" {
				t.Errorf("seed %d: %s: the report names %+v, but the engine takes it as a candidate", seed, node.Name, r.Blockers[0])
			}
			checkReport(t, seed, r)
		}
	}
	if stays < 50 || goes < 50 {
		t.Errorf("%d nodes stay and %d go: too few to say anything", stays, goes)
	}
}

// isHard reports whether the first blocker keeps the node from being a candidate for anything.
func isHard(r *nodereport.Report) bool {
	if len(r.Blockers) == 0 {
		return false
	}
	switch r.Blockers[0].Code {
	case "PDB", "PodDoNotDisrupt", "NodeDoNotDisrupt", "Nominated", "NoNodePool", "NoNodePoolLabel", "Unplannable":
		return true
	}
	return false
}

// checkReport checks what holds for every report: JSON without null, text within 80 columns, each pod listed once.
func checkReport(t *testing.T, seed uint64, r *nodereport.Report) {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil || strings.Contains(string(data), "null") {
		t.Errorf("seed %d: %v: %s", seed, err, data)
	}
	var b strings.Builder
	if err := r.Text(&b, 80); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(strings.TrimRight(line, "\n")) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("seed %d: %d columns: %s", seed, len(line), line)
		}
	}
	if r.Removal != nil && len(r.Removal.Pods) != len(r.Pods) {
		t.Errorf("seed %d: %s has %d pods, and %d moves", seed, r.Name, len(r.Pods), len(r.Removal.Pods))
	}
}

// The report of a node does not depend on anything but the view.
func TestReportsAreDeterministic(t *testing.T) {
	w := randomWorld(7)
	w.addPDB("web")
	text := func() string {
		var b strings.Builder
		for _, n := range w.Nodes {
			r, err := nodereport.OfNode(w.view(t), n.Name)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Text(&b, 0); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	first := text()
	for range 3 {
		if again := text(); again != first {
			t.Fatalf("first\n%s\nthen\n%s", first, again)
		}
	}
}
