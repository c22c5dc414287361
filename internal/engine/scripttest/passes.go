package scripttest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// passes is what a script has made of its passes so far.
type passes struct {
	start    time.Time // of the script
	memory   pass.Memory
	settings pass.Settings
	limits   []pass.StartLimit
	// ids are the names of commands, by their reason and claims, in the order in which they came up.
	ids map[string]string
	// started are the commands that have started and are neither done nor failed, by name.
	started map[string]disrupt.Command
}

func newPasses(start time.Time) *passes {
	return &passes{
		start: start, ids: map[string]string{}, started: map[string]disrupt.Command{},
		settings: pass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}, Validate: true, ValidationDelay: pass.ValidationDelay,
			MaxDrift: 1, MaxDriftRejections: pass.MaxSimulations,
		},
	}
}

// doPass decides a pass over the nodes, prints it, and starts its commands: their nodes are being disrupted from then on.
func (w *world) doPass(l line) (string, error) {
	work := pass.Repair | pass.Due | pass.Empty | pass.Replicas | pass.Drift | pass.Expire | pass.Savings
	if len(l.words) > 1 {
		return "", fmt.Errorf("pass takes one argument, such as empty,savings, not %q", l.words[1])
	}
	if len(l.words) == 1 {
		if err := work.UnmarshalText([]byte(l.words[0])); err != nil {
			return "", err
		}
	}
	if err := w.checkNominations(); err != nil {
		return "", err
	}
	decided, remembers := pass.Decide(pass.Input{
		Snapshot: w.snap, Work: work, Memory: w.passes.memory, Settings: w.passes.settings, Facts: pass.Facts{Limits: w.passes.limits},
	})
	w.passes.memory = remembers
	printed := w.printPass(&decided)
	for i := range decided.Start {
		w.begin(&decided.Start[i].Command)
	}
	return printed, nil
}

// idOf is the name of a command, which it keeps from pass to pass.
func (p *passes) idOf(reason karpv1.DisruptionReason, claims []types.UID) string {
	names := make([]string, len(claims))
	for i, uid := range claims {
		names[i] = string(uid)
	}
	slices.Sort(names)
	key := string(reason) + " " + strings.Join(names, " ")
	if p.ids[key] == "" {
		p.ids[key] = "c" + strconv.Itoa(len(p.ids)+1)
	}
	return p.ids[key]
}

func (p *passes) idOfCommand(c *disrupt.Command) string {
	var claims []types.UID
	for _, n := range c.Candidates {
		claims = append(claims, n.Node.ClaimUID)
	}
	return p.idOf(c.Reason, claims)
}

// printPass prints what starts, what is proposed, what is dropped or withheld, which nodes stay, and when time alone changes something.
func (w *world) printPass(d *pass.Decisions) string {
	var lines []string
	for i := range d.Dropped {
		p := &d.Dropped[i].Proposal
		var claims []types.UID
		for _, n := range p.Nodes {
			claims = append(claims, n.UID)
		}
		lines = append(lines, fmt.Sprintf("drop    %s: %s", w.passes.idOf(p.Reason, claims), d.Dropped[i].Why.Message))
	}
	for i := range d.Start {
		lines = append(lines, "start   "+w.commandLine(&d.Start[i].Command))
	}
	for i := range d.Withheld {
		lines = append(lines, fmt.Sprintf("hold    %s: %s", w.commandLine(&d.Withheld[i].Command), d.Withheld[i].Why))
	}
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Why != "" {
			lines = append(lines, fmt.Sprintf("pause   %s, %s: %s", l.NodePool, l.Reason, l.Why))
		}
	}
	for i := range d.Propose {
		lines = append(lines, "propose "+w.commandLine(&d.Propose[i].Command))
	}
	for i := range d.Stay {
		k := &d.Stay[i]
		why := k.Message
		if k.Breaker != nil {
			why = fmt.Sprintf("too many nodes are unhealthy (%d of %d)", k.Breaker.Unhealthy, k.Breaker.Nodes)
		}
		lines = append(lines, fmt.Sprintf("stay    %s: %s", k.Node.Name, why))
	}
	if until := w.wakes(d); until.After(w.snap.Now) {
		lines = append(lines, fmt.Sprintf("wait    until %v", until.Sub(w.passes.start)))
	}
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

// wakes is when time alone changes the result: the first proposal is due, or what Decide returns.
func (w *world) wakes(d *pass.Decisions) time.Time {
	until := d.Wake
	for i := range w.passes.memory.Proposals {
		if due := w.passes.memory.Proposals[i].Due; until.IsZero() || due.Before(until) {
			until = due
		}
	}
	return until
}

// commandLine is a command in a line: its name, which nodes go and why, what is launched, and where pods go.
func (w *world) commandLine(c *disrupt.Command) string {
	verb := "delete"
	switch {
	case c.Reboot:
		verb = "reboot"
	case c.TerminateFirst != "":
		verb = "terminate first"
	case c.Replacements() > 0:
		verb = "replace"
	}
	names := make([]string, len(c.Candidates))
	for i, n := range c.Candidates {
		names[i] = n.Node.Name
	}
	out := fmt.Sprintf("%s: %s %s (%s)", w.passes.idOfCommand(c), verb, strings.Join(names, ", "), c.Reason)
	for i := range c.Plan.Launches {
		l := &c.Plan.Launches[i]
		out += fmt.Sprintf(", launch %s %s for %s", l.InstanceTypes[0].Name, l.Offering.CapacityType, w.podGroups(l.Pods))
	}
	for i := range c.Plan.Placements {
		out += fmt.Sprintf(", %s to %s", w.podGroups(c.Plan.Placements[i].Pods), c.Plan.Placements[i].Node)
	}
	if c.Savings != 0 {
		out += fmt.Sprintf(", saves $%.4f/h", c.Savings)
	}
	return out
}

// begin marks the nodes of a command that starts, as the controller does.
func (w *world) begin(c *disrupt.Command) {
	w.passes.started[w.passes.idOfCommand(c)] = *c
	for _, candidate := range c.Candidates {
		n := &w.snap.Nodes[candidate.Index]
		switch {
		case c.Reboot:
			n.Rebooting = true
		case c.Replacements() == 0:
			n.Deleting = true
		default:
			n.Disrupting = true
		}
	}
}

// doOutcome states what has become of a command: done, failed, refused or changed. The verb is the command of the line.
func (w *world) doOutcome(l line) error {
	id, err := l.name()
	if err != nil {
		return err
	}
	c, started := w.passes.started[id]
	if !started {
		return fmt.Errorf("%s: %s has not started, or has ended", l.command, id)
	}
	if err := l.take(nil); err != nil {
		return err
	}
	delete(w.passes.started, id)
	f := pass.Feedback{At: w.snap.Now, Pool: c.Candidates[0].Pool.Name}
	for _, n := range c.Candidates {
		f.Claims = append(f.Claims, n.Node.ClaimUID)
	}
	switch l.command {
	case "done":
		f.What = pass.Succeeded
		w.passes.memory = w.passes.memory.With(f)
		return w.carryOut(&c)
	case "failed":
		f.What = pass.Failed
	case "refused":
		f.What = pass.Invalid
		if c.Reboot {
			f.What = pass.RebootRefused
		}
	case "changed":
		return w.restore(&c)
	}
	w.passes.memory = w.passes.memory.With(f)
	return w.restore(&c)
}

// restore rolls a command back: its nodes are as before.
func (w *world) restore(c *disrupt.Command) error {
	for _, candidate := range c.Candidates {
		n, err := w.findNode(candidate.Node.Name)
		if err != nil {
			return err
		}
		n.Disrupting, n.Deleting, n.Rebooting = false, false, false
	}
	return nil
}

// carryOut replaces the nodes of a command by what it launches, and moves their pods. The replacement of a node of a static pool has the
// type of that node. After a reboot the node is healthy. Pods that the plan has no node for are pending.
func (w *world) carryOut(c *disrupt.Command) error {
	if c.Reboot {
		n, err := w.findNode(c.Candidates[0].Node.Name)
		if err != nil {
			return err
		}
		n.Rebooting, n.Unhealthy, n.Repair, n.Ready = false, false, nil, true
		return nil
	}
	for _, candidate := range c.Candidates {
		at := slices.IndexFunc(w.snap.Nodes, func(n snapshot.Node) bool { return n.ClaimUID == candidate.Node.ClaimUID })
		if at < 0 {
			return fmt.Errorf("node %s is gone", candidate.Node.Name)
		}
		gone := w.snap.Nodes[at]
		w.snap.Nodes = slices.Delete(w.snap.Nodes, at, at+1)
		if c.Static() {
			w.launched++
			fresh := gone
			fresh.Name = fmt.Sprintf("new-%d", w.launched)
			fresh.Claim, fresh.ClaimUID, fresh.CreatedAt = fresh.Name, types.UID(fresh.Name), w.snap.Now
			fresh.DriftedAt, fresh.Disrupting, fresh.Pods = time.Time{}, false, nil
			w.snap.Nodes = append(w.snap.Nodes, fresh)
		}
		for _, pod := range gone.Pods {
			pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
			w.snap.Pods = append(w.snap.Pods, pod)
		}
	}
	w.apply(c.Plan)
	return nil
}

// doAt lets time pass: at 15s, since the beginning of the script.
func (w *world) doAt(l line) error {
	if len(l.words) != 1 {
		return errors.New("at: expected a time since the beginning of the script, such as 15s")
	}
	since, err := duration(l.words[0])
	if err != nil {
		return fmt.Errorf("at: %w", err)
	}
	now := w.passes.start.Add(since)
	if now.Before(w.snap.Now) {
		return fmt.Errorf("at: %v has passed already", since)
	}
	w.snap.Now = now
	return nil
}

// doRestart restarts the controller: it remembers nothing.
func (w *world) doRestart(l line) error {
	w.passes.memory = pass.Memory{}
	return l.take(nil)
}

// doLimit limits the replacements in a pool: limit POOL REASON starts=1.
func (w *world) doLimit(l line) error {
	pool, err := l.name()
	if err != nil {
		return err
	}
	reason, err := l.name()
	if err != nil {
		return err
	}
	limit := pass.StartLimit{NodePool: pool, Reason: karpv1.DisruptionReason(reason), Why: "others did not come up"}
	if err := l.take(arguments{
		"starts": func(_, v string) (err error) { limit.Starts, err = number(v); return err },
	}); err != nil {
		return err
	}
	w.passes.limits = append(w.passes.limits, limit)
	return nil
}

// doPDB adds a PodDisruptionBudget for the pods of a name: pdb web allowed=0.
func (w *world) doPDB(l line) error {
	app, err := l.name()
	if err != nil {
		return err
	}
	allowed := 0
	if err := l.take(arguments{"allowed": func(_, v string) (err error) { allowed, err = number(v); return err }}); err != nil {
		return err
	}
	most := intstr.FromInt32(int32(min(allowed, 1<<30)))
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID("pdb-" + app)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &most, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	b.Status.DisruptionsAllowed = most.IntVal
	w.snap.PDBs = append(w.snap.PDBs, b)
	return nil
}

func duration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("expected a duration such as 15s or 2h, not %q", value)
	}
	return d, nil
}
