package replace_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// reservedType is a type in full reservations.
func reservedType(ids ...string) *catalog.InstanceType {
	it := Type("m.small", 0.05, "cpu", "1", "memory", "4Gi")
	for _, id := range ids {
		it = WithReservation(it, id, 0)
	}
	return it
}

func reservedPool(it *catalog.InstanceType, edit ...func(*karpv1.NodePool)) snapshot.Pool {
	return Pool("p", []*catalog.InstanceType{it}, append([]func(*karpv1.NodePool){
		AnyBudget, Require(Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeReserved),
	}, edit...)...)
}

// inReservation puts a node into a reservation.
func inReservation(n snapshot.Node, id string) snapshot.Node {
	n.Labels[Capacity], n.Labels[ReservationID] = karpv1.CapacityTypeReserved, id
	n.Labels[corev1.LabelInstanceTypeStable], n.Labels[Zone] = "m.small", "z1"
	return n
}

func reservedNode(name, id string, hours int, pods ...*corev1.Pod) snapshot.Node {
	return inReservation(DriftedNode(name, "p", hours, pods...), id)
}

// driftFirst returns what drift finds with the feature gate TerminateFirstDrift.
func driftFirst(s *snapshot.Snapshot) (*disrupt.Command, []disrupt.Unconsolidatable) {
	v, a := disrupt.NewView(s), &disrupt.DriftBackoff{}
	room := v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted))
	return replace.Drift(schedule.Compile(s), v, replace.DriftSearch{
		Order: a.DriftOrder(v.Drifted(false), s.Now), Remaining: room, MaxRejections: maxTried,
		Freed: &replace.FreedSlots{View: v, Compile: schedule.Compile, Remaining: room},
	})
}

func lacking(it *catalog.InstanceType, reason catalog.UnavailableReason) *catalog.InstanceType {
	for i := range it.Offerings {
		if it.Offerings[i].ReservationID != "" {
			it.Offerings[i].UnavailableReason = reason
		}
	}
	return it
}

// A drifted node goes before its replacement only if nothing else is possible, and if its own slot is what is missing.
func TestDriftedNodeInAFullReservation(t *testing.T) {
	pod := func(edit ...func(*corev1.Pod)) *corev1.Pod { return Pod("a", append(edit, Requests("cpu", "700m"))...) }
	pending := Pod("waits", Requests("cpu", "700m"))
	starting := func(n snapshot.Node) snapshot.Node {
		n.DriftedAt, n.Initialized, n.Ready = time.Time{}, false, false
		return n
	}
	fresh := func(name string, age time.Duration) snapshot.Node {
		n := reservedNode(name, "cr-1", 0)
		n.DriftedAt, n.CreatedAt, n.Allocatable = time.Time{}, Now().Add(-age), Resources("cpu", "0")
		return n
	}
	for _, tt := range []struct {
		name    string
		pools   []snapshot.Pool
		nodes   []snapshot.Node
		pending []*corev1.Pod
		first   string // the node that goes first
		message string // on a node that stays
	}{
		{
			name: "its slot is all that is missing", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod())}, first: "n",
		},
		{
			name: "on-demand is allowed", pools: []snapshot.Pool{Pool("p", []*catalog.InstanceType{reservedType("cr-1")}, AnyBudget)},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod())},
		},
		{
			name: "the reservation is about to end", pools: []snapshot.Pool{reservedPool(lacking(reservedType("cr-1"), ""))},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod())}, message: "Not all pods would schedule",
		},
		{
			name: "its reservation is not known", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{reservedNode("n", "cr-2", 1, pod())}, message: "Not all pods would schedule",
		},
		{
			name: "it runs on demand", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{DriftedNode("n", "p", 1, pod())}, message: "Not all pods would schedule",
		},
		{
			name: "its pods would not fit even then", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod(), Pod("b", Requests("cpu", "700m")))}, message: "Not all pods would schedule",
		},
		{
			name: "a pending pod would take the slot", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))}, pending: []*corev1.Pod{pending},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod())}, message: "pod default/waits waits for a free instance in capacity reservation cr-1",
		},
		{
			name: "a pending pod fits nowhere, whatever becomes free", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			pending: []*corev1.Pod{Pod("huge", Requests("cpu", "64"))},
			nodes:   []snapshot.Node{reservedNode("n", "cr-1", 1, pod())}, first: "n",
		},
		{
			name: "the node launched last is not up", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes:   []snapshot.Node{reservedNode("n", "cr-1", 1, pod()), starting(fresh("new", 2*time.Hour))},
			message: "no other node is terminated first until",
		},
		{
			name: "the node launched last is up", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod()), fresh("new", time.Minute)}, first: "n",
		},
		{
			name: "one that came up since the drift allows another, while one starts", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes: []snapshot.Node{reservedNode("n", "cr-1", 1, pod()), fresh("up", time.Minute), starting(fresh("new", 0))}, first: "n",
		},
		{
			name: "one that came up before the drift proves nothing", pools: []snapshot.Pool{reservedPool(reservedType("cr-1"))},
			nodes:   []snapshot.Node{reservedNode("n", "cr-1", 1, pod()), fresh("up", 2*time.Hour), starting(fresh("new", 0))},
			message: "no other node is terminated first until",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := worldOf(tt.pools, tt.nodes...)
			s.Pods = tt.pending
			cmd, left := driftFirst(s)
			if cmd != nil && cmd.TerminateFirst == "" && tt.first == "" && tt.message == "" {
				return // it is replaced as usual
			}
			if nameOf(cmd) != tt.first || cmd != nil && (cmd.TerminateFirst != disrupt.NoReservedCapacity || len(cmd.Plan.Launches) > 0) {
				t.Errorf("command %+v, want %q to go first", cmd, tt.first)
			}
			if tt.message != "" && (len(left) == 0 || !strings.HasPrefix(left[0].Message, tt.message)) {
				t.Errorf("left %+v, want %q", left, tt.message)
			}
			if cmd, _ := nextDrift(s, &disrupt.DriftBackoff{}); cmd != nil {
				t.Errorf("without the feature gate: %+v", cmd)
			}
		})
	}
}

// An unhealthy node frees its slot, too, and what bounds its drain stays.
func TestUnhealthyNodeInAFullReservation(t *testing.T) {
	bound := 10 * time.Minute
	for _, enabled := range []bool{true, false} {
		n := reservedNode("n", "cr-1", 0, Pod("a", Requests("cpu", "700m")))
		n.DriftedAt, n.Unhealthy = time.Time{}, true
		n.Repair = &repair.Decision{Action: karpv1.RepairReplace, EligibleAt: Now().Add(-time.Minute), Bound: &bound}
		s := worldOf([]snapshot.Pool{reservedPool(reservedType("cr-1"))}, n)
		v := disrupt.NewView(s)
		due, _ := v.Unhealthy()
		room := v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionUnhealthy))
		search := &replace.RepairSearch{View: v, Remaining: room, Breaker: v.NewBreaker(due)}
		if enabled {
			search.Freed = &replace.FreedSlots{View: v, Compile: schedule.Compile, Remaining: room}
		}
		cmd, held := search.Evaluate(func() *schedule.Problem { return schedule.Compile(s) }, due[0])
		if (cmd != nil) != enabled || (held == nil) != enabled {
			t.Fatalf("enabled %t: command %+v, held back %+v", enabled, cmd, held)
		}
		if enabled && (cmd.TerminateFirst != disrupt.NoReservedCapacity || cmd.Bound != &bound || cmd.Reason != karpv1.DisruptionUnhealthy) {
			t.Errorf("%+v", cmd)
		}
	}
}

// What a static pool at its limit, or in full reservations, does with a drifted node.
func TestStaticNodeWithoutRoomForItsReplacement(t *testing.T) {
	fixed := func(replicas int64) snapshot.Pool {
		return Pool("p", nil, AnyBudget, func(np *karpv1.NodePool) { np.Spec.Replicas = &replicas })
	}
	full := reservation.TemplateRoom{Only: true, Full: []string{"cr-1"}}
	up := DriftedNode("up", "p", 1)
	up.DriftedAt, up.CreatedAt = time.Time{}, Now().Add(-2*time.Hour)
	proof := up
	proof.CreatedAt = Now()
	starting := up
	starting.Initialized = false
	leaving := up
	leaving.Deleting = true
	node := DriftedNode("n", "p", 1)
	const waits = "no other node is terminated first until"
	for _, tt := range []struct {
		name     string
		replicas int64
		limit    int64
		room     reservation.TemplateRoom
		off      bool
		nodes    []snapshot.Node
		budget   string
		want     disrupt.TerminateFirstReason
		message  string
	}{
		{name: "at its limit", replicas: 2, limit: 2, nodes: []snapshot.Node{node, up}, want: disrupt.StaticAtLimit},
		{name: "gate off", off: true, replicas: 2, limit: 2, nodes: []snapshot.Node{node, up}, message: replace.AtNodeLimit},
		{name: "a slot will be free", replicas: 2, limit: 3, nodes: []snapshot.Node{node, up, leaving}, message: replace.AtNodeLimit},
		{name: "more nodes than the limit", replicas: 3, limit: 1, nodes: []snapshot.Node{node, up}, message: replace.AtNodeLimit},
		{name: "a node is missing", replicas: 3, limit: 3, nodes: []snapshot.Node{node, up}, message: waits},
		{name: "more replicas than the limit", replicas: 5, limit: 2, nodes: []snapshot.Node{node, up}, want: disrupt.StaticAtLimit},
		{name: "a node starts", replicas: 2, limit: 2, nodes: []snapshot.Node{node, starting}, message: waits},
		{name: "a node ends", replicas: 2, limit: 2, nodes: []snapshot.Node{node, leaving}, message: waits},
		{name: "a node starts, one has come up since", replicas: 3, limit: 3, nodes: []snapshot.Node{node, proof, starting}, want: disrupt.StaticAtLimit},
		{name: "so, and the budget is one node", budget: "1", replicas: 3, limit: 3, nodes: []snapshot.Node{node, proof, starting}, message: waits},
		{name: "reservations full", replicas: 2, limit: 9, room: full, nodes: []snapshot.Node{inReservation(DriftedNode("n", "p", 1), "cr-1"), up}, want: disrupt.NoReservedCapacity},
		{name: "its slot is none of them", replicas: 2, limit: 9, room: full, nodes: []snapshot.Node{inReservation(DriftedNode("n", "p", 1), "cr-2"), up}, message: replace.ReservationsFull},
		{name: "reservations full, gate off", off: true, replicas: 1, limit: 9, room: full, nodes: []snapshot.Node{inReservation(DriftedNode("n", "p", 1), "cr-1")}, message: replace.ReservationsFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := fixed(tt.replicas)
			if tt.budget != "" {
				pool.NodePool.Spec.Disruption.Budgets[0].Nodes = tt.budget
			}
			s := worldOf(nil, tt.nodes...)
			s.Closed = []*karpv1.NodePool{pool.NodePool}
			v := disrupt.NewView(s)
			refill := &replace.StaticRefill{
				View: v, Reason: karpv1.DisruptionDrifted, Remaining: v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted)),
				Pool: pool.NodePool, Limit: tt.limit, Room: tt.room, Enabled: !tt.off,
			}
			decide := refill.AtLimit
			if tt.room.Exhausted() {
				decide = refill.InReservation
			}
			cmd, why := decide(v.Drifted(true)[0])
			if (cmd == nil) != (tt.want == "") || cmd != nil && cmd.TerminateFirst != tt.want || !strings.HasPrefix(why, tt.message) {
				t.Errorf("command %+v, %q; want %q, %q", cmd, why, tt.want, tt.message)
			}
		})
	}
}

// A launch into a reservation with drifted nodes makes up for one that was terminated first.
func TestRefillReason(t *testing.T) {
	into := func(ids ...string) *schedule.Launch {
		l := &schedule.Launch{}
		if len(ids) > 0 {
			l.Requirements = requirement.NewSet(requirement.In(ReservationID, ids...))
		}
		return l
	}
	healthy := reservedNode("a", "cr-1", 1)
	healthy.DriftedAt = time.Time{}
	starting := reservedNode("a", "cr-1", 1)
	starting.Initialized = false
	for _, tc := range []struct {
		name string
		node snapshot.Node
		l    *schedule.Launch
		want karpv1.DisruptionReason
	}{
		{"a drifted node in the reservation", reservedNode("a", "cr-1", 1), into("cr-1", "cr-2"), karpv1.DisruptionDrifted},
		{"in another", reservedNode("a", "cr-3", 1), into("cr-1", "cr-2"), ""},
		{"a launch into none", reservedNode("a", "cr-1", 1), into(), ""},
		{"no node is drifted", healthy, into("cr-1"), ""},
		{"the drifted one has not come up itself", starting, into("cr-1"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := World([]snapshot.Pool{reservedPool(reservedType("cr-1"))})
			s.Nodes = []snapshot.Node{tc.node}
			if got := disrupt.RefillReason(s, tc.l); got != tc.want {
				t.Errorf("reason %q, want %q", got, tc.want)
			}
		})
	}
}
