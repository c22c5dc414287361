package pass_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// virtualFleet performs what passes decide, in virtual time. Each node has a pod, which goes where the command has it.
type virtualFleet struct {
	t        *testing.T
	s        *snapshot.Snapshot
	memory   pass.Memory
	settings pass.Settings
	// boot is how long a new node takes until it is initialized, drain how long a node takes to go.
	boot, drain func() time.Duration
	forced      disrupt.Forced

	ready, gone map[string]time.Time
	flights     []flight
	launched    int
	// started are the commands by node, deleted the nodes that were deleted after their deadline.
	started map[string]start
	deleted []start
}

type start struct {
	node   string
	reason karpv1.DisruptionReason
	at     time.Time
}

// flight is a command that waits for its replacements.
type flight struct {
	pass.Decision
	launches []string
}

func newVirtualFleet(t *testing.T, s *snapshot.Snapshot) *virtualFleet {
	after := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	f := &virtualFleet{
		t: t, s: s, settings: settings, boot: after(3 * time.Minute), drain: after(5 * time.Minute), forced: disrupt.Forced{Percent: 10},
		ready: map[string]time.Time{}, gone: map[string]time.Time{}, started: map[string]start{},
	}
	f.settings.Validate, f.settings.ValidationDelay, f.settings.MaxDrift = true, pass.ValidationDelay, 20 // for speed
	f.settings.MaxDriftRejections = pass.MaxSimulations
	return f
}

func (f *virtualFleet) node(name string) *snapshot.Node {
	for i := range f.s.Nodes {
		if f.s.Nodes[i].Name == name {
			return &f.s.Nodes[i]
		}
	}
	return nil
}

// step goes to an instant, and performs passes until one starts nothing.
func (f *virtualFleet) step(to time.Time) {
	next := *f.s
	next.Now, next.Nodes = to, slices.Clone(f.s.Nodes)
	f.s = &next
	f.finish()
	f.expire()
	for f.pass() {
	}
}

// finish moves the pods of commands with replacements that are up, and removes nodes that have drained.
func (f *virtualFleet) finish() {
	for name, at := range f.ready {
		if n := f.node(name); n != nil && !at.After(f.s.Now) {
			n.Registered, n.Initialized, n.Ready = true, true, true
			delete(f.ready, name)
		}
	}
	f.flights = slices.DeleteFunc(f.flights, func(c flight) bool {
		if slices.ContainsFunc(c.launches, func(name string) bool { return !f.ready[name].IsZero() }) {
			return false
		}
		f.leave(&c.Command)
		return true
	})
	f.s.Nodes = slices.DeleteFunc(f.s.Nodes, func(n snapshot.Node) bool {
		at := f.gone[n.Name]
		return !at.IsZero() && !at.After(f.s.Now)
	})
}

// leave deletes the nodes of a command with replacements that are up.
func (f *virtualFleet) leave(c *disrupt.Command) {
	for _, candidate := range c.Candidates {
		if n := f.node(candidate.Node.Name); n != nil && f.gone[n.Name].IsZero() {
			n.Deleting, n.Disrupting = true, false
			f.gone[n.Name] = f.s.Now.Add(f.drain())
		}
	}
	f.memory = f.memory.With(pass.Feedback{What: pass.Succeeded, At: f.s.Now, Pool: c.Candidates[0].Node.Pool})
}

// move has the pods of a command where they go: they are as good as there, since the nodes that they leave take no others.
func (f *virtualFleet) move(c *disrupt.Command, launches []string) {
	place := func(name string, pods []*corev1.Pod) {
		n := f.node(name)
		n.Pods = append(slices.Clone(n.Pods), pods...)
	}
	for _, candidate := range c.Candidates {
		n := f.node(candidate.Node.Name)
		n.Pods, n.Disrupting, n.Taints = nil, true, []corev1.Taint{karpv1.TaintDisrupted()}
		f.started[n.Name] = start{n.Name, c.Reason, f.s.Now}
	}
	for i := range c.Plan.Launches {
		place(launches[i], c.Plan.Launches[i].Pods)
	}
	for _, pl := range c.Plan.Placements {
		place(pl.Node, pl.Pods)
	}
}

// expire deletes nodes past their deadline, as the controller does: so many in a minute of the clock, the oldest first.
func (f *virtualFleet) expire() {
	expirations := disrupt.ExpirationsOf(f.s)
	var due []*snapshot.Node
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		if e := expirations.Of(n); e != nil && !n.Deleting && !f.s.Now.Before(e.Deadline(n.CreatedAt, n.ExpireAfter)) {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b *snapshot.Node) int {
		return cmp.Or(disrupt.ExpiresAt(a).Compare(disrupt.ExpiresAt(b)), cmp.Compare(a.Name, b.Name))
	})
	left, minute := 0, 0
	for i := range f.s.Nodes {
		if !f.s.Nodes[i].Deleting {
			left++
		}
	}
	for _, d := range f.deleted {
		if d.at.Truncate(time.Minute).Equal(f.s.Now.Truncate(time.Minute)) {
			minute++
		}
	}
	room := max(0, f.forced.PerMinute(left+minute)-minute)
	var created []snapshot.Node
	for _, n := range due[:min(room, len(due))] {
		n.Deleting, n.Disrupting = true, false
		f.gone[n.Name] = f.s.Now.Add(f.drain())
		f.deleted = append(f.deleted, start{n.Name, karpv1.DisruptionExpired, f.s.Now})
		created = append(created, f.launch(*n, n.Pods))
		n.Pods = nil
	}
	f.s.Nodes = append(f.s.Nodes, created...)
}

// launch is a node like another that starts now, with pods that wait for it.
func (f *virtualFleet) launch(like snapshot.Node, pods []*corev1.Pod) snapshot.Node {
	f.launched++
	n := like
	n.Name = fmt.Sprintf("new-%d", f.launched)
	n.Claim, n.ClaimUID, n.CreatedAt, n.DriftedAt = n.Name, types.UID(n.Name), f.s.Now, time.Time{}
	n.Deleting, n.Disrupting, n.Registered, n.Initialized, n.Ready, n.Launched = false, false, false, false, false, true
	n.Unhealthy, n.Repair, n.Pods = false, nil, pods
	f.ready[n.Name] = f.s.Now.Add(f.boot())
	return n
}

// pass decides and performs one pass, and reports whether it started anything.
func (f *virtualFleet) pass() bool {
	work := pass.Repair | pass.Due | pass.Replicas | pass.Ahead(f.s)
	decided, remembers := pass.Decide(pass.Input{Snapshot: f.s, Work: work, Memory: f.memory, Settings: f.settings})
	f.memory = remembers
	f.checkBudgets(&decided)
	next := *f.s
	next.Nodes = slices.Clone(f.s.Nodes)
	f.s = &next
	for i := range decided.Start {
		f.start(decided.Start[i])
	}
	return len(decided.Start) > 0
}

func (f *virtualFleet) start(c pass.Decision) {
	out := flight{Decision: c}
	for i := range c.Plan.Launches {
		n := f.launch(c.Plan.Launches[i].Node("", f.s), nil)
		f.s.Nodes = append(f.s.Nodes, n)
		out.launches = append(out.launches, n.Name)
	}
	f.move(&c.Command, out.launches)
	if len(out.launches) == 0 {
		f.leave(&c.Command)
		return
	}
	f.flights = append(f.flights, out)
}

// checkBudgets checks that what starts fits the budgets of its reason, beside what goes already.
func (f *virtualFleet) checkBudgets(d *pass.Decisions) {
	f.t.Helper()
	going := map[string]int{}
	for i := range d.Start {
		for _, c := range d.Start[i].Candidates {
			going[c.Node.Pool]++
		}
		for _, a := range d.Budgets[d.Start[i].Reason] {
			if n := going[a.Pool.Name]; n > 0 && n > a.Available() {
				f.t.Fatalf("%s: %d nodes of %s go for %s beside %d, %d are allowed", f.s.Now, n, a.Pool.Name, d.Start[i].Reason, a.Disrupting, a.Allowed)
			}
		}
	}
}
