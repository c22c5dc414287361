package explain_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/explain"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

type np = karpv1.NodePool

const (
	arch = corev1.LabelArchStable
	zone = corev1.LabelTopologyZone
	in   = corev1.NodeSelectorOpIn
)

// fakeSearch refuses as the function decides, and takes every pod otherwise.
type fakeSearch struct {
	refuse      func(a explain.Attempt) rejection.Code
	constraints []explain.Constraint
	devices     error
	claim       string
	attempts    int
}

func (s *fakeSearch) Try(a explain.Attempt) (*rejection.Nearest, rejection.Code) {
	s.attempts++
	if code := s.refuse(a); code != "" {
		return nil, code
	}
	return &rejection.Nearest{InstanceType: "small", Zone: "z1", CapacityType: "spot"}, ""
}

func (s *fakeSearch) Constraints() []explain.Constraint { return s.constraints }

func (s *fakeSearch) FindDevices(*nodepool.Candidates) error { return s.devices }

func (s *fakeSearch) VolumeClaim(string) string { return s.claim }

// fakeConstraint is a topology constraint.
type fakeConstraint struct {
	key      string
	apart    bool
	selector string
}

func (c *fakeConstraint) Key() string { return c.key }

func (c *fakeConstraint) Describe(*nodepool.Template) rejection.Constraint {
	if c.apart {
		return rejection.Constraint{Kind: rejection.KindApart, Key: c.key, Selector: c.selector}
	}
	return rejection.Constraint{
		Kind: rejection.KindSpread, Key: c.key, MaxSkew: 1,
		Pods: rejection.DomainCounts{First: []rejection.DomainCount{{Domain: "z1", Pods: 1}}},
	}
}

func (c *fakeConstraint) Spreads() bool                    { return !c.apart }
func (c *fakeConstraint) KeepsApart() bool                 { return c.apart }
func (c *fakeConstraint) Selector() string                 { return "app=web" }
func (c *fakeConstraint) Domains(requirement.Set) []string { return []string{"z1", "z2"} }

// reasons are the reasons for pods that a search leaves in a cluster with these pools. The search refuses by the rules of
// the function.
func reasons(t *testing.T, pools []snapshot.Pool, pod *corev1.Pod, search *fakeSearch, edit ...func(*explain.Pods)) []rejection.Reason {
	t.Helper()
	s := World(pools, pod)
	axes := resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0"))
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: axes, Slots: &reservation.Slots{}, Steps: new(int),
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	selection, err := s.Labels.FromPod(&pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	list := snapshot.Requests(pod)
	p := &explain.Pods{
		Pod: pod, Selection: selection, Volumes: []requirement.Interned{{}}, Tolerations: pod.Spec.Tolerations,
		Requests: axes.Vec(list), ResourceList: list, Ports: resources.HostPorts(pod), Search: search,
	}
	for _, e := range edit {
		e(p)
	}
	return explain.New(s, models, axes).Reasons(p)
}

func general(edit ...func(*np)) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", Types(), edit...)}
}

// only checks that there is one reason, and returns it.
func only(t *testing.T, got []rejection.Reason, code rejection.Code) rejection.Reason {
	t.Helper()
	if len(got) != 1 || got[0].Code != code {
		t.Fatalf("reasons %+v, want one of code %s", got, code)
	}
	return got[0]
}

func refuse(code rejection.Code, unless func(a explain.Attempt) bool) *fakeSearch {
	return &fakeSearch{refuse: func(a explain.Attempt) rejection.Code {
		if unless(a) {
			return ""
		}
		return code
	}}
}

func never(explain.Attempt) bool { return false }

func TestReasonsBeforeAnyAttempt(t *testing.T) {
	volume := func(p *explain.Pods) {
		p.Volumes[0].Set = requirement.NewSet(requirement.In(zone, "z2"))
	}
	unknown := func(p *explain.Pods) {
		p.UnknownResources = []corev1.ResourceName{"example.com/a", "example.com/b"}
		p.ResourceList = Resources("example.com/a", "2")
	}
	for _, c := range []struct {
		name  string
		pools []snapshot.Pool
		pod   *corev1.Pod
		edit  func(*explain.Pods)
		code  rejection.Code
		want  string
	}{
		{"no pools", nil, Pod("a"), func(*explain.Pods) {}, rejection.NoPools, "no NodePool can launch nodes"},
		{
			"the pod contradicts itself", general(), Pod("a", Selects(zone, "z1"), Needs(Expr(zone, in, "z2"))), func(*explain.Pods) {},
			rejection.Requirement, "the pod contradicts itself: nothing can be both",
		},
		{
			"pod and volume contradict each other", general(), Pod("a", Selects(zone, "z1")), volume,
			rejection.Volume, "but its volumes can only be used in",
		},
		{
			"resources that nothing has", general(), Pod("a"), unknown,
			rejection.Resources, "the pod needs 2 example.com/a, which neither a node nor an instance type has, nor any of 1 other",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			search := refuse(rejection.Resources, never)
			if r := only(t, reasons(t, c.pools, c.pod, search, c.edit), c.code); !strings.Contains(wording.Reason(r), c.want) {
				t.Errorf("%q, want %q", wording.Reason(r), c.want)
			}
			if search.attempts > 0 {
				t.Errorf("%d attempts, want none", search.attempts)
			}
		})
	}
}

func TestTheOnlyObstacleSaysWhereThePodFits(t *testing.T) {
	search := refuse(rejection.Taint, func(a explain.Attempt) bool { return a.AnyTaints })
	r := only(t, reasons(t, general(PoolTaint("dedicated", corev1.TaintEffectNoSchedule)), Pod("a"), search), rejection.Taint)
	if want := "fits small in z1, but the pod does not tolerate taint dedicated:NoSchedule"; wording.Reason(r) != want {
		t.Errorf("%q, want %q", wording.Reason(r), want)
	}
	if r.NodePool != "general" || r.Nearest == nil || r.Nearest.InstanceType != "small" {
		t.Errorf("%+v, want the pool and the nearest node", r)
	}
}

func TestObstaclesThatDoNotMatterAreDropped(t *testing.T) {
	// The search names limits first, but a node without ports in use would be within them.
	search := &fakeSearch{refuse: func(a explain.Attempt) rejection.Code {
		switch {
		case a.AnyPorts:
			return ""
		case len(a.Template.LimitUses()) > 0 && a.Template.LimitUses()[0].Left < 1000_000:
			return rejection.Limits
		}
		return rejection.HostPort
	}}
	pod := Pod("a", HostPort("", 80, corev1.ProtocolTCP))
	r := only(t, reasons(t, general(Limit("cpu", "1")), pod, search), rejection.HostPort)
	if !strings.Contains(wording.Reason(r), "a DaemonSet takes the pod's host port") {
		t.Errorf("%q, want the host port", wording.Reason(r))
	}
}

func TestSeveralObstaclesAreAllNamed(t *testing.T) {
	search := &fakeSearch{refuse: func(a explain.Attempt) rejection.Code {
		switch {
		case !a.AnyTaints:
			return rejection.Taint
		case !a.AnyPorts:
			return rejection.HostPort
		}
		return ""
	}}
	got := reasons(t, general(PoolTaint("dedicated", corev1.TaintEffectNoSchedule)), Pod("a"), search)
	if len(got) != 2 || got[0].Code != rejection.Taint || got[1].Code != rejection.HostPort {
		t.Fatalf("%+v, want taint and port", got)
	}
	if want := "; but for these 2 reasons it fits small in z1"; !strings.HasSuffix(wording.Reason(got[1]), want) {
		t.Errorf("%q, want it to end with %q", wording.Reason(got[1]), want)
	}
}

func TestConflictOfPodAndPool(t *testing.T) {
	pool := general(Require(zone, in, "z1"))
	search := refuse(rejection.Requirement, func(a explain.Attempt) bool {
		return !a.Required.Defines(zone) || a.Template.Requirements().Get(zone).Has("z3")
	})
	r := only(t, reasons(t, pool, Pod("a", Selects(zone, "z3")), search), rejection.Requirement)
	for _, want := range []string{"the pool allows only", "z1", "the pod requires", "z3"} {
		if !strings.Contains(wording.Reason(r), want) {
			t.Errorf("%q lacks %q", wording.Reason(r), want)
		}
	}
}

func TestTopologyNamesTheConstraintThatDecides(t *testing.T) {
	spread, apart := &fakeConstraint{zone, false, ""}, &fakeConstraint{zone, true, "app=web"}
	mirror := &fakeConstraint{zone, true, "app=db"}
	waived := func(a explain.Attempt, c explain.Constraint) bool { return slices.Contains(a.Waived, c) }
	search := refuse(rejection.Topology, func(a explain.Attempt) bool { return waived(a, spread) })
	search.constraints = []explain.Constraint{apart, mirror, spread}
	r := only(t, reasons(t, general(), Pod("a"), search), rejection.Topology)
	want := "fits small in z1, but topology spread over topology.kubernetes.io/zone with maxSkew 1 (pods now: z1 (1)) allows no more anywhere; " +
		"a node of this pool for it can only be in z1, z2"
	if wording.Reason(r) != want {
		t.Errorf("%q, want %q", wording.Reason(r), want)
	}
	search = refuse(rejection.Topology, func(a explain.Attempt) bool { return waived(a, apart) && waived(a, mirror) })
	search.constraints = []explain.Constraint{apart, mirror, spread}
	r = only(t, reasons(t, general(), Pod("a"), search), rejection.Topology)
	if !strings.HasPrefix(wording.Reason(r), "fits small in z1, but pod anti-affinity over topology.kubernetes.io/zone to pods with app=web;") {
		t.Errorf("%q, want the anti-affinity, waived in both directions", wording.Reason(r))
	}
}

func TestThePoolsOwnRequirementCausesTopology(t *testing.T) {
	spread := &fakeConstraint{zone, false, ""}
	search := refuse(rejection.Topology, func(a explain.Attempt) bool { return slices.Contains(a.NewDomains, zone) })
	search.constraints = []explain.Constraint{spread}
	r := only(t, reasons(t, general(Require(zone, in, "z1")), Pod("a"), search), rejection.Topology)
	if text := wording.Reason(r); !strings.HasPrefix(text, "fits small in z1, but topology spread") || !strings.HasSuffix(text, "; the pool allows only "+zone+"=z1") {
		t.Errorf("%q, want the pool's zones", wording.Reason(r))
	}
}

func TestAnObstacleThatCannotBeWaivedIsTheLast(t *testing.T) {
	search := refuse(rejection.Reserved, never)
	r := only(t, reasons(t, general(), Pod("a"), search), rejection.Reserved)
	if r.Nearest != nil || search.attempts != 1 {
		t.Errorf("%+v after %d attempts, want one attempt and no nearest node", r, search.attempts)
	}
}

func TestSizeNamesTheRequestAndTheLargestType(t *testing.T) {
	r := only(t, reasons(t, general(), Pod("a", Requests("cpu", "1000")), refuse(rejection.Resources, never)), rejection.Resources)
	if !strings.Contains(wording.Reason(r), "the pod needs 1k cpu: no instance type is that large; ") {
		t.Errorf("%q, want the request and that no type is that large", wording.Reason(r))
	}
}

func TestDevices(t *testing.T) {
	search := refuse(rejection.Devices, never)
	search.devices = errors.New("no GPU is free")
	r := only(t, reasons(t, general(), Pod("a"), search), rejection.Devices)
	if want := "no GPU is free, and it is not known of any instance type of the pool that it comes with devices"; wording.Reason(r) != want {
		t.Errorf("%q, want %q", wording.Reason(r), want)
	}
	search.devices = nil
	named := func(p *explain.Pods) { p.DeviceClaims = []string{"gpu"} }
	r = only(t, reasons(t, general(), Pod("a"), search, named), rejection.Devices)
	if !strings.Contains(wording.Reason(r), `for resource claim "gpu" cannot be used`) {
		t.Errorf("%q, want the claim", wording.Reason(r))
	}
}

func TestVolumesOutsideThePool(t *testing.T) {
	volume := func(p *explain.Pods) { p.Volumes[0].Set = requirement.NewSet(requirement.In(zone, "z3")) }
	search := refuse(rejection.Volume, func(a explain.Attempt) bool { return a.Volume.Len() == 0 })
	search.claim = "data"
	r := only(t, reasons(t, general(Require(zone, in, "z1", "z2")), Pod("a"), search, volume), rejection.Volume)
	if !strings.Contains(wording.Reason(r), `volume claim "data" can only be used in`) {
		t.Errorf("%q, want the claim", wording.Reason(r))
	}
}

func TestUnusablePoolsNameTheRequirement(t *testing.T) {
	search := refuse(rejection.Resources, never)
	r := only(t, reasons(t, general(Require(arch, in, "s390x")), Pod("a"), search), rejection.Requirement)
	if !strings.Contains(wording.Reason(r), "filtered out all instance types: none has") || search.attempts > 0 {
		t.Errorf("%q after %d attempts, want the requirement without any", wording.Reason(r), search.attempts)
	}
}

func TestTheSearchMayHaveChangedItsMind(t *testing.T) {
	r := only(t, reasons(t, general(), Pod("a"), refuse(rejection.Resources, func(explain.Attempt) bool { return true })), rejection.Topology)
	if want := "the pod can be scheduled only after others"; wording.Reason(r) != want || r.Nearest != nil {
		t.Errorf("%+v, want %q", r, want)
	}
}
