package nodereport

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// builder makes the report of one node.
type builder struct {
	*Decisions
	index int
	n     *snapshot.Node
	claim *karpv1.NodeClaim // nil for a node that is not managed
	node  *corev1.Node      // nil until one has joined
	pool  *karpv1.NodePool  // nil if there is none
	// alone is the removal of the node when nothing protects it, unprotected the snapshot for it, and freed the same as a
	// Problem; nil if that states nothing.
	alone       *Removal
	unprotected *snapshot.Snapshot
	freed       *schedule.Problem
	// brief is set for an Outcome: many nodes share the limit of the search.
	brief bool
}

func newBuilder(d *Decisions, index int) *builder {
	n := &d.Snapshot.Nodes[index]
	by := d.index()
	b := &builder{Decisions: d, index: index, n: n, claim: by.claims[n.Claim], pool: d.Pool(n.Pool)}
	switch { // before its registration only the provider ID reports
	case b.claim == nil || n.Registered:
		b.node = by.nodes[n.Name]
	case b.claim.Status.ProviderID != "":
		b.node = by.instances[b.claim.Status.ProviderID]
	}
	return b
}

func (b *builder) now() time.Time { return b.Snapshot.Now }

// facts is the report without any decision.
func (b *builder) facts(kind, name string) *Report {
	n := b.n
	r := &Report{
		Kind: kind, Name: name, NodeClaim: n.Claim, NodePool: n.Pool,
		InstanceType: n.Labels[corev1.LabelInstanceTypeStable], Zone: n.Labels[corev1.LabelTopologyZone],
		CapacityType: n.Labels[karpv1.LabelCapacityType], HourlyCost: b.price(), CreatedAt: n.CreatedAt.UTC(),
		Use: use(n), Stages: []Stage{}, Blockers: []Blocker{}, Pods: b.pods(),
		Prices: b.Prices, PricesProblem: b.PricesProblem, Now: b.now().UTC(),
	}
	if b.node != nil {
		r.Node = b.node.Name
	}
	if n.ExpireAfter > 0 {
		at := disrupt.ExpiresAt(n).UTC()
		r.ExpiresAt, r.Expiration = &at, b.expiration()
	}
	return r
}

// known is the report without a plan. It is whole if Computing is false.
func (b *builder) known(kind, name string) *Report {
	r := b.facts(kind, name)
	if b.claim == nil {
		r.Verdict = Verdict{Unmanaged, "NotManaged", b.subject(r) + " is not managed by a NodePool: Dovetail neither launched nor removes it"}
		return r
	}
	r.Stages, r.Launch, r.Drift = b.stages(), b.launch(), drifted.Of(b.View, b.claim)
	if v, leaving := b.leaving(); leaving {
		r.Verdict, r.Drain = b.verdict(r, v), b.forecast()
		return r
	}
	if v, starting := b.starting(); starting {
		r.Verdict = b.verdict(r, v)
		return r
	}
	r.Drain = b.forecast()
	r.Computing, r.Verdict.Text = true, b.subject(r)+": whether it stays is being computed"
	r.Blockers = append(b.nodeBlocks(), b.podBlocks()...)
	return r
}

// report decides.
func (b *builder) report(kind, name string) *Report {
	r := b.known(kind, name)
	if !r.Computing {
		return r
	}
	r.Computing = false
	r.Removal, r.Blockers = b.removal(), b.blockers()
	b.alternatives(r)
	r.Verdict = b.verdict(r, b.decide(r))
	return r
}

// verdict puts the subject before the text.
func (b *builder) verdict(r *Report, v Verdict) Verdict {
	v.Text = b.subject(r) + " " + v.Text
	return v
}

func (b *builder) subject(r *Report) string {
	if r.Kind == "NodeClaim" {
		return "nodeclaim " + r.Name
	}
	return "node " + r.Name
}

// price is today's price of the node's offering, in $/h; 0 if it is not known.
func (b *builder) price() float64 {
	price, _ := b.prices().OfNode(b.n)
	return price
}

// use returns how much of a node its pods request.
func use(n *snapshot.Node) []Use {
	sum := corev1.ResourceList{}
	for _, p := range n.Pods {
		if !snapshot.Active(p) {
			continue
		}
		for name, q := range snapshot.Requests(p) {
			have := sum[name]
			have.Add(q)
			sum[name] = have
		}
	}
	out := []Use{}
	for name, most := range n.Allocatable {
		q := sum[name]
		if most.IsZero() || q.IsZero() && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods {
			continue
		}
		out = append(out, Use{string(name), q.String(), most.String(), q.AsApproximateFloat64() / most.AsApproximateFloat64()})
	}
	slices.SortFunc(out, func(a, b Use) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// pods returns those of the node, with what matters when it goes.
func (b *builder) pods() []Pod {
	out := []Pod{}
	for _, p := range b.n.Pods {
		note, warns := podNote(p, b.now())
		out = append(out, Pod{podName(p), note, warns})
	}
	return out
}

// podNote returns what is special about a pod when its node goes, and whether its owner may not expect it.
func podNote(p *corev1.Pod, now time.Time) (note string, warns bool) {
	protection, _ := snapshot.DoNotDisrupt(p, now)
	switch {
	case snapshot.Mirror(p):
		return "static pod of the node: ends with it", false
	case snapshot.DaemonOwned(p):
		return "of a DaemonSet: ends with the node", false
	case snapshot.Terminating(p):
		return "terminating", false
	case protection == snapshot.ProtectionInvalid:
		return fmt.Sprintf("annotation %s=%q protects nothing: it is neither true nor a duration", karpv1.AnnotationDoNotDisrupt,
			p.Annotations[karpv1.AnnotationDoNotDisrupt]), true
	case metav1.GetControllerOf(p) == nil:
		return "has no owner: nothing creates it again after its eviction", true
	}
	return "", false
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// leaving is the verdict on a node with a removal that has begun; false if none has.
func (b *builder) leaving() (Verdict, bool) {
	command, has, _ := b.claim.DisruptionCommand()
	why, _ := condition.Get(b.claim, karpv1.ConditionDisruptionReason)
	tainted := b.node != nil && slices.ContainsFunc(b.node.Spec.Taints, karpv1.IsTaintDisrupted)
	deleting := b.claim.DeletionTimestamp != nil || b.node != nil && b.node.DeletionTimestamp != nil
	reason := ""
	if why.Status == metav1.ConditionTrue {
		reason = why.Reason
	}
	if has {
		reason = cmp.Or(reason, string(command.Reason))
	}
	because := b.because(reason)
	switch {
	case b.n.Rebooting:
		return Verdict{}, false
	case deleting || b.n.InstanceTerminating:
		return Verdict{Leaving, cmp.Or(reason, "Deleted"), "is being removed" + because + b.drain()}, true
	case has && b.restarting(&command) != "":
		text := fmt.Sprintf("is about to be removed%s, once %s has a Ready pod elsewhere", because, b.restarting(&command))
		return Verdict{Leaving, reason, text}, true
	case has && len(command.Replacements) > 0:
		waiting := b.replacements(&command)
		return Verdict{Leaving, reason, fmt.Sprintf("is being replaced%s, and goes once %s initialized", because, waiting)}, true
	case has || tainted || reason != "":
		if because == "" && tainted {
			taint := karpv1.TaintDisrupted()
			because = ": it has the taint " + taint.ToString()
		}
		return Verdict{Leaving, cmp.Or(reason, "Disrupted"), "is about to be removed" + because}, true
	case b.n.Deleting || b.n.Disrupting:
		return Verdict{Leaving, "Deleted", "is being removed"}, true
	}
	return Verdict{}, false
}

// because is " because ..." for a reason of disruption; empty if it is not known.
func (b *builder) because(reason string) string {
	switch reason {
	case "":
		if b.n.ExpireAfter > 0 && !b.now().Before(b.n.CreatedAt.Add(b.n.ExpireAfter)) {
			return fmt.Sprintf(" because it has reached its expireAfter of %s", report.Duration(b.n.ExpireAfter))
		}
		return ""
	case string(karpv1.DisruptionDrifted):
		if d := drifted.Of(b.View, b.claim); d != nil {
			return " because it drifted (" + d.Text() + ")"
		}
		return " because it drifted"
	case string(karpv1.DisruptionExpired):
		return fmt.Sprintf(" because its expireAfter of %s passes at %s", report.Duration(b.n.ExpireAfter),
			report.Time(disrupt.ExpiresAt(b.n), b.now()))
	case string(karpv1.DisruptionEmpty):
		return " because it is empty"
	case string(karpv1.DisruptionUnderutilized):
		return " because its pods fit on nodes that cost less"
	case string(karpv1.DisruptionUnhealthy):
		return " because it is unhealthy"
	case karpv1.ReasonSpotInterrupted:
		return " because EC2 reclaims its spot instance"
	case karpv1.ReasonReservationInterrupted:
		return " because EC2 reclaims its capacity reservation"
	}
	return " because of " + reason
}

// replacements states which claims are not initialized yet.
func (b *builder) replacements(command *karpv1.DisruptionCommand) string {
	var waiting []string
	for _, name := range command.Replacements {
		if r := inflight.ReplacementOf(command.ID, name, claimOf(b.View, name)); r.State != inflight.Initialized {
			waiting = append(waiting, name)
		}
	}
	switch len(waiting) {
	case 0:
		return "its replacements are"
	case 1:
		return "nodeclaim " + waiting[0] + " is"
	}
	return fmt.Sprintf("nodeclaim %s and %d more are", waiting[0], len(waiting)-1)
}

// decide is the verdict on a node that is up, and not leaving.
func (b *builder) decide(r *Report) Verdict {
	if r.ExpiresAt != nil && !b.now().Before(r.deadline()) {
		if why := b.kept(); why != "" {
			text := fmt.Sprintf("has reached its expireAfter of %s, and stays for now: %s", report.Duration(b.n.ExpireAfter), why)
			return Verdict{Stays, reasonPaused, text}
		}
		return Verdict{Goes, "Expired", fmt.Sprintf("goes now: it has reached its expireAfter of %s", report.Duration(b.n.ExpireAfter))}
	}
	command := b.Command(b.n)
	if command != nil && command.Reason == karpv1.DisruptionEmpty {
		if v, waits := b.waits(command.Reason, false, "it is empty"); waits {
			return v
		}
		text := fmt.Sprintf("goes in the next pass: it is empty, which saves %s/h", report.Money(command.Savings))
		return Verdict{Goes, string(command.Reason), text}
	}
	var drift *Verdict
	if r.Drift != nil && r.Drift.Since != nil {
		v, goes := b.drifts(r)
		if goes || command == nil {
			return v
		}
		drift = &v
	}
	if drift == nil && b.due() {
		v, goes := b.expires(r)
		if goes || command == nil {
			return v
		}
	}
	if command != nil {
		because := fmt.Sprintf("without it, its pods cost %s/h less", report.Money(command.Savings))
		if v, waits := b.waits(command.Reason, len(command.Plan.Launches) > 0, because); waits {
			if drift != nil {
				return *drift
			}
			return v
		}
		return Verdict{Goes, string(command.Reason), b.consolidates(command)}
	}
	return b.stays(r)
}

// consolidates is the text of a command for an underutilized node.
func (b *builder) consolidates(c *disrupt.Command) string {
	how := "its pods fit on other nodes"
	if n := len(c.Plan.Launches); n > 0 {
		l := &c.Plan.Launches[0]
		how = fmt.Sprintf("%s at %s/h takes its place", l.InstanceTypes[0].Name, report.Money(l.Offering.Price))
		if n > 1 {
			how = fmt.Sprintf("%s for %s/h take its place", report.Plural(n, "new node"), report.Money(disrupt.LaunchCost(c.Plan)))
		}
	}
	if n := len(c.Candidates); n > 1 {
		how += fmt.Sprintf(", together with %s", report.Plural(n-1, "other node"))
		return fmt.Sprintf("goes in the next pass: %s, which saves %s/h in all", how, report.Money(c.Savings))
	}
	return fmt.Sprintf("goes in the next pass: %s, which saves %s/h", how, report.Money(c.Savings))
}

// drifts is the verdict on a drifted node, and whether it is replaced.
func (b *builder) drifts(r *Report) (Verdict, bool) {
	drift := "it drifted (" + r.Drift.Text() + ")"
	c := b.candidate(b.n)
	if c == nil || b.incoming[b.n.Name] != nil {
		v := b.stays(r)
		v.Text += ". It should go: " + drift
		return v, false
	}
	a := b.Allowance(b.n.Pool, karpv1.DisruptionDrifted)
	if a.Available() == 0 {
		blocker := b.budget(karpv1.DisruptionDrifted, a)
		return Verdict{Stays, blocker.Code, fmt.Sprintf("stays for now: %s. It should go: %s", blocker.Message, drift)}, false
	}
	if b.brief && b.limited() && b.ahead(c.Node) >= driftSimulations {
		return Verdict{Stays, reasonLater, fmt.Sprintf("it drifted, and %d others of its pool go first: --full simulates the rest", driftSimulations)}, false
	}
	if why := b.irreplaceable(c, karpv1.DisruptionDrifted); why != "" {
		return Verdict{Stays, "NoRoom", fmt.Sprintf("stays: %s. It should go: %s", why, drift)}, false
	}
	if v, waits := b.waits(karpv1.DisruptionDrifted, true, drift); waits {
		return v, false
	}
	text := "is replaced in one of the next passes: " + drift
	if ahead := b.ahead(c.Node); ahead > 0 {
		text += fmt.Sprintf("; %s of its pool go first, %d at a time", report.Plural(ahead, "drifted node"), a.Allowed)
	}
	return Verdict{Goes, string(karpv1.DisruptionDrifted), text}, true
}

// irreplaceable returns why the engine does not replace a node that the budgets of a reason allow to go; empty if it does.
func (b *builder) irreplaceable(c *disrupt.Candidate, budget karpv1.DisruptionReason) string {
	if b.pool.Spec.Replicas != nil {
		return ""
	}
	room := b.Classified.RemainingBudgets(b.allowed(budget))
	if !room.Allow([]*disrupt.Candidate{c}) {
		return "a PodDisruptionBudget of its pods is used up by nodes that are leaving"
	}
	return pass.Irreplaceable(b.compiled(), b.Classified, c, room).Message
}

// stays is the verdict on a node that nothing removes: the first blocker, and what it costs.
func (b *builder) stays(r *Report) Verdict {
	v := Verdict{State: Stays}
	if len(r.Blockers) == 0 {
		v.Reason, v.Text = "Needed", "stays: nothing says that it should go"
		return v
	}
	first := r.Blockers[0]
	v.Reason, v.Text = first.Code, "stays: "+first.Message
	if first.Code == reasonConsolidation && b.notReached() {
		v.Text = "stays for now: " + first.Message
	}
	if m := r.Removal; m != nil && m.Accepted && !first.Saving {
		v.Text += fmt.Sprintf(". Removing the node would save %s/h", report.Money(m.HourlySavings))
	}
	return v
}

func positive(q corev1.ResourceList, name corev1.ResourceName) bool {
	have, ok := q[name]
	return ok && quantity.Value(have) > 0
}
