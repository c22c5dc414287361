package pass_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The documentation has the order of the code, place by place.
func TestTheOrderIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/disruption.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Which nodes go first\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| Place") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for i, p := range pass.Order() {
		reason := "–"
		if p.Reason != "" {
			reason = "`" + string(p.Reason) + "`"
		}
		want = append(want, fmt.Sprintf("| %d | %s | %s | %s |", i+1, p.Nodes, reason, p.First))
	}
	if !found || !slices.Equal(got, want) {
		t.Errorf("docs/disruption.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// gone reports whether a node of the fleet has gone, or goes.
func (f *virtualFleet) going(name string) bool {
	n := f.node(name)
	return n == nil || n.Deleting || n.Disrupting
}

// A new node becomes empty as soon as the last one has gone, and the budget is one: the drifted and the expiring node go all the same.
func TestEmptyNodesHoldNothingBackForever(t *testing.T) {
	drifted := aged("drifted", time.Hour)
	drifted.DriftedAt = Now().Add(-time.Hour)
	f := newVirtualFleet(t, expiring("1", graceful, drifted, aged("old", 85*time.Hour)))
	f.s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.After(0)
	empties := 0
	for until := f.s.Now.Add(4 * time.Hour); f.s.Now.Before(until) && !(f.going("drifted") && f.going("old")); {
		if !slices.ContainsFunc(f.s.Nodes, func(n snapshot.Node) bool { return strings.HasPrefix(n.Name, "empty") && !n.Deleting }) {
			empties++
			n := up(fmt.Sprintf("empty-%d", empties))
			n.CreatedAt = f.s.Now
			f.s.Nodes = append(f.s.Nodes, n)
		}
		f.step(f.s.Now.Add(10 * time.Second))
	}
	if !f.going("drifted") || !f.going("old") || empties < 10 {
		t.Fatalf("after %s: drifted goes %v, old goes %v, %d nodes went as empty", f.s.Now.Sub(Now()), f.going("drifted"), f.going("old"), empties)
	}
	if at := f.started["drifted"].at.Sub(Now()); at < 50*time.Minute || at > 80*time.Minute {
		t.Errorf("the drifted node went after %s", at)
	}
}

// Of whatever else has to go, each node that has to go does so, within a time that the number of nodes and the budgets bound.
func TestNoNodeStarves(t *testing.T) {
	kinds := map[karpv1.DisruptionReason]int{}
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := expiring(fmt.Sprint(1+rng.IntN(3)), graceful)
		s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.After(0)
		s.Pools = append(s.Pools, Pool("q", Types(), func(np *karpv1.NodePool) {
			np.Annotations = s.Pools[0].NodePool.Annotations
			np.Spec.Disruption = *s.Pools[0].NodePool.Spec.Disruption.DeepCopy()
			np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: fmt.Sprint(1 + rng.IntN(3))}}
		}))
		must := map[string]karpv1.DisruptionReason{}
		for i := range 24 {
			n := randomNode(rng, fmt.Sprintf("n%02d", i), must)
			if i%2 == 1 {
				n.Pool, n.Labels[karpv1.LabelNodePool] = "q", "q"
			}
			s.Nodes = append(s.Nodes, n)
		}
		f := newVirtualFleet(t, s)
		f.settings.MaxDrift = 1
		f.boot = func() time.Duration { return time.Duration(1+rng.IntN(5)) * time.Minute }
		f.drain = func() time.Duration { return time.Duration(rng.IntN(9)) * time.Minute }
		// 12 nodes of a pool take 13 minutes each at most, one after the other, beside as many that save money.
		for f.s.Now.Before(Now().Add(4 * time.Hour)) {
			f.step(f.s.Now.Add(time.Minute))
		}
		for name, reason := range must {
			if kinds[reason]++; !f.going(name) {
				t.Errorf("seed %d: node %s was to go for %s", seed, name, reason)
			}
		}
	}
	for _, reason := range []karpv1.DisruptionReason{karpv1.DisruptionUnhealthy, karpv1.DisruptionDrifted, karpv1.DisruptionExpired, karpv1.DisruptionEmpty} {
		if kinds[reason] < 3 {
			t.Errorf("%d nodes were to go for %s: that proves little", kinds[reason], reason)
		}
	}
}

// randomNode is a node that may have to go, and then is in must; or one that may cost too much.
func randomNode(rng *rand.Rand, name string, must map[string]karpv1.DisruptionReason) snapshot.Node {
	n := aged(name, time.Duration(rng.IntN(70))*time.Hour)
	switch kind := rng.IntN(10); {
	case kind == 0 && name < "n04": // the breaker of repairs holds more of them back
		n.Ready, n.Unhealthy = false, true
		n.Repair = &repair.Decision{Action: karpv1.RepairReplace, EligibleAt: Now().Add(-time.Duration(rng.IntN(60)) * time.Minute)}
		must[name] = karpv1.DisruptionUnhealthy
	case kind < 3:
		n.DriftedAt = Now().Add(-time.Duration(1+rng.IntN(600)) * time.Minute)
		must[name] = karpv1.DisruptionDrifted
	case kind < 6:
		n.CreatedAt = Now().Add(-time.Duration(80+rng.IntN(15)) * time.Hour)
		must[name] = karpv1.DisruptionExpired
	case kind < 8:
		n.Pods, n.Consolidatable = nil, true
		must[name] = karpv1.DisruptionEmpty
	default:
		n.Pods, n.Consolidatable = []*corev1.Pod{Bound(pod("small-"+name, "100m"), name)}, true
	}
	return n
}
