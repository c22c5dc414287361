// Package provisioning launches nodes for pods that do not fit on existing ones: it watches pending pods, takes a
// Snapshot, computes a Plan with the engine, and creates a NodeClaim for each launch of the plan.
package provisioning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// maxParallelCreates limits how many NodeClaims are created in parallel. The calls share the client's rate limit with all
// other controllers, so many more would only wait in the client. On a loaded API server they would also delay the launch of the first.
const maxParallelCreates = 10

// clusterState takes snapshots. The provisioner reports its own writes to it, since the cache shows them late.
type clusterState interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	// LockProvisioning excludes other creators of claims until done is called.
	LockProvisioning() (done func())
	Created(claim *karpv1.NodeClaim)
	Nominate(node string)
	// SetBufferPods sets how many virtual pods each node holds.
	SetBufferPods(nodes map[string]int)
	// Invalidate makes the next snapshot read the API server, not the cache.
	Invalidate()
}

// Provisioner turns pending pods into NodeClaims, one pass at a time.
type Provisioner struct {
	Client client.Client
	// Live reads from the API server, not from the cache.
	Live    client.Reader
	State   clusterState
	Batch   *Batch
	Events  *event.Recorder
	Metrics *metrics.Metrics
	// Decisions records the outcome for each pod.
	Decisions *podlatency.Decisions
	Log       *slog.Logger
	Now       func() time.Time
	// ValidatePlans turns on the check of each plan before it is executed; launches that violate a rule are withheld.
	ValidatePlans bool
	// TerminateFirst is the feature gate TerminateFirstDrift: launches that make up for drifted nodes which went first count for
	// the breaker.
	TerminateFirst bool
	// Pace divides the pauses between nodes that refuse their pods.
	Pace pace.Pace
	// Solve computes plans; nil means schedule.Solve.
	Solve func(*snapshot.Snapshot, schedule.Budget) schedule.Plan
	// PlanBuffers computes the capacity for capacity buffers; nil means buffer.Plan.
	PlanBuffers func(*snapshot.Snapshot, schedule.Plan, schedule.Budget) buffer.Placement
	// Quarantine holds the pods that are left out of planning; nil means an empty one of this Provisioner.
	Quarantine *quarantine.Registry
	// Costly leaves pods that cost much and get no node out of most plans; nil leaves out none.
	Costly *CostlyPods
	// Panics records plans that panicked; nil records nothing.
	Panics *panics.Reporter
	// Recorder records passes and decisions; nil records nothing.
	Recorder *recorder.Recorder
	// Turns are the passes over the cluster that are in progress, of others as well; nil waits for none.
	Turns *turns.Turns

	plans int // computed so far
	// classes are the classes of pods that have not changed since a pass before; classesUsed is how many pods waited in the last pass.
	classes     refusal.Classes
	classesUsed int
	// failedSearches counts consecutive searches that did not find the cause of a panic. The next one starts at
	// nextSearch at the earliest.
	failedSearches int
	nextSearch     time.Time
}

// NeedLeaderElection makes sure that only one process provisions.
func (p *Provisioner) NeedLeaderElection() bool { return true }

// Start runs a pass for each batch of pods until ctx is done.
func (p *Provisioner) Start(ctx context.Context) error {
	for p.Batch.Wait(ctx) {
		// A panic outside of planning is a defect as well, but no reason to stop: the next pass may succeed.
		if err := p.runInTurn(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("provisioning", "error", err)
		}
	}
	return nil
}

// runInTurn runs a pass. If passes have planned all of the pods before, it waits for another pass of the process that is in progress, so
// that both are not in memory at once. Pods that come meanwhile do not wait: their own window, which has opened, takes its place.
func (p *Provisioner) runInTurn(ctx context.Context) error {
	if p.Turns == nil {
		return p.runPass(ctx)
	}
	if p.Batch.Urgent() {
		defer p.Turns.Now()()
		return p.runPass(ctx)
	}
	waiting, stop := p.Batch.untilUrgent(ctx)
	defer stop()
	defer p.Turns.Take(waiting, retriggerInterval)()
	if waiting.Err() != nil {
		return nil
	}
	return p.runPass(ctx)
}

// pass takes a snapshot, computes a plan, and executes it. It plans again, without the pods concerned, while the API
// server rejects claims as invalid.
func (p *Provisioner) pass(ctx context.Context) (failed error) {
	snap, done, err := p.lockAndSnapshot(ctx)
	if err != nil {
		return err
	}
	defer done()
	if p.Quarantine == nil {
		p.Quarantine = quarantine.NewRegistry(p.Now)
	}
	refused, err := p.readRefusals(ctx, snap)
	errs := []error{err}
	defer func() { failed = errors.Join(failed, refused.report(ctx)) }()
	for i := range maxPlansPerPass {
		d := p.planAndLaunch(ctx, planned{snap, refused, false})
		if d.snap == nil { // buffers get what pods leave, which is unknown now
			return errors.Join(append(errs, d.err)...)
		}
		if len(d.refused) == 0 && refused.due() {
			// Buffers get what is left once it is known what these pods take, in the next pass.
			return errors.Join(append(errs, d.err, p.tryNode(ctx, refused))...)
		}
		if len(d.refused) == 0 {
			return errors.Join(append(errs, d.err, p.planBuffers(ctx, d))...)
		}
		// The next snapshot has the claims that were created.
		if snap, err = p.State.Snapshot(ctx); err != nil {
			return errors.Join(append(errs, d.err, err)...)
		}
		p.quarantineRefused(ctx, snap, d.refused, i == maxPlansPerPass-1)
		errs = append(errs, d.err)
	}
	return errors.Join(errs...)
}

// outcome is a plan and the result of its execution.
type outcome struct {
	// snap is the snapshot that was planned, without quarantined pods; nil if there was no plan.
	snap *snapshot.Snapshot
	plan schedule.Plan
	pass *recorder.Pass
	// refused are the launches that the API server rejected as invalid.
	refused []invalidClaim
	err     error
}

// tryNode plans the pods for which nodes were launched in vain and for which another one is due. It launches one.
func (p *Provisioner) tryNode(ctx context.Context, refused *refusals) error {
	snap, err := p.State.Snapshot(ctx)
	if err != nil {
		return err
	}
	return p.planAndLaunch(ctx, planned{snap, refused, true}).err
}

// planned describes what is planned: the pods of a snapshot, without those for which no node may be launched. probing is true if one may be
// for pods that are due.
type planned struct {
	all     *snapshot.Snapshot
	refused *refusals
	probing bool
}

// planAndLaunch plans the pods and creates the claims for them.
func (p *Provisioner) planAndLaunch(ctx context.Context, x planned) outcome {
	all := x.all
	if len(all.Pods) == 0 {
		p.recordMetrics(all, schedule.Plan{})
		p.countQuarantined(nil)
		pass := p.Recorder.Begin(recorder.Provisioning, all, all)
		pass.Flush()
		return outcome{snap: all, pass: pass}
	}
	pass := p.Recorder.Begin(recorder.Provisioning, all, all)
	if p.Batch != nil && p.Batch.InBurst() {
		pass.Prepare()
	}
	got, err := p.planWithoutRefused(ctx, x)
	if err != nil {
		return outcome{err: err}
	}
	snap := got.snap
	p.recordMetrics(snap, got.plan)
	pass.Exclude(all, snap)
	p.recordPlan(pass, &got)
	if launches := got.kept(); len(launches) > 0 {
		p.Log.Info(
			"computed new nodeclaim(s) to fit pod(s)",
			"nodeclaims",
			len(launches),
			"pods",
			launchedPods(launches),
			"duration",
			got.took,
			"hourly-cost",
			math.Round(got.plan.Stats.HourlyCost*1e6)/1e6,
			"decision-id",
			pass.ID(),
		)
	}
	p.recordPodEvents(got.plan, snap.Closed)
	p.recordGroupEvents(got.plan, snap.PodGroups)
	p.recordPoolEvents(got.plan, snap)
	free, err := p.releasePods(ctx, got.kept())
	refused, failed := p.launch(ctx, free, snap)
	return outcome{snap: snap, plan: got.plan, pass: pass, refused: refused, err: errors.Join(err, failed, got.unwritten)}
}

// solved is a plan, and what of it is carried out.
type solved struct {
	// snap is the snapshot that was planned, without the pods that are left out.
	snap *snapshot.Snapshot
	plan schedule.Plan
	took time.Duration
	// dropped are pods for which the plan has nodes that are not launched, and one is true if it is the only node for pods that are due.
	dropped map[types.UID]bool
	refused *refusals
	one     bool
	// unwritten states why a history of refused pods could not be written, which affects only these.
	unwritten error
}

// kept are the launches that are carried out.
func (s *solved) kept() []schedule.Launch {
	launches := withoutLaunchesFor(s.plan.Launches, s.dropped)
	if s.one {
		launches = s.refused.one(launches)
	}
	return launches
}

// planWithoutRefused computes the plan without the pods for which no node may be launched.
func (p *Provisioner) planWithoutRefused(ctx context.Context, x planned) (out solved, err error) {
	out = solved{dropped: map[types.UID]bool{}, refused: x.refused, one: x.probing}
	x.refused.see(x.all)
	for range maxReplans {
		free := withoutPods(x.refused.free(x.all, x.probing), out.dropped)
		if out.snap, out.plan, out.took, err = p.planWithoutQuarantined(ctx, free); err != nil {
			return out, err
		}
		again, unwritten := x.refused.relaunched(ctx, &out.plan, x.probing)
		out.unwritten = errors.Join(out.unwritten, unwritten)
		if len(again) == 0 {
			break
		}
		maps.Copy(out.dropped, again)
	}
	out.plan.Rejected = append(out.plan.Rejected, x.refused.rejections(x.probing)...)
	return out, nil
}

func launchedPods(launches []schedule.Launch) int {
	n := 0
	for i := range launches {
		n += len(launches[i].Pods)
	}
	return n
}

// launch creates the NodeClaims of a plan in parallel. A rejected claim does not affect the others.
func (p *Provisioner) launch(ctx context.Context, launches []schedule.Launch, snap *snapshot.Snapshot) ([]invalidClaim, error) {
	errs := make([]error, len(launches))
	var group errgroup.Group
	group.SetLimit(maxParallelCreates)
	for i := range launches {
		group.Go(func() error {
			errs[i] = panics.Error(func() error { return p.create(ctx, &launches[i], snap) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	var refused []invalidClaim
	for i, err := range errs {
		if apierrors.IsInvalid(err) {
			refused = append(refused, invalidClaim{&launches[i], err})
		}
	}
	return refused, errors.Join(errs...)
}

// create creates the NodeClaim of a launch, unless its pool was deleted or replaced since the plan.
func (p *Provisioner) create(ctx context.Context, l *schedule.Launch, snap *snapshot.Snapshot) error {
	pool := &karpv1.NodePool{}
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(l.Pool), pool, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("create a node claim for pool %q: %w", l.Pool.Name, err)
	}
	if pool.UID != l.Pool.UID || pool.DeletionTimestamp != nil {
		return nil
	}
	claim, err := Claim(l, snap.Labels)
	if err != nil {
		return err
	}
	if reason := disrupt.RefillReason(snap, l); p.TerminateFirst && reason != "" {
		claim.Annotations[karpv1.AnnotationLaunchReason] = string(reason)
	}
	// The launch requires both, and writes them onto claims that lack them.
	claim.Finalizers = []string{karpv1.FinalizerTermination}
	claim.Annotations[karpv1.AnnotationLaunch] = cloudprovider.Unlaunched
	if err := p.Client.Create(ctx, claim); err != nil {
		// The claim may have been created nevertheless: the next pass reads the API server to find out.
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			p.State.Invalidate()
		}
		return fmt.Errorf("create a node claim for pool %q: %w", l.Pool.Name, err)
	}
	p.State.Created(claim)
	p.Metrics.ClaimsCreated.WithLabelValues("provisioned", pool.Name, fmt.Sprint(l.MinValuesRelaxed)).Inc()
	p.Log.Info("created nodeclaim", "NodePool", pool.Name, "NodeClaim", claim.Name, "requests", claim.Spec.Resources.Requests,
		"instance-types", TypeNames(l), "pods", len(l.Pods), "decision-id", l.ID)
	p.Recorder.Step(recorder.Step{Decision: l.ID, What: recorder.StepCreated, Object: claim.Name})
	target := claim.Name
	if l.ID != "" {
		target += ", decision " + l.ID
	}
	for _, pod := range l.Pods {
		if pod.Spec.NodeName == "" && !snapshot.IsVirtual(pod) {
			p.Events.Normal(pod, event.Nominated, "Pod should schedule on: nodeclaim/%s", target)
		}
	}
	return nil
}

// TypeNames lists the first few instance types of a launch, cheapest first.
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
