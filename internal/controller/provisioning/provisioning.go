// Package provisioning buys nodes for pods that do not fit: it watches for pending pods, cuts a Snapshot, asks
// the engine for a Plan, and makes NodeClaims of its launches.
package provisioning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// createAtOnce bounds how many NodeClaims are created in parallel: the API server has other guests.
const createAtOnce = 20

// patience is how long a pass waits for a launch in progress, and settlePoll how often it looks.
const patience, settlePoll = 20 * time.Second, 500 * time.Millisecond

// barrenQuiet is for how long a pool is not told again that it can launch nothing.
const barrenQuiet = time.Minute

// failedSchedulingQuiet is for how long the same reason is not repeated to the same pod.
const failedSchedulingQuiet = 5 * time.Minute

// world cuts snapshots and is told what the provisioner has done before the cache can show it.
type world interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	// Buying keeps others from creating claims until done is called.
	Buying() (done func())
	Created(claim *karpv1.NodeClaim)
	Nominate(node string)
	// KeepRoom says how many virtual pods each node holds.
	KeepRoom(nodes map[string]int)
	// Forget makes the next snapshot read the API server itself.
	Forget()
}

// Provisioner turns pending pods into NodeClaims, one pass at a time.
type Provisioner struct {
	Client client.Client
	// Live reads from the API server itself.
	Live    client.Reader
	State   world
	Batch   *Batch
	Events  *event.Recorder
	Metrics *metrics.Metrics
	// Decisions is told what becomes of pods.
	Decisions *podlatency.Decisions
	Log       *slog.Logger
	Now       func() time.Time
	// ValidatePlans has each plan checked before it is carried out; launches that break a rule are not made.
	ValidatePlans bool
	// Solve makes plans; nil stands for schedule.Solve.
	Solve func(*snapshot.Snapshot, schedule.Budget) schedule.Plan
	// FindRoom finds room for capacity buffers; nil stands for buffer.Plan.
	FindRoom func(*snapshot.Snapshot, schedule.Plan, schedule.Budget) buffer.Room
	// Quarantine remembers the pods that are left out; nil stands for an empty one of this Provisioner.
	Quarantine *quarantine.Book
	// Panics records plans that panicked; nil records nothing.
	Panics *panics.Reporter

	plans int // made so far
	// fruitless counts in a row the searches for the cause of a panic that found none; the next is not made before nextSearch.
	fruitless  int
	nextSearch time.Time
}

// NeedLeaderElection makes sure that only one process buys.
func (p *Provisioner) NeedLeaderElection() bool { return true }

// Start runs a pass for each batch of pods until ctx ends.
func (p *Provisioner) Start(ctx context.Context) error {
	for p.Batch.Wait(ctx) {
		// What panics beside the planning is a defect, too, and no reason to stop for it: the next pass may go through.
		if err := p.protected(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("provisioning", "error", err)
		}
	}
	return nil
}

// settled waits until no claim is in the middle of changing hands: bought for pods that were driven off another
// node and are being replaced by pods of other names, while what it can hold is not known before it has
// launched. Planning then would buy for the replacements a second time. A launch takes a second or two; one
// that takes longer than patience is not waited for. Nobody else creates claims from the snapshot on until done is called.
func (p *Provisioner) settled(ctx context.Context) (snap *snapshot.Snapshot, done func(), err error) {
	for {
		done := p.State.Buying()
		err := panics.Error(func() (err error) { // or nobody would ever create claims again
			snap, err = p.State.Snapshot(ctx)
			return err
		})
		if err == nil && !changingHands(snap) {
			return snap, done, nil
		}
		done()
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(settlePoll):
		}
	}
}

// changingHands reports whether a young claim without an instance was bought for pods that are not there any more.
func changingHands(snap *snapshot.Snapshot) bool {
	there := map[types.UID]bool{}
	for _, pod := range snap.Pods {
		there[pod.UID] = true
	}
	for i := range snap.Nodes {
		for _, pod := range snap.Nodes[i].Pods {
			there[pod.UID] = true
		}
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Launched || n.Deleting || snap.Now.Sub(n.CreatedAt) > patience {
			continue
		}
		for _, uid := range n.Nominated {
			if !there[uid] {
				return true
			}
		}
	}
	return false
}

// pass gathers, decides, and acts.
func (p *Provisioner) pass(ctx context.Context) error {
	snap, done, err := p.settled(ctx)
	if err != nil {
		return err
	}
	defer done()
	if p.Quarantine == nil {
		p.Quarantine = quarantine.NewBook(p.Now)
	}
	var errs []error
	for i := range replans {
		d := p.place(ctx, snap)
		if d.snap == nil { // room for buffers is what pods leave
			return errors.Join(append(errs, d.err)...)
		}
		if len(d.refused) == 0 {
			return errors.Join(append(errs, d.err, p.keepRoom(ctx, d.snap, d.plan))...)
		}
		// What was created meanwhile is in the next snapshot.
		if snap, err = p.State.Snapshot(ctx); err != nil {
			return errors.Join(append(errs, d.err, err)...)
		}
		p.blame(ctx, snap, d.refused, i == replans-1)
		errs = append(errs, d.err)
	}
	return errors.Join(errs...)
}

// decision is what was planned, and what became of it.
type decision struct {
	// snap is what was planned: the snapshot without the pods that are left out. Nil if nothing was.
	snap *snapshot.Snapshot
	plan schedule.Plan
	// refused are the launches that the API server finds invalid.
	refused []refusal
	err     error
}

// place plans the pods and creates the claims that they need.
func (p *Provisioner) place(ctx context.Context, all *snapshot.Snapshot) decision {
	if len(all.Pods) == 0 {
		p.measure(all, schedule.Plan{})
		return decision{snap: all}
	}
	snap, plan, took, err := p.planned(ctx, all)
	if err != nil {
		return decision{err: err}
	}
	p.measure(snap, plan)
	if len(plan.Launches) > 0 {
		p.Log.Info("computed new nodeclaim(s) to fit pod(s)", "nodeclaims", len(plan.Launches), "pods", launchedPods(plan), "duration", took, "hourly-cost", plan.Stats.HourlyCost)
	}
	p.tellPods(plan, snap.Closed)
	p.tellPools(plan, snap)
	free, err := p.revoke(ctx, plan.Launches)
	refused, failed := p.launch(ctx, free, snap.Labels)
	return decision{snap: snap, plan: plan, refused: refused, err: errors.Join(err, failed)}
}

func launchedPods(plan schedule.Plan) int {
	n := 0
	for i := range plan.Launches {
		n += len(plan.Launches[i].Pods)
	}
	return n
}

// tellPods records on each pod where it goes, or why it goes nowhere, and protects the nodes it goes to.
func (p *Provisioner) tellPods(plan schedule.Plan, closed []*karpv1.NodePool) {
	for _, placement := range plan.Placements {
		p.State.Nominate(placement.Node)
		target := "node/" + placement.Node
		if placement.Claim != "" {
			target = "nodeclaim/" + placement.Claim
			if placement.Node != placement.Claim {
				target += ", node/" + placement.Node
			}
		}
		for _, pod := range placement.Pods {
			if pod.Spec.NodeName == "" {
				p.Events.Normal(pod, "Nominated", "Pod should schedule on: %s", target)
			}
		}
	}
	for _, t := range plan.Ignored {
		p.Events.WarnEvery(failedSchedulingQuiet, t.Pod, "InvalidNodeAffinity", "%s", ignored(t))
	}
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		if r.Reasons[0].Code == schedule.NotManaged || r.Deferred() {
			continue
		}
		if leftOut(r) {
			continue // it has an event of its own
		}
		if r.Reasons[0].Code == schedule.DeviceClaims {
			p.Log.Info("pod with resource claims is not planned for", "Pod", r.Pod.Namespace+"/"+r.Pod.Name)
		}
		p.Events.WarnEvery(failedSchedulingQuiet, r.Pod, "FailedScheduling", "Failed to schedule pod, %s", sentence(foremost(r.Reasons, closed)))
	}
}

// ignored says which terms of a pod are left out, and what to do.
func ignored(t schedule.IgnoredTerms) string {
	reasons := make([]schedule.Reason, len(t.Why))
	for i, why := range t.Why {
		reasons[i].Message = why
	}
	return "Terms of the pod's node affinity are ignored; correct or remove them: " + sentence(reasons)
}

// tellPools records on pools that their own requirements leave nothing to launch.
func (p *Provisioner) tellPools(plan schedule.Plan, snap *snapshot.Snapshot) {
	for _, why := range plan.Barren {
		if pool := poolOf(snap, why.NodePool); pool != nil {
			p.Events.WarnEvery(barrenQuiet, pool, "NoCompatibleInstanceTypes", "The pool can launch nothing: %s", why.Message)
		}
	}
}

// foremost puts in front what is worth reading: of many pools, most are just not those that the pod asks for.
// Pools that are not Ready come between; the engine knows nothing of them, but one may be what the pod waits for.
func foremost(reasons []schedule.Reason, closed []*karpv1.NodePool) []schedule.Reason {
	other := map[string]bool{}
	for _, r := range reasons {
		other[r.NodePool] = other[r.NodePool] || r.Code == schedule.Requirement
	}
	var out, mismatched []schedule.Reason
	for _, r := range reasons {
		if other[r.NodePool] {
			mismatched = append(mismatched, r)
		} else {
			out = append(out, r)
		}
	}
	for _, pool := range closed {
		if ready, found := condition.Get(pool, condition.Ready); cluster.Open(pool) && found && ready.Status != metav1.ConditionTrue {
			out = append(out, schedule.Reason{NodePool: pool.Name, Message: "not ready: " + whyNotReady(pool, ready.Message)})
		}
	}
	return append(out, mismatched...)
}

// whyNotReady is what the conditions of a pool say that keep it from being ready, else message.
func whyNotReady(pool *karpv1.NodePool, message string) string {
	var why []string
	for _, typ := range pool.ConditionTypes().Dependents {
		if c, found := condition.Get(pool, typ); found && c.Status == metav1.ConditionFalse {
			why = append(why, c.Reason+": "+c.Message)
		}
	}
	return cmp.Or(strings.Join(why, "; "), message)
}

// sentence joins reasons for a person; an event holds about a thousand characters.
func sentence(reasons []schedule.Reason) string {
	const limit = 900
	var b strings.Builder
	for i, r := range reasons {
		part := r.Message
		if r.NodePool != "" && (i == 0 || reasons[i-1].NodePool != r.NodePool) {
			part = fmt.Sprintf("nodepool %q: %s", r.NodePool, r.Message)
		}
		if b.Len()+len(part) > limit {
			fmt.Fprintf(&b, "; and %d more", len(reasons)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// launch creates the NodeClaims of a plan. They are independent: one that is refused does not hold up the rest.
func (p *Provisioner) launch(ctx context.Context, launches []schedule.Launch, labels requirement.Labels) ([]refusal, error) {
	errs := make([]error, len(launches))
	var group errgroup.Group
	group.SetLimit(createAtOnce)
	for i := range launches {
		group.Go(func() error {
			errs[i] = panics.Error(func() error { return p.create(ctx, &launches[i], labels) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	var refused []refusal
	for i, err := range errs {
		if apierrors.IsInvalid(err) {
			refused = append(refused, refusal{&launches[i], err})
		}
	}
	return refused, errors.Join(errs...)
}

// create makes one NodeClaim, unless its pool has changed since the plan was made.
func (p *Provisioner) create(ctx context.Context, l *schedule.Launch, labels requirement.Labels) error {
	pool := &karpv1.NodePool{}
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(l.Pool), pool); err != nil {
		return fmt.Errorf("create a node claim for pool %q: %w", l.Pool.Name, err)
	}
	if pool.UID != l.Pool.UID || pool.DeletionTimestamp != nil {
		return nil
	}
	claim, err := Claim(l, labels)
	if err != nil {
		return err
	}
	if err := p.Client.Create(ctx, claim); err != nil {
		// Whether it was created after all, only the API server knows: the next pass asks it.
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			p.State.Forget()
		}
		return fmt.Errorf("create a node claim for pool %q: %w", l.Pool.Name, err)
	}
	p.State.Created(claim)
	p.Metrics.ClaimsCreated.WithLabelValues("provisioned", pool.Name, fmt.Sprint(l.MinValuesRelaxed)).Inc()
	p.Log.Info("created nodeclaim", "NodePool", pool.Name, "NodeClaim", claim.Name, "requests", claim.Spec.Resources.Requests,
		"instance-types", TypeNames(l), "pods", len(l.Pods))
	for _, pod := range l.Pods {
		if pod.Spec.NodeName == "" && !buffer.IsVirtual(pod) {
			p.Events.Normal(pod, "Nominated", "Pod should schedule on: nodeclaim/%s", claim.Name)
		}
	}
	return nil
}

// TypeNames lists the first few candidates of a launch, cheapest first.
func TypeNames(l *schedule.Launch) string {
	const shown = 5
	names := make([]string, 0, shown)
	for _, t := range l.InstanceTypes[:min(shown, len(l.InstanceTypes))] {
		names = append(names, t.Name)
	}
	out := strings.Join(names, ", ")
	if rest := len(l.InstanceTypes) - shown; rest > 0 {
		out += fmt.Sprintf(" and %d other(s)", rest)
	}
	return out
}
