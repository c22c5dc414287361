package disruption

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Reasons to roll a command back before it has deleted or launched anything.
var (
	// errPodsChanged means that pods have come to a node, or have become protected, since the decision.
	errPodsChanged = errors.New("pods have changed since the decision")
	// errLimitReached means that claims created since the decision have used up the limits of a pool.
	errLimitReached = errors.New("the limits of the pool no longer allow the replacements")
)

// taintError is the error of a command with a node that could not be tainted.
type taintError struct {
	node *snapshot.Node
	err  error
}

// Error includes the node's name.
func (u *taintError) Error() string { return fmt.Sprintf("taint node %q: %v", u.node.Name, u.err) }

// Unwrap returns the cause.
func (u *taintError) Unwrap() error { return u.err }

// start taints the nodes of a command, checks their pods a last time, and creates the replacements. Nodes without
// replacement are deleted at once, the others by the queue when their replacements are ready. A command that fails here
// is rolled back.
func (l *Loop) start(ctx context.Context, cmd *disrupt.Command, id string) error {
	e := l.newCommand(cmd, id)
	release := l.Queue.markStarting(e.ID)
	defer release()
	err := panics.Error(func() error { return l.startCommand(ctx, cmd, e) }) // after a panic, too, the command is rolled back
	if err == nil {
		return nil
	}
	// If this process exits, the next one rolls the command back.
	return errors.Join(err, l.Queue.rollBackOrDefer(ctx, e, err.Error()))
}

// newCommand returns the record of a command for its claims.
func (l *Loop) newCommand(cmd *disrupt.Command, id string) karpv1.DisruptionCommand {
	e := karpv1.DisruptionCommand{ID: id, Reason: cmd.Reason, Kind: cmd.ConsolidationType, Started: l.Now().UTC()}
	if cmd.Bound != nil {
		e.Bound = &metav1.Duration{Duration: *cmd.Bound}
	}
	for _, c := range cmd.Candidates {
		e.Candidates = append(e.Candidates, c.Node.Claim)
	}
	if cmd.Static() {
		e.Replacements = []string{replacementName(cmd.Candidates[0].Pool.Name, e.ID, 0)}
	}
	for i := range cmd.Plan.Launches {
		e.Replacements = append(e.Replacements, replacementName(cmd.Plan.Launches[i].Pool.Name, e.ID, i))
	}
	return e
}

// replacementName is the name of a command's i-th replacement. It is derived from the command's ID, so that a claim
// with a lost create response can be found, and is not created twice.
func replacementName(pool, id string, i int) string {
	const longest, digits = 52, 10
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", id, i))
	return fmt.Sprintf("%s-%s", strings.TrimRight(pool[:min(len(pool), longest)], "-."), hex.EncodeToString(sum[:])[:digits])
}

func (l *Loop) startCommand(ctx context.Context, cmd *disrupt.Command, e karpv1.DisruptionCommand) error {
	moved := map[types.UID]bool{}
	for i := range cmd.Plan.Launches {
		for _, p := range cmd.Plan.Launches[i].Pods {
			moved[p.UID] = true
		}
	}
	for _, c := range cmd.Candidates {
		l.State.MarkDisrupting(c.Node.ClaimUID, e.Replacements)
		if err := l.markCandidate(ctx, c, e, moved); err != nil {
			return &taintError{c.Node, err}
		}
	}
	for _, c := range cmd.Candidates {
		if err := l.validatePods(ctx, cmd, c); err != nil {
			return err
		}
	}
	restarts, err := l.recordSurges(ctx, cmd, e)
	if err != nil {
		return err
	}
	if len(e.Replacements) == 0 {
		l.nominate(cmd)
		if restarts {
			return nil // the queue goes on
		}
		return l.deleteCandidates(ctx, e)
	}
	if err := l.releasePods(ctx, e, moved); err != nil {
		return err
	}
	if err := l.createReplacements(ctx, cmd, e); err != nil {
		return err
	}
	l.Queue.noteReplacementsCreated(e.ID)
	l.nominate(cmd)
	return nil
}

// nominate protects the nodes that pods are expected to move to from disruption.
func (l *Loop) nominate(cmd *disrupt.Command) {
	for _, p := range cmd.Plan.Placements {
		l.State.Nominate(p.Node)
	}
}

// markCandidate records the command on the claim, releases the pods that a replacement is for, taints the node, and
// sets the condition DisruptionReason.
func (l *Loop) markCandidate(ctx context.Context, c *disrupt.Candidate, e karpv1.DisruptionCommand, moved map[types.UID]bool) error {
	claim := &karpv1.NodeClaim{}
	claim.Name = c.Node.Claim
	clients := patch.Clients{Client: l.Client, Live: l.Live}
	err := patch.ObjectWithRetry(ctx, clients, claim, func(claim *karpv1.NodeClaim) error {
		if claim.UID != c.Node.ClaimUID || claim.DeletionTimestamp != nil {
			return errPodsChanged
		}
		if other, ok, err := claim.DisruptionCommand(); ok && err == nil && other.ID != e.ID {
			return fmt.Errorf("node claim %q is part of command %s: %w", claim.Name, other.ID, errPodsChanged)
		}
		claim.RemoveNominated(moved)
		return claim.SetDisruptionCommand(&e)
	})
	if err != nil {
		return err
	}
	if err := setTaint(ctx, l.Client, l.Live, c.Node.Name, true /* present */); err != nil {
		return err
	}
	return patch.StatusWithRetry(ctx, clients, claim, func(claim *karpv1.NodeClaim) error {
		condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, condition.Because(string(e.Reason), string(e.Reason)), l.Now())
		return nil
	})
}

// releasePods removes the pods that replacements are for from the nominations of other claims: a pod is nominated to
// one claim at a time.
func (l *Loop) releasePods(ctx context.Context, e karpv1.DisruptionCommand, moved map[types.UID]bool) error {
	if len(moved) == 0 {
		return nil
	}
	var list karpv1.NodeClaimList
	if err := l.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range list.Items {
		names := list.Items[i].Nominated(karpv1.AnnotationNominatedPods)
		if slices.Contains(e.Candidates, list.Items[i].Name) || !slices.ContainsFunc(names, func(uid types.UID) bool { return moved[uid] }) {
			continue
		}
		if err := provisioning.ReleasePods(ctx, patch.Clients{Client: l.Client, Live: l.Live}, list.Items[i].Name, moved); err != nil {
			return err
		}
	}
	return nil
}

// validatePods reads the pods on the node from the API server and checks that the command is still valid for them.
func (l *Loop) validatePods(ctx context.Context, cmd *disrupt.Command, c *disrupt.Candidate) error {
	var pods corev1.PodList
	if err := l.Live.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName",
		c.Node.Name)}); err != nil {
		return err
	}
	if p := inflight.ChangedPod(cmd, c, pods.Items, l.Now()); p != nil {
		return fmt.Errorf("node %q, pod %s/%s: %w", c.Node.Name, p.Namespace, p.Name, errPodsChanged)
	}
	return nil
}

// deleteCandidates deletes the candidates of a command without replacements.
func (l *Loop) deleteCandidates(ctx context.Context, e karpv1.DisruptionCommand) error {
	var errs []error
	for _, name := range e.Candidates {
		claim := &karpv1.NodeClaim{}
		if err := l.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		errs = append(errs, l.Queue.deleteClaim(ctx, claim, e))
	}
	return errors.Join(errs...)
}

// createReplacements creates the replacements.
func (l *Loop) createReplacements(ctx context.Context, cmd *disrupt.Command, e karpv1.DisruptionCommand) error {
	if cmd.Static() {
		pool := cmd.Candidates[0].Pool
		claim, err := provisioning.StaticClaim(pool, [2]string{awsv1.LabelNodeClass, pool.Spec.Template.Spec.NodeClassRef.Name}, l.Labels)
		if err != nil {
			return err
		}
		return l.createReplacement(ctx, claim, e, 0)
	}
	done := l.State.LockProvisioning()
	defer done()
	if err := l.checkLimits(ctx, cmd); err != nil {
		return err
	}
	for i := range cmd.Plan.Launches {
		claim, err := provisioning.Claim(&cmd.Plan.Launches[i], l.Labels)
		if err != nil {
			return err
		}
		if err := l.createReplacement(ctx, claim, e, i); err != nil {
			return err
		}
	}
	return nil
}

// checkLimits checks the replacements against the limits of their pools again: claims may have been created for pods
// since the decision.
func (l *Loop) checkLimits(ctx context.Context, cmd *disrupt.Command) error {
	if !slices.ContainsFunc(cmd.Plan.Launches, func(l schedule.Launch) bool { return len(l.Pool.Spec.Limits) > 0 }) {
		return nil
	}
	snap, err := l.State.Snapshot(ctx)
	if err != nil {
		return err
	}
	if why := disrupt.ExceededLimit(snap, cmd.Plan.Launches); why != "" {
		return fmt.Errorf("%w: %s", errLimitReached, why)
	}
	return nil
}

// createReplacement creates the i-th replacement. After an error it checks whether the API server has created it
// nevertheless.
func (l *Loop) createReplacement(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand, i int) error {
	claim.Name = e.Replacements[i]
	claim.Annotations[karpv1.AnnotationLaunchReason] = string(e.Reason)
	claim.Annotations[karpv1.AnnotationReplaces] = strings.Join(e.Candidates, ",")
	claim.Annotations[karpv1.AnnotationReplacementOf] = e.ID
	if l.Recorder != nil {
		claim.Annotations[karpv1.AnnotationDecision] = e.ID
	}
	err := l.Client.Create(ctx, claim)
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		l.State.Invalidate()
		live := &karpv1.NodeClaim{}
		if l.Live.Get(ctx, client.ObjectKeyFromObject(claim), live) == nil && live.Annotations[karpv1.AnnotationReplacementOf] == e.ID {
			claim, err = live, nil
		}
	}
	if err != nil {
		return fmt.Errorf("create replacement %q: %w", claim.Name, err)
	}
	l.State.Created(claim)
	pool := claim.Labels[karpv1.LabelNodePool]
	l.Metrics.ClaimsCreated.WithLabelValues(
		strings.ToLower(string(e.Reason)),
		pool,
		fmt.Sprint(claim.Annotations[karpv1.AnnotationMinValuesRelaxed] == "true"),
	).Inc()
	l.Log.Info("created nodeclaim", "NodePool", pool, "NodeClaim", claim.Name, "requests", claim.Spec.Resources.Requests,
		"replaces", slices.Clone(e.Candidates), "reason", strings.ToLower(string(e.Reason)), "decision-id", e.ID)
	l.Recorder.Step(recorder.Step{Decision: e.ID, What: recorder.StepCreated, Object: claim.Name})
	return nil
}
