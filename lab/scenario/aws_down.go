package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	driftingApp = "drifting"
	// generation is a label of the nodes of the NodePool drifting.
	generation = "example.com/generation"
)

// awsDown runs the cells of the table of outages, a column in each scenario. In each cell an API of AWS fails for the controller while a
// pod needs a node.
func awsDown() []Scenario {
	var out []Scenario
	for i, c := range circumstances {
		r := &outageCells{when: circumstance(i)}
		steps := []Step{
			{
				Name: "route EventBridge events of instances to the interruption queue", Timeout: time.Second,
				Run: func(_ context.Context, w *World) error { return w.EnableInterruptionQueue() },
			},
			startController(),
			installPool(manifests.Outage, nil),
			{Name: "two nodes run pods", Timeout: time.Minute, Run: r.prepare},
		}
		for _, o := range outages {
			if !slices.Contains(o.lacks, r.when) {
				steps = append(steps, Step{
					Name: o.name + ": " + o.outcome(r.when), Timeout: slowLaunchWithin + recoveryWithin,
					Run: func(ctx context.Context, w *World) error { return r.cell(ctx, w, o) },
				})
			}
		}
		steps = append(steps, Step{Name: "each instance has its NodeClaim, and the controller has not exited", Timeout: time.Minute, Run: noExit},
			deleteAll(onePerNodeApp, manifests.Outage))
		out = append(out, Scenario{
			Name: c.scenario, Long: true, Steps: steps,
			Summary: "each API of AWS fails, " + c.name + ": no running node is touched, launches go on where they can, all recovers within 2 min",
		})
	}
	return out
}

func noExit(ctx context.Context, w *World) error {
	if exits := w.UnexpectedExits(); exits.Times > 0 {
		return fmt.Errorf("the controller has exited %d times: %s", exits.Times, exits.Last)
	}
	return awaitPaired(ctx, w)
}

// outageCells is a run of one column.
type outageCells struct {
	when circumstance
	// pods are those of one-per-node.
	pods int
	// generations is how often the NodePool drifting was changed.
	generations int
}

func (r *outageCells) prepare(ctx context.Context, w *World) error {
	r.pods = 1
	if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": "1"}); err != nil {
		return err
	}
	return errors.Join(awaitPodsRunning(ctx, w, onePerNodeApp, 1), awaitPodsRunning(ctx, w, driftingApp, 1))
}

// cell runs one cell.
func (r *outageCells) cell(ctx context.Context, w *World, o outage) error {
	kept, err := takeStock(ctx, w)
	if err != nil {
		return err
	}
	beganAWS := w.AWS.Now()
	if err := r.begin(ctx, w, o); err != nil {
		return err
	}
	changes, err := r.demand(ctx, w, o, kept)
	if err != nil {
		return err
	}
	if err := r.during(ctx, w, o, changes); err != nil {
		return fmt.Errorf("during the outage: %w", err)
	}
	if err := kept.untouched(ctx, w); err != nil {
		return fmt.Errorf("during the outage: %w", err)
	}
	w.AWS.ClearFaults()
	if err := r.recover(ctx, w, changes); err != nil {
		return fmt.Errorf("after the outage: %w", err)
	}
	kept.release(changes.drifting)
	rates := ratesOf(since(w, beganAWS))
	w.Note("%s", rates)
	return errors.Join(rates.err(), kept.untouched(ctx, w))
}

// begin has the API fail for the controller, and restarts it where the column is about that.
func (r *outageCells) begin(ctx context.Context, w *World, o outage) error {
	inject := func() error { return w.AWS.InjectSpec(o.fault(r.when) + ",by=" + awsim.ControllerRole(w.Name) + "/") }
	if r.when != atRestart {
		return inject()
	}
	if err := w.KillController(); err != nil {
		return err
	}
	if err := inject(); err != nil {
		return err
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("the controller is not ready within %s", readyWithin))
	defer cancel()
	if err := w.StartController(limited); err != nil {
		return err
	}
	w.Note("ready after %.1f s", time.Since(began).Seconds())
	return nil
}

// changes are what a cell requests during its outage.
type changes struct {
	// drifting is the NodeClaim that drifts; empty if none does.
	drifting types.UID
	// removed is the ID of the instance of the deleted node; empty if none is.
	removed string
}

// demand has a pod need a node, and what else the row requests.
func (r *outageCells) demand(ctx context.Context, w *World, o outage, kept *stock) (out changes, err error) {
	if o.remove {
		if out.removed, err = r.remove(ctx, w, kept); err != nil {
			return out, err
		}
	}
	if o.drift && slices.Contains(o.waits, r.when) {
		if out.drifting, err = r.drift(ctx, w); err != nil {
			return out, err
		}
	}
	r.pods++
	return out, w.Scale(ctx, onePerNodeApp, int32(r.pods))
}

// drift changes the template of the NodePool drifting, and returns its NodeClaim.
func (r *outageCells) drift(ctx context.Context, w *World) (types.UID, error) {
	claims, err := claimsOfPool(ctx, w, driftingApp)
	if err != nil || len(claims) != 1 {
		return "", errors.Join(err, fmt.Errorf("%d NodeClaims of the NodePool %s, want 1", len(claims), driftingApp))
	}
	pool := &karpv1.NodePool{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: driftingApp}, pool); err != nil {
		return "", err
	}
	r.generations++
	before := pool.DeepCopy()
	pool.Spec.Template.Labels = map[string]string{generation: fmt.Sprintf("changed-%d", r.generations)}
	return claims[0].UID, w.Client.Patch(ctx, pool, client.MergeFrom(before))
}

func claimsOfPool(ctx context.Context, w *World, pool string) ([]karpv1.NodeClaim, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool { return c.Labels[karpv1.LabelNodePool] != pool }), nil
}

// remove deletes the node of a pod of one-per-node, as a person does.
func (r *outageCells) remove(ctx context.Context, w *World, kept *stock) (instance string, err error) {
	all, err := pods(ctx, w, onePerNodeApp)
	if err != nil {
		return "", err
	}
	node := &corev1.Node{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: all[0].Spec.NodeName}, node); err != nil {
		return "", err
	}
	claim, err := claimOf(ctx, w, *node)
	if err != nil {
		return "", err
	}
	kept.release(claim.UID)
	return world.InstanceID(node.Spec.ProviderID), w.Client.Delete(ctx, node)
}

// during is what is seen while the API fails.
func (r *outageCells) during(ctx context.Context, w *World, o outage, c changes) error {
	began := time.Now()
	if !slices.Contains(o.waits, r.when) {
		within := launchWithin
		if r.when == slowly {
			within = slowLaunchWithin
		}
		limited, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
		defer cancel()
		if err := world.Until(limited, func() error { return runningPods(limited, w, r.pods) }); err != nil {
			return err
		}
		w.Note("the pod runs after %.1f s of the outage", time.Since(began).Seconds())
		return nil
	}
	if c.drifting != "" { // its replacement is requested, and cannot be launched
		err := world.Until(ctx, func() error {
			claims, err := claimsOfPool(ctx, w, driftingApp)
			if err == nil && len(claims) != 2 {
				err = fmt.Errorf("%d NodeClaims of the NodePool %s, want the replacement, too", len(claims), driftingApp)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, observed)
	defer cancel()
	if world.Until(limited, func() error { return runningPods(limited, w, r.pods) }) == nil {
		return errors.New("the pod runs, though launches cannot go on")
	}
	return ctx.Err()
}

// recover waits until everything is as it should be.
func (r *outageCells) recover(ctx context.Context, w *World, c changes) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, recoveryWithin, fmt.Errorf("not within %s", recoveryWithin))
	defer cancel()
	err := world.Until(ctx, func() error {
		text, err := w.Readiness(ctx)
		if err == nil && strings.Contains(text, "(launches wait)") {
			err = errors.New(text)
		}
		return errors.Join(err, runningPods(ctx, w, r.pods), r.replaced(ctx, w, c), terminated(w, c.removed))
	})
	if err == nil {
		err = awaitPoolReady(ctx, w)
	}
	if err != nil {
		return err
	}
	w.Note("recovered %.1f s after the outage", time.Since(began).Seconds())
	return nil
}

// replaced reports an error while the drifted NodeClaim is there.
func (r *outageCells) replaced(ctx context.Context, w *World, c changes) error {
	if c.drifting == "" {
		return nil
	}
	claims, err := claimsOfPool(ctx, w, driftingApp)
	if err != nil {
		return err
	}
	if len(claims) != 1 || claims[0].UID == c.drifting {
		return errors.New("the drifted node is not replaced")
	}
	return awaitPodsRunning(ctx, w, driftingApp, 1)
}

// terminated reports an error while an instance runs.
func terminated(w *World, id string) error {
	if slices.ContainsFunc(w.Running(), func(i awsim.Instance) bool { return i.ID == id }) {
		return fmt.Errorf("instance %s is not terminated", id)
	}
	return nil
}

// stock are the NodeClaims, their pods and their instances at a time, which an outage must not touch.
type stock struct {
	// claims have the ID of the instance and the UIDs of the pods, by UID.
	claims map[types.UID]stockedClaim
}

type stockedClaim struct {
	name, instance string
	pods           []types.UID
}

// takeStock lists what runs.
func takeStock(ctx context.Context, w *World) (*stock, error) {
	var claims karpv1.NodeClaimList
	var all corev1.PodList
	if err := list(ctx, w, &claims, &all); err != nil {
		return nil, err
	}
	out := &stock{claims: map[types.UID]stockedClaim{}}
	for _, c := range claims.Items {
		if c.DeletionTimestamp != nil {
			continue
		}
		s := stockedClaim{name: c.Name, instance: world.InstanceID(c.Status.ProviderID)}
		for _, p := range all.Items {
			if p.Spec.NodeName == c.Status.NodeName && running(p) {
				s.pods = append(s.pods, p.UID)
			}
		}
		out.claims[c.UID] = s
	}
	return out, nil
}

// release takes a NodeClaim out, which may go.
func (s *stock) release(claim types.UID) { delete(s.claims, claim) }

// untouched reports what has gone, or is about to.
func (s *stock) untouched(ctx context.Context, w *World) error {
	now, err := takeStock(ctx, w)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, i := range w.Running() {
		live[i.ID] = true
	}
	var errs []error
	for uid, before := range s.claims {
		c, there := now.claims[uid]
		switch {
		case !there:
			errs = append(errs, fmt.Errorf("NodeClaim %s is deleted", before.name))
		case !live[before.instance]:
			errs = append(errs, fmt.Errorf("instance %s of NodeClaim %s is terminated", before.instance, before.name))
		}
		for _, pod := range before.pods {
			if there && !slices.Contains(c.pods, pod) {
				errs = append(errs, fmt.Errorf("a pod on the node of NodeClaim %s has gone", before.name))
			}
		}
	}
	return errors.Join(errs...)
}
