package replace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func worldOf(pools []snapshot.Pool, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := World(pools)
	s.Nodes = nodes
	return s
}

// maxTried limits how many nodes drift may simulate.
const maxTried = 2

// nextDrift is the command that drift finds, and the nodes that it cannot replace.
func nextDrift(s *snapshot.Snapshot, a *disrupt.DriftBackoff) (*disrupt.Command, []disrupt.Unconsolidatable) {
	v := disrupt.NewView(s)
	order := a.DriftOrder(v.Drifted(false), s.Now)
	return replace.Drift(
		schedule.Compile(s),
		v,
		replace.DriftSearch{
			Order:         order,
			Remaining:     v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted)),
			MaxRejections: maxTried,
			Budget:        schedule.Budget{},
		},
	)
}

func nameOf(cmd *disrupt.Command) string {
	if cmd == nil {
		return ""
	}
	return cmd.Candidates[0].Node.Name
}

func TestDrift(t *testing.T) {
	one := func() []snapshot.Pool { return []snapshot.Pool{Pool("p", Types(), AnyBudget)} }
	none := &disrupt.DriftBackoff{}
	t.Run("the oldest goes first, with its replacement", func(t *testing.T) {
		cmd, _ := nextDrift(
			worldOf(
				one(),
				DriftedNode("young", "p", 1, Pod("a", Requests("cpu", "700m"))),
				DriftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))),
			),
			none,
		)
		if nameOf(cmd) != "old" || len(cmd.Plan.Launches) != 1 || len(cmd.Plan.Launches[0].Pods) != 1 ||
			cmd.Reason != karpv1.DisruptionDrifted ||
			cmd.ConsolidationType != "" {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("the oldest cannot be replaced, so the next is", func(t *testing.T) {
		cmd, left := nextDrift(
			worldOf(
				one(),
				DriftedNode("young", "p", 1, Pod("a", Requests("cpu", "700m"))),
				DriftedNode("old", "p", 2, Pod("b", Requests("cpu", "150"))),
			),
			none,
		)
		if nameOf(cmd) != "young" || len(left) != 1 || left[0].Candidate.Node.Name != "old" ||
			!strings.HasPrefix(left[0].Message, "Not all pods would schedule, default/b => ") {
			t.Errorf("%s is replaced; left %+v", nameOf(cmd), left)
		}
	})
	t.Run("an empty node goes before an older one", func(t *testing.T) {
		cmd, _ := nextDrift(worldOf(one(), DriftedNode("empty", "p", 1), DriftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m")))), none)
		if nameOf(cmd) != "empty" || len(cmd.Plan.Launches) != 0 {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("one node may need three replacements", func(t *testing.T) {
		large := DriftedNode(
			"large",
			"p",
			1,
			Pod("a", Requests("cpu", "700m")),
			Pod("b", Requests("cpu", "700m")),
			Pod("c", Requests("cpu", "700m")),
		)
		large.Allocatable = Resources("cpu", "4", "memory", "16Gi", "pods", "110")
		cmd, _ := nextDrift(worldOf([]snapshot.Pool{Pool("p", Types()[:1], AnyBudget)}, large), none)
		if cmd == nil || len(cmd.Plan.Launches) != 3 {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("a replacement that a pending pod would share is provisioned for that pod first", func(t *testing.T) {
		s := worldOf(one(), DriftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))))
		s.Pods = []*corev1.Pod{Pod("waits", Requests("cpu", "700m"), Near(Host, "b")), Pod("other", Requests("cpu", "100m"))}
		Labeled("app", "b")(s.Nodes[0].Pods[0])
		cmd, left := nextDrift(s, none)
		if cmd != nil || len(left) != 1 || !strings.Contains(left[0].Message, "waits for a node that would be shared") {
			t.Errorf("%+v, left %+v", cmd, left)
		}
	})
	t.Run("no pod moves to a node that is not initialized, or has a taint that something else has yet to remove", func(t *testing.T) {
		for _, starts := range []func(*snapshot.Node){
			func(n *snapshot.Node) { n.Initialized = false },
			func(n *snapshot.Node) {
				n.Awaited = []corev1.Taint{{Key: "agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
			},
		} {
			coming := Node("coming", "p", func(n *snapshot.Node) {
				n.Claim, n.Launched = "coming", true
				n.Allocatable = Resources("cpu", "8", "memory", "16Gi", "pods", "110")
			}, starts)
			cmd, left := nextDrift(worldOf(one(), DriftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))), coming), none)
			if cmd != nil || !strings.Contains(left[0].Message, "would schedule against uninitialized nodeclaim/coming, node/coming") {
				t.Errorf("%+v, left %+v", cmd, left)
			}
		}
	})
	t.Run("nodes that budgets block do not count as tried", func(t *testing.T) {
		pools := append(one(), Pool("held", Types(), AnyBudget))
		pools[1].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		nodes := []snapshot.Node{DriftedNode("young", "p", 1)}
		for k := range maxTried {
			nodes = append(nodes, DriftedNode(fmt.Sprintf("old-%d", k), "held", 2+k))
		}
		if cmd, _ := nextDrift(worldOf(pools, nodes...), none); nameOf(cmd) != "young" {
			t.Errorf("%q is replaced", nameOf(cmd))
		}
	})
	t.Run("after the most tries the others wait for the next pass", func(t *testing.T) {
		nowhere := func(name string) *corev1.Pod { return Pod(name, Requests("cpu", "150")) }
		nodes := []snapshot.Node{DriftedNode("young", "p", 1, Pod("fits", Requests("cpu", "700m")))}
		for k := range maxTried {
			nodes = append(nodes, DriftedNode(fmt.Sprintf("old-%d", k), "p", 2+k, nowhere(fmt.Sprintf("pod-%d", k))))
		}
		cmd, left := nextDrift(worldOf(one(), nodes...), none)
		if cmd != nil || len(left) != maxTried {
			t.Errorf("%q is replaced, left %+v", nameOf(cmd), left)
		}
		if cmd, _ := nextDrift(worldOf(one(), nodes[:maxTried]...), none); nameOf(cmd) != "young" {
			t.Errorf("%q is replaced, want the one that is left", nameOf(cmd))
		}
	})
	t.Run("the budget is respected", func(t *testing.T) {
		pools := one()
		pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
		leaving := DriftedNode("leaving", "p", 3)
		leaving.Deleting = true
		if cmd, _ := nextDrift(worldOf(pools, DriftedNode("old", "p", 2), leaving), none); cmd != nil {
			t.Errorf("%s is replaced", nameOf(cmd))
		}
	})
}

func TestDriftOrderAndBackoff(t *testing.T) {
	pools := []snapshot.Pool{Pool("p", Types(), AnyBudget), Pool("q", Types(), AnyBudget)}
	s := worldOf(pools,
		DriftedNode("p1", "p", 9, Pod("a", Requests("cpu", "700m"))), DriftedNode("p2", "p", 8, Pod("b", Requests("cpu", "700m"))),
		DriftedNode("q1", "q", 2, Pod("c", Requests("cpu", "700m"))), DriftedNode("q2", "q", 1, Pod("d", Requests("cpu", "700m"))))
	order := func(a *disrupt.DriftBackoff, now time.Time) []string {
		var out []string
		for _, c := range a.DriftOrder(disrupt.NewView(s).Drifted(false), now) {
			out = append(out, c.Node.Name)
		}
		return out
	}
	now := s.Now
	check := func(name string, a *disrupt.DriftBackoff, at time.Time, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, order(a, at)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	a := &disrupt.DriftBackoff{}
	check("at first", a, now, "p1", "q1", "p2", "q2")
	a.Started("p", now)
	check("p had its turn", a, now, "q1", "p1", "q2", "p2")
	a.Failed("p", []types.UID{"p1"}, now, 0)
	check("p backs off", a, now.Add(59*time.Second), "q1", "q2")
	check("failed claims come last", a, now.Add(time.Minute), "q1", "p2", "q2", "p1")
	for i, pause := range []time.Duration{2, 4, 8, 10, 10} {
		t.Run(fmt.Sprintf("failure %d", i+2), func(t *testing.T) {
			a.Failed("p", nil, now, 0)
			if !a.BacksOff("p", now.Add(pause*time.Minute-time.Second)) || a.BacksOff("p", now.Add(pause*time.Minute)) {
				t.Errorf("does not back off for %d minutes", pause)
			}
		})
	}
	if a.Failed("p", nil, now, 0.999); !a.BacksOff("p", now.Add(12*time.Minute)) || a.BacksOff("p", now.Add(13*time.Minute)) {
		t.Error("jitter is not within a quarter")
	}
	a.Succeeded("p")
	check("a success resets the backoff", a, now, "q1", "p2", "q2", "p1")
	s.Nodes = s.Nodes[1:]
	a.Prune(disrupt.NewView(s))
	s.Nodes = append(s.Nodes, DriftedNode("p1", "p", 9, Pod("a", Requests("cpu", "700m"))))
	check("a deleted claim is forgotten", a, now, "q1", "p1", "q2", "p2")
}

func TestStaticDrift(t *testing.T) {
	static := func(replicas int64, budget string) *karpv1.NodePool {
		return Pool("s", nil, func(np *karpv1.NodePool) {
			np.Spec.Replicas = &replicas
			np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
		}).NodePool
	}
	nodes := func(n, drifted int) (out []snapshot.Node) {
		for i := range n {
			node := DriftedNode(fmt.Sprintf("n%d", i), "s", 5-i, Pod(fmt.Sprint("x", i)))
			if i >= drifted {
				node.DriftedAt = time.Time{}
			}
			out = append(out, node)
		}
		return out
	}
	failed := func(ago time.Duration) (a disrupt.DriftBackoff) {
		a.Failed("s", []types.UID{nodes(1, 1)[0].ClaimUID}, World(nil).Now.Add(-ago), 0)
		return a
	}
	none := disrupt.DriftBackoff{}
	tests := []struct {
		name     string
		pool     *karpv1.NodePool
		nodes    []snapshot.Node
		attempts disrupt.DriftBackoff
		want     []string
	}{
		{"a replacement has just failed", static(5, "2"), nodes(5, 4), failed(0), nil},
		{"one failed a while ago: others go first", static(5, "2"), nodes(5, 4), failed(time.Minute), []string{"n1", "n2"}},
		{"as many as the budget allows, the oldest first", static(5, "2"), nodes(5, 4), none, []string{"n0", "n1"}},
		{"replicas 1, 2 active: scale down first", static(1, "100%"), nodes(2, 2), none, nil},
		{"replicas 0", static(0, "100%"), nodes(1, 1), none, nil},
		{"no node is drifted", static(5, "100%"), nodes(5, 0), none, nil},
		{"a node that waits for its replacement counts once", static(3, "100%"), func() []snapshot.Node {
			out := nodes(3, 3)
			out[0].Disrupting = true
			return out
		}(), none, []string{"n1", "n2"}},
		{"its replacement is initialized: one too many until the old node is deleted", static(3, "100%"), func() []snapshot.Node {
			out := nodes(4, 3)
			out[0].Disrupting = true
			return out
		}(), none, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := World(nil)
			s.Closed, s.Nodes = []*karpv1.NodePool{tt.pool}, tt.nodes
			v := disrupt.NewView(s)
			var got []string
			for _, turn := range tt.attempts.StaticDrift(v, v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted))) {
				for _, c := range turn.Candidates {
					got = append(got, c.Node.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("replaced (-want +got):\n%s", diff)
			}
			if len(v.Drifted(false)) != 0 {
				t.Error("a node of a static pool is in the list for other pools")
			}
		})
	}
}
