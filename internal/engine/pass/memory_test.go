package pass_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// controller are the settings of a pass of the controller.
var controller = pass.Settings{
	Consolidation: settings.Consolidation, Validate: true, ValidationDelay: pass.ValidationDelay, MaxDrift: 1, MaxDriftRejections: 5,
	Reboots: true,
}

const controllerWork = pass.Repair | pass.Due | pass.Empty | pass.Replicas | pass.Drift | pass.Savings

// later is the Snapshot some time later.
func later(s *snapshot.Snapshot, by time.Duration) *snapshot.Snapshot {
	out := *s
	out.Now = s.Now.Add(by)
	return &out
}

// An empty node is proposed at once, and starts when it was empty for the validation delay. One that gets a pod meanwhile is dropped.
func TestAProposalWaitsForItsValidation(t *testing.T) {
	s := world("100%", up("empty"), up("other"))
	remembers := pass.Memory{}
	for _, step := range []struct {
		after           time.Duration
		starts, waiting int
		dropped         int
	}{{0, 0, 2, 0}, {pass.ValidationDelay - time.Second, 0, 2, 0}, {pass.ValidationDelay, 1, 0, 1}} {
		now := later(s, step.after)
		if step.after == pass.ValidationDelay {
			now.Nodes = append([]snapshot.Node{}, s.Nodes...)
			now.Nodes[1] = up("other", pod("new", "100m"))
			now.Nodes[1].Consolidatable = false
		}
		var d pass.Decisions
		d, remembers = pass.Decide(pass.Input{Snapshot: now, Work: controllerWork, Memory: remembers, Settings: controller})
		if len(d.Start) != step.starts || len(remembers.Proposals) != step.waiting || len(d.Dropped) != step.dropped {
			t.Errorf("after %v: %s starts, %d wait, %d are dropped; want %d, %d and %d", step.after, text(d), len(remembers.Proposals),
				len(d.Dropped), step.starts, step.waiting, step.dropped)
		}
	}
}

// Two nodes are due to go. The first got a pod lately and stays; the pods of the second have no place anymore, so it stays, too.
func TestADueProposalLosesItsNodesOneByOne(t *testing.T) {
	s := world("100%", up("first", pod("a", "900m")), up("second", pod("b", "900m")))
	s.Nodes[0].Consolidatable = false
	due := pass.Proposal{Due: s.Now, Reason: karpv1.DisruptionUnderutilized, Kind: "multi"}
	for i := range s.Nodes {
		due.Nodes = append(due.Nodes, pass.ProposedNode{Name: s.Nodes[i].Name, UID: s.Nodes[i].ClaimUID})
	}
	d := decide(pass.Input{
		Snapshot: s, Work: pass.Due, Memory: pass.Memory{Proposals: []pass.Proposal{due}}, Settings: controller,
	})
	if len(d.Start) != 0 || len(d.Dropped) != 2 {
		t.Fatalf("%q starts and %d are dropped, want nothing and 2", text(d), len(d.Dropped))
	}
	for i, part := range []bool{true, false} {
		if got := d.Dropped[i]; got.Part != part || got.Nodes != 1 || len(got.Proposal.Nodes) != 2 {
			t.Errorf("drop %d is of %d nodes (part: %t) of a proposal of %d, want 1 node (part: %t) of 2", i, got.Nodes, got.Part,
				len(got.Proposal.Nodes), part)
		}
	}
}

// drifting are drifted nodes of one pool, each with a pod.
func drifting(names ...string) *snapshot.Snapshot {
	var nodes []snapshot.Node
	for i, name := range names {
		nodes = append(nodes, DriftedNode(name, "p", len(names)-i, pod("pod-"+name, "600m")))
	}
	return world("100%", nodes...)
}

// What became of commands decides which drifted node goes next.
func TestFeedbackChangesWhatGoesNext(t *testing.T) {
	s := drifting("a", "b")
	uid := func(name string) []types.UID {
		for i := range s.Nodes {
			if s.Nodes[i].Name == name {
				return []types.UID{s.Nodes[i].ClaimUID}
			}
		}
		t.Fatalf("no node %s", name)
		return nil
	}
	for _, tt := range []struct {
		name     string
		feedback []pass.Feedback
		after    time.Duration
		want     string
	}{
		{"nothing has happened", nil, 0, "a"},
		{"a was not started", []pass.Feedback{{What: pass.NotStarted, Pool: "p", Claims: uid("a")}}, 0, "b"},
		{"a failed: the pool backs off", []pass.Feedback{{What: pass.Failed, Pool: "p", Claims: uid("a")}}, 59 * time.Second, ""},
		{"a failed a minute ago", []pass.Feedback{{What: pass.Failed, Pool: "p", Claims: uid("a")}}, time.Minute, "b"},
		{"a failed, and then one succeeded", []pass.Feedback{
			{What: pass.Failed, Pool: "p", Claims: uid("a")}, {What: pass.Succeeded, Pool: "p"},
		}, 0, "b"},
		{"the replacement of a is invalid", []pass.Feedback{{What: pass.Invalid, Claims: uid("a")}}, 0, "b"},
		{"both are invalid", []pass.Feedback{{What: pass.Invalid, Claims: append(uid("a"), uid("b")...)}}, 59 * time.Second, ""},
		{"a minute later one is tried again", []pass.Feedback{{What: pass.Invalid, Claims: append(uid("a"), uid("b")...)}}, time.Minute, "a"},
		{"after the second refusal it takes two", []pass.Feedback{
			{What: pass.Invalid, Claims: append(uid("a"), uid("b")...)}, {What: pass.Invalid, Claims: append(uid("a"), uid("b")...)},
		}, 119 * time.Second, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.feedback {
				tt.feedback[i].At = s.Now
			}
			before := pass.Memory{}
			remembers := before.With(tt.feedback...)
			if diff := cmp.Diff(jsonOf(t, pass.Memory{}), jsonOf(t, before)); diff != "" {
				t.Errorf("With changes its receiver:\n%s", diff)
			}
			d, _ := pass.Decide(pass.Input{Snapshot: later(s, tt.after), Work: pass.Drift, Memory: remembers, Settings: controller})
			got := ""
			if len(d.Start) > 0 {
				got = d.Start[0].Candidates[0].Node.Name
			}
			if got != tt.want {
				t.Errorf("%q goes, want %q", got, tt.want)
			}
		})
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// unhealthy is a node that is due for repair, by a reboot.
func unhealthy(name string, score float64) snapshot.Node {
	n := up(name, pod("pod-"+name, "600m"))
	n.Unhealthy = true
	n.Repair = &repair.Decision{Action: karpv1.RepairReboot, Score: score, EligibleAt: World(nil).Now.Add(-time.Minute)}
	return n
}

// After a refused reboot a node is replaced; one of which that is not known waits for others.
func TestRefusedReboots(t *testing.T) {
	s := world("100%", unhealthy("first", 2), unhealthy("second", 1), up("a", pod("x", "600m")), up("b", pod("y", "600m")),
		up("c", pod("z", "600m")), up("d"), up("e"), up("f"), up("g"), up("h"), up("i"), up("j"), up("k"))
	first := []types.UID{s.Nodes[0].ClaimUID}
	for _, tt := range []struct {
		name  string
		what  pass.What
		after time.Duration
		want  string
	}{
		{"nothing is known", "", 0, "reboot first"},
		{"refused", pass.RebootRefused, 0, "replace first"},
		{"refused a while ago", pass.RebootRefused, 10 * time.Minute, "reboot first"},
		{"unclear", pass.RebootUnclear, 0, "reboot second"},
		{"unclear a while ago", pass.RebootUnclear, time.Minute, "reboot first"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			remembers := pass.Memory{}.With(pass.Feedback{What: tt.what, At: s.Now, Claims: first})
			d, _ := pass.Decide(pass.Input{Snapshot: later(s, tt.after), Work: pass.Repair, Memory: remembers, Settings: controller})
			if len(d.Start) != 1 {
				t.Fatalf("%d commands, stay %+v", len(d.Start), d.Stay)
			}
			verb := map[bool]string{true: "reboot ", false: "replace "}[d.Start[0].Reboot]
			if got := verb + d.Start[0].Candidates[0].Node.Name; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// The limits of a pool hold for all reasons together, and state why no more start.
func TestStartLimits(t *testing.T) {
	ahead := controller
	ahead.Validate, ahead.MaxDrift = false, 5
	for _, tt := range []struct {
		name             string
		limits           []pass.StartLimit
		starts, withheld int
		listed           string
	}{
		{"no limit", nil, 3, 0, ""},
		{"one more", []pass.StartLimit{{NodePool: "p", Reason: karpv1.DisruptionDrifted, Starts: 1, Why: "one is tried"}}, 1, 2, ""},
		{"none", []pass.StartLimit{{NodePool: "p", Reason: karpv1.DisruptionDrifted, Why: "too many failed"}}, 0, 0, "too many failed"},
		{"of another reason", []pass.StartLimit{{NodePool: "p", Reason: karpv1.DisruptionUnhealthy, Why: "too many failed"}}, 3, 0, ""},
		{"of another pool", []pass.StartLimit{{NodePool: "q", Reason: karpv1.DisruptionDrifted, Why: "too many failed"}}, 3, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := pass.Decide(pass.Input{
				Snapshot: drifting("a", "b", "c"), Work: pass.Drift, Settings: ahead, Facts: pass.Facts{Limits: tt.limits},
			})
			if len(d.Start) != tt.starts || len(d.Withheld) != tt.withheld {
				t.Errorf("%d start, %d are withheld, want %d and %d", len(d.Start), len(d.Withheld), tt.starts, tt.withheld)
			}
			if len(d.Limits) != 1 || d.Limits[0].Why != tt.listed {
				t.Errorf("limits %+v, want one that says %q", d.Limits, tt.listed)
			}
		})
	}
}

func TestWorkHasNames(t *testing.T) {
	data, err := json.Marshal(controllerWork)
	if err != nil || string(data) != `"repair,due,empty,replicas,drift,savings"` {
		t.Errorf("%s, %v", data, err)
	}
	var read pass.Work
	if err := json.Unmarshal([]byte(`"due,savings"`), &read); err != nil || read != pass.Due|pass.Savings {
		t.Errorf("%d, %v", read, err)
	}
	if err := json.Unmarshal([]byte(`"sleep"`), &read); err == nil {
		t.Error("work that does not exist is read")
	}
}
