package consolidate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

const (
	spot     = karpv1.CapacityTypeSpot
	onDemand = karpv1.CapacityTypeOnDemand
)

// priced is a type that all zones offer at these prices; no price, no offering.
func priced(name string, cpu int, onDemandPrice, spotPrice float64) *catalog.InstanceType {
	it := Type(name, 1, "cpu", fmt.Sprint(cpu), "memory", fmt.Sprintf("%dGi", 4*cpu))
	var offerings []catalog.Offering
	for _, zone := range Zones() {
		if onDemandPrice > 0 {
			offerings = append(offerings, Offering(zone, onDemand, onDemandPrice))
		}
		if spotPrice > 0 {
			offerings = append(offerings, Offering(zone, spot, spotPrice))
		}
	}
	return WithOfferings(it, offerings...)
}

// world is a pool of these types without nodes.
func world(list []*catalog.InstanceType, edit ...func(*karpv1.NodePool)) *snapshot.Snapshot {
	return unbounded(World([]snapshot.Pool{Pool("general", list, edit...)}))
}

// add adds a node to a pool: the first offering of the type with that capacity type, one day old, with the pods.
func add(s *snapshot.Snapshot, pool int, name, of, capacityType string, pods ...*corev1.Pod) *snapshot.Node {
	p := &s.Pools[pool]
	it := p.InstanceTypes[slices.IndexFunc(p.InstanceTypes, func(it *catalog.InstanceType) bool { return it.Name == of })]
	o := it.Offerings[slices.IndexFunc(it.Offerings, func(o catalog.Offering) bool { return o.CapacityType == capacityType })]
	n := workload.Node(name, p.NodePool, it, o)
	n.CreatedAt = s.Now.Add(-24 * time.Hour)
	for _, pod := range pods {
		n.Pods = append(n.Pods, Bound(pod, name))
	}
	s.Nodes = append(s.Nodes, n)
	return &s.Nodes[len(s.Nodes)-1]
}

func one(name, cpu string, edit ...func(*corev1.Pod)) *corev1.Pod {
	return Pod(name, append([]func(*corev1.Pod){Requests("cpu", cpu), OwnedBy("apps/v1", "ReplicaSet")}, edit...)...)
}

// removedNames are the names of the nodes that commands remove, sorted.
func removedNames(r consolidate.Result) (out []string) {
	for _, c := range r.Commands {
		for _, n := range c.Candidates {
			out = append(out, n.Node.Name)
		}
	}
	slices.Sort(out)
	return out
}

func launchedTypes(r consolidate.Result) (out [][]string) {
	for _, c := range r.Commands {
		for _, l := range c.Plan.Launches {
			var names []string
			for _, it := range l.InstanceTypes {
				names = append(names, it.Name)
			}
			out = append(out, names)
		}
	}
	return out
}

func reasons(r consolidate.Result) map[string]string {
	out := map[string]string{}
	for _, l := range r.Unconsolidatable {
		out[l.Candidate.Node.Name] = l.Message
	}
	return out
}

// wantNothing fails if a command is found, or if the node stays for another reason.
func wantNothing(t *testing.T, r consolidate.Result, node, why string) {
	t.Helper()
	if len(r.Commands) > 0 {
		t.Errorf("found %s, want nothing", describe(r))
	}
	if got := reasons(r)[node]; !strings.Contains(got, why) {
		t.Errorf("%s stays because %q, want %q", node, got, why)
	}
}

func wantRemoved(t *testing.T, r consolidate.Result, names ...string) {
	t.Helper()
	if got := removedNames(r); !slices.Equal(got, names) {
		t.Errorf("removed are %v, want %v: %s", got, names, describe(r))
	}
}

func defaults() consolidate.Settings { return consolidate.Settings{} }

func TestPriceRules(t *testing.T) {
	big := priced("big", 8, 0.8, 0)
	t.Run("the worst spot price of all zones counts", func(t *testing.T) {
		small := WithOfferings(priced("small", 2, 0, 0), Offering("z1", spot, 0.9), Offering("z2", spot, 0.05), Offering("z1", onDemand, 1.5))
		s := world([]*catalog.InstanceType{big, small})
		add(s, 0, "node", "big", onDemand, one("pod", "1"))
		wantNothing(t, find(s, defaults()), "node", "Can't replace with a cheaper node")
		small.Offerings[0].Price = 0.7
		wantRemoved(t, find(s, defaults()), "node")
	})
	t.Run("on-demand would cost more, so it must be spot", func(t *testing.T) {
		small := priced("small", 2, 0.9, 0.1)
		s := world([]*catalog.InstanceType{big, small})
		add(s, 0, "node", "big", onDemand, one("pod", "1"))
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if got := r.Commands[0].Plan.Launches[0].Requirements.Get(Capacity).Values(); !slices.Equal(got, []string{spot}) {
			t.Errorf("the capacity type may be %v, want spot only", got)
		}
	})
	t.Run("one node is not replaced by two nodes", func(t *testing.T) {
		unavailable := priced("big", 8, 0.8, 0)
		for i := range unavailable.Offerings {
			unavailable.Offerings[i].Available = false
		}
		s := world([]*catalog.InstanceType{unavailable, priced("half", 4, 0.1, 0)})
		add(s, 0, "node", "big", onDemand, one("a", "3"), one("b", "3"))
		wantNothing(t, find(s, defaults()), "node", "Can't remove without creating 2 candidates")
	})
	t.Run("minValues are not relaxed", func(t *testing.T) {
		list := []*catalog.InstanceType{big, priced("a", 2, 0.2, 0), priced("b", 2, 0.25, 0), priced("c", 8, 0.9, 0)}
		s := world(list, Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(3))
		s.Settings.MinValuesPolicy = snapshot.MinValuesBestEffort
		add(s, 0, "node", "big", onDemand, one("pod", "1"))
		wantNothing(t, find(s, defaults()), "node", "Filtering by price: minValues")
		*s.Pools[0].NodePool.Spec.Template.Spec.Requirements[0].MinValues = 2
		wantRemoved(t, find(s, defaults()), "node")
	})
}

// TestEqualTypeRules has nodes that would be replaced by one of their own type.
func TestEqualTypeRules(t *testing.T) {
	list := func(more ...*catalog.InstanceType) []*catalog.InstanceType {
		return append(more, priced("small", 2, 0.1, 0), priced("xl", 4, 0.2, 0), priced("2xl", 8, 0.4, 0))
	}
	// Each pod fits on a small node, but none beside another: they use the same host port.
	alone := func(name string) *corev1.Pod { return one(name, "500m", HostPort("", 80, corev1.ProtocolTCP)) }
	t.Run("minValues that types other than the removed ones do not satisfy", func(t *testing.T) {
		s := world(list(priced("nano", 2, 0.05, 0)), Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(2))
		add(s, 0, "a", "2xl", onDemand, one("pod-a", "700m"))
		add(s, 0, "b", "small", onDemand, one("pod-b", "1500m"))
		r := find(s, defaults())
		if len(launchedTypes(r)) > 0 && slices.Contains(removedNames(r), "b") {
			t.Errorf("found %s, want node b to stay: without its type only nano is left", describe(r))
		}
		if !slices.Contains(removedNames(r), "a") {
			t.Errorf("found %s, want node a to be removed", describe(r))
		}
	})
	t.Run("of two nodes that fit on each other, the one with fewer pods is removed", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
		add(s, 0, "few", "xl", onDemand, one("a", "1"))
		add(s, 0, "many", "xl", onDemand, one("b", "1"), one("c", "1"))
		r := find(s, defaults())
		wantRemoved(t, r, "few")
		if len(launchedTypes(r)) > 0 {
			t.Errorf("found %s, want nothing to be launched", describe(r))
		}
	})
	t.Run("two 2xl and a small node are not replaced by a small one", func(t *testing.T) {
		for _, nano := range []bool{false, true} {
			types := list()
			if nano {
				types = list(priced("nano", 2, 0.05, 0))
			}
			s := world(types)
			add(s, 0, "a", "2xl", onDemand, one("pod-a", "500m"))
			add(s, 0, "b", "2xl", onDemand, one("pod-b", "500m"))
			add(s, 0, "c", "small", onDemand, one("pod-c", "500m"))
			r := find(s, defaults())
			if nano {
				if got := launchedTypes(r); len(got) != 1 || !slices.Equal(got[0], []string{"nano"}) {
					t.Errorf("launched are %v, want nano only: %s", got, describe(r))
				}
				wantRemoved(t, r, "a", "b", "c")
				continue
			}
			wantRemoved(t, r, "a", "b")
			if len(launchedTypes(r)) > 0 {
				t.Errorf("found %s, want their pods to join the small one", describe(r))
			}
		}
	})
	t.Run("none of several replacements is equal to a removed node", func(t *testing.T) {
		s := world(list())
		for _, name := range []string{"a", "b", "c"} {
			add(s, 0, name, "2xl", onDemand, alone(name))
		}
		add(s, 0, "d", "small", onDemand, alone("d"))
		r := find(s, defaults())
		wantRemoved(t, r, "a", "b", "c")
		for _, names := range launchedTypes(r) {
			if !slices.Equal(names, []string{"small"}) && !slices.Equal(names, []string{"small", "xl"}) {
				t.Errorf("launched is one of %v, want small", names)
			}
		}
	})
}

func TestDestinationRules(t *testing.T) {
	list := []*catalog.InstanceType{priced("xl", 4, 0.2, 0)}
	t.Run("pods move to nodes that Dovetail does not manage", func(t *testing.T) {
		s := world(list)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		other := Node("other", "")
		other.Claim, other.Pool = "", ""
		s.Nodes = append(s.Nodes, other)
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if len(launchedTypes(r)) > 0 || r.Commands[0].Plan.Placements[0].Node != "other" {
			t.Errorf("found %s, want the pod to move to the other node", describe(r))
		}
	})
	t.Run("no pod moves to a node that is about to be removed as empty", func(t *testing.T) {
		s := world(list)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		vacant := add(s, 0, "vacant", "xl", onDemand)
		wantNothing(t, find(s, defaults()), "node", "Can't replace with a cheaper node")
		vacant.NominatedUntil = s.Now.Add(20 * time.Second) // for a pod that has come and gone
		wantNothing(t, find(s, defaults()), "node", "Can't replace with a cheaper node")
		s.Pods = []*corev1.Pod{one("pending", "2")} // fits on one of the two
		wantRemoved(t, find(s, defaults()), "node")
		s.Pods = nil
		vacant.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if len(launchedTypes(r)) > 0 {
			t.Errorf("found %s, want the pod to move to the node that stays", describe(r))
		}
	})
	t.Run("no pod moves to a node that is not initialized", func(t *testing.T) {
		s := world(list)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		add(s, 0, "coming", "xl", onDemand).Initialized = false
		wantNothing(t, find(s, defaults()), "node", "default/pod => would schedule against uninitialized nodeclaim/coming, node/coming")
		add(s, 0, "up", "xl", onDemand, one("own", "3"))
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if r.Commands[0].Plan.Placements[0].Node != "up" {
			t.Errorf("found %s, want the pod to move to the node that is up", describe(r))
		}
	})
	t.Run("no pod moves to a node with a taint that something else has yet to remove", func(t *testing.T) {
		s := world(list)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		coming := add(s, 0, "coming", "xl", onDemand)
		coming.Awaited = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
		coming.Consolidatable = false // else it would be about to be removed as empty
		wantNothing(t, find(s, defaults()), "node", "default/pod => would schedule against uninitialized nodeclaim/coming, node/coming")
		add(s, 0, "up", "xl", onDemand, one("own", "3")) // after the other by name
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if r.Commands[0].Plan.Placements[0].Node != "up" {
			t.Errorf("found %s, want the pod to move to the node without the taint", describe(r))
		}
	})
	t.Run("a pod of a deleting node may run on a node that is not initialized", func(t *testing.T) {
		s := world(list)
		leaving := one("leaving", "4")
		add(s, 0, "going", "xl", onDemand, leaving).Deleting = true
		s.Pods = []*corev1.Pod{leaving}
		add(s, 0, "coming", "xl", onDemand).Initialized = false
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		add(s, 0, "up", "xl", onDemand, one("own", "3"))
		wantRemoved(t, find(s, defaults()), "node")
	})
	t.Run("a pod that never fits does not matter", func(t *testing.T) {
		s := world(list)
		s.Pods = []*corev1.Pod{Pod("huge", Requests("cpu", "100"))}
		add(s, 0, "a", "xl", onDemand, one("pod-a", "1"))
		add(s, 0, "b", "xl", onDemand, one("pod-b", "2"))
		wantRemoved(t, find(s, defaults()), "a")
	})
	t.Run("a node that a pending pod needs is not replaced by a smaller one", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0), priced("4xl", 16, 0.8, 0)})
		add(s, 0, "node", "4xl", onDemand, one("pod", "1"))
		s.Pods = []*corev1.Pod{Pod("huge", Requests("cpu", "14"))}
		wantNothing(t, find(s, defaults()), "node", "Can't replace with a cheaper node")
		s.Pods = nil
		wantRemoved(t, find(s, defaults()), "node")
	})
	t.Run("no running pod becomes pending", func(t *testing.T) {
		s := world(list, Limit("cpu", "8"))
		s.Pools[0].Used = Resources("cpu", "8")
		add(s, 0, "a", "xl", onDemand, one("pod-a", "3"))
		add(s, 0, "b", "xl", onDemand, one("pod-b", "3"))
		wantNothing(t, find(s, defaults()), "a", "Not all pods would schedule, default/pod-a => ")
	})
	t.Run("a node inside consolidateAfter takes no running pods", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
		s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute)
		add(s, 0, "node", "m", onDemand, one("pod", "1500m"))
		add(s, 0, "busy", "xl", onDemand, one("own", "1")).Consolidatable = false
		wantNothing(t, find(s, defaults()), "node", "Can't replace with a cheaper node")
		if r := find(s, defaults()); reasons(r)["busy"] == "" {
			t.Error("no message says why the busy node stays")
		}
		s.Nodes[0] = *add(s, 0, "node", "xl", onDemand, one("pod", "1500m"))
		s.Nodes = s.Nodes[:2]
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if got := launchedTypes(r); len(got) != 1 {
			t.Errorf("found %s, want a new node", describe(r))
		}
		s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.After(0)
		if r := find(s, defaults()); len(launchedTypes(r)) > 0 || len(removedNames(r)) != 1 {
			t.Errorf("found %s, want the pod to move: with consolidateAfter 0s no node is busy", describe(r))
		}
	})
	t.Run("nodes of a pool with consolidateAfter Never take pods", func(t *testing.T) {
		s := world(list)
		s.Pools = append(s.Pools, Pool("steady", list))
		s.Pools[1].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.Never()
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		add(s, 1, "steady", "xl", onDemand, one("own", "1")).Consolidatable = false
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if got := reasons(r)["steady"]; got != `NodePool "steady" has consolidation disabled` {
			t.Errorf("the steady node stays because %q", got)
		}
	})
	t.Run("a volume on the node's local disk does not block it", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
		add(s, 0, "node", "xl", onDemand, one("pod", "1", Claims("disk")))
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/disk"}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{Expr(Host, corev1.NodeSelectorOpIn, "node")},
		}}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: "disk", Namespace: "default", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
		}}
		claim.Spec.VolumeName, claim.Status.Phase = "disk", corev1.ClaimBound
		s.Volumes.Volumes = map[string]*corev1.PersistentVolume{"disk": pv}
		s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{{Namespace: "default", Name: "disk"}: claim}
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if len(launchedTypes(r)) != 1 {
			t.Errorf("found %s, want a new node", describe(r))
		}
	})
	t.Run("a pod without an owner moves like others", func(t *testing.T) {
		s := world(list)
		add(s, 0, "a", "xl", onDemand, Pod("bare", Requests("cpu", "1")))
		add(s, 0, "b", "xl", onDemand, one("pod-b", "2"))
		wantRemoved(t, find(s, defaults()), "a")
	})
	t.Run("pools that cannot launch do not matter", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
		s.Pools = append(s.Pools, Pool("empty", nil))
		closed := Pool("closed", nil)
		s.Closed = []*karpv1.NodePool{closed.NodePool}
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		wantRemoved(t, find(s, defaults()), "node")
	})
	t.Run("no move violates a topology spread or an anti-affinity", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
		for k, zone := range Zones() {
			n := add(s, 0, "node-"+zone, "m", onDemand, one("pod-"+zone, "1", Labeled("app", "web"), Spread(Zone, 1, "web")))
			if k == 1 {
				s.Nodes = s.Nodes[:k]
				n = add(s, 0, "node-"+zone, "xl", onDemand, one("pod-"+zone, "1", Labeled("app", "web"), Spread(Zone, 1, "web")))
			}
			n.Labels[Zone] = zone
		}
		r := find(s, defaults())
		wantRemoved(t, r, "node-z2")
		if got := r.Commands[0].Plan.Launches[0].Requirements.Get(Zone).Values(); !slices.Equal(got, []string{"z2"}) {
			t.Errorf("the replacement may be in %v, want z2", got)
		}
		s = world(list)
		add(s, 0, "a", "xl", onDemand, one("pod-a", "1", Labeled("app", "web"), Apart(Host, "web")))
		add(s, 0, "b", "xl", onDemand, one("pod-b", "1", Labeled("app", "web"), Apart(Host, "web")))
		wantNothing(t, find(s, defaults()), "a", "Can't replace with a cheaper node")
	})
	t.Run("preferences that are ignored do not matter", func(t *testing.T) {
		s := world(list)
		for _, name := range []string{"a", "b"} {
			add(s, 0, name, "xl", onDemand, one("pod-"+name, "1", Labeled("app", "web"), PreferApart(10, Host, "web")))
		}
		wantNothing(t, find(s, defaults()), "a", "Can't replace with a cheaper node")
		s.Settings.PreferencePolicy = snapshot.PreferencesIgnore
		if r := find(s, defaults()); len(removedNames(r)) != 1 {
			t.Errorf("found %s, want one node to be removed", describe(r))
		}
	})
}

// spotTypes are n types of rising price, and one that costs most.
func spotTypes(n int) []*catalog.InstanceType {
	out := []*catalog.InstanceType{priced("dear", 4, 0, 9)}
	for k := range n {
		out = append(out, priced(fmt.Sprintf("t%02d", k), 4, 0, 0.1+0.01*float64(k)))
	}
	return out
}
