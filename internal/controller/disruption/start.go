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
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// What a command is taken back for before it has begun: pods have come or have become protected since it was made, or others
// have bought what its replacements were to be.
var (
	errSlipped = errors.New("pods have changed since the decision")
	errSpent   = errors.New("the limits of the pool leave no room for the replacements any more")
)

// unclosed is a node that could not be closed, and so kept its command from being started.
type unclosed struct {
	node *snapshot.Node
	err  error
}

// Error names the node.
func (u *unclosed) Error() string { return fmt.Sprintf("close node %q: %v", u.node.Name, u.err) }

// Unwrap is why.
func (u *unclosed) Unwrap() error { return u.err }

// start closes the nodes of a command to new pods, looks for the last time at which pods are there, and buys the replacements.
// Nodes that need none are ended at once, the others by the queue when their replacements are ready. What fails is taken back.
func (l *Loop) start(ctx context.Context, cmd *disrupt.Command, id string) error {
	e := l.ending(cmd, id)
	release := l.Queue.hold(e.ID)
	defer release()
	err := panics.Error(func() error { return l.begin(ctx, cmd, e) }) // or what is begun would not be taken back
	if err == nil {
		return nil
	}
	// A process that ends takes back nothing: the next one does.
	return errors.Join(err, l.Queue.owe(ctx, e, err.Error()))
}

// ending is what the claims of a command are to remember.
func (l *Loop) ending(cmd *disrupt.Command, id string) karpv1.DisruptionCommand {
	e := karpv1.DisruptionCommand{ID: id, Reason: cmd.Reason, Kind: cmd.Kind, Started: l.Now().UTC()}
	for _, c := range cmd.Candidates {
		e.Candidates = append(e.Candidates, c.Node.Claim)
	}
	if isStatic(cmd) {
		e.Replacements = []string{replacementName(cmd.Candidates[0].Pool.Name, e.ID, 0)}
	}
	for i := range cmd.Plan.Launches {
		e.Replacements = append(e.Replacements, replacementName(cmd.Plan.Launches[i].Pool.Name, e.ID, i))
	}
	return e
}

// isStatic tells whether the command replaces a node of a pool of a fixed size.
func isStatic(cmd *disrupt.Command) bool {
	return cmd.Reason == karpv1.DisruptionDrifted && cmd.Candidates[0].Pool.Spec.Replicas != nil
}

// replacementName is the name of a command's i-th replacement. It is fixed beforehand, so that a claim whose creation was not
// answered can be found, and is not created twice.
func replacementName(pool, id string, i int) string {
	const longest, digits = 52, 10
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", id, i))
	return fmt.Sprintf("%s-%s", strings.TrimRight(pool[:min(len(pool), longest)], "-."), hex.EncodeToString(sum[:])[:digits])
}

func (l *Loop) begin(ctx context.Context, cmd *disrupt.Command, e karpv1.DisruptionCommand) error {
	moved := map[types.UID]bool{}
	for i := range cmd.Plan.Launches {
		for _, p := range cmd.Plan.Launches[i].Pods {
			moved[p.UID] = true
		}
	}
	for _, c := range cmd.Candidates {
		l.State.Disrupt(c.Node.ClaimUID, e.Replacements)
		if err := l.close(ctx, c, e, moved); err != nil {
			return &unclosed{c.Node, err}
		}
	}
	for _, c := range cmd.Candidates {
		if err := l.unchanged(ctx, cmd, c); err != nil {
			return err
		}
	}
	if len(e.Replacements) == 0 {
		l.nominate(cmd)
		return l.endAll(ctx, e)
	}
	if err := l.revoke(ctx, e, moved); err != nil {
		return err
	}
	if err := l.buy(ctx, cmd, e); err != nil {
		return err
	}
	l.Queue.noteWhole(e.ID)
	l.nominate(cmd)
	return nil
}

// nominate keeps the nodes that pods are to move to from being ended before they come.
func (l *Loop) nominate(cmd *disrupt.Command) {
	for _, p := range cmd.Plan.Placements {
		l.State.Nominate(p.Node)
	}
}

// close makes the claim remember its end and let go of the pods that a replacement is bought for, keeps new pods off its node,
// and says why.
func (l *Loop) close(ctx context.Context, c *disrupt.Candidate, e karpv1.DisruptionCommand, moved map[types.UID]bool) error {
	claim := &karpv1.NodeClaim{}
	claim.Name = c.Node.Claim
	err := patch.Change(ctx, l.Client, l.Live, claim, func(claim *karpv1.NodeClaim) error {
		if claim.UID != c.Node.ClaimUID || claim.DeletionTimestamp != nil {
			return errSlipped
		}
		if other, ok, err := claim.DisruptionCommand(); ok && err == nil && other.ID != e.ID {
			return fmt.Errorf("node claim %q is part of command %s: %w", claim.Name, other.ID, errSlipped)
		}
		claim.LetGo(moved)
		return claim.SetDisruptionCommand(&e)
	}, func(o *karpv1.NodeClaim, p client.Patch) error { return l.Client.Patch(ctx, o, p) })
	if err != nil {
		return err
	}
	if err := setTaint(ctx, l.Client, l.Live, c.Node.Name, true /* present */); err != nil {
		return err
	}
	return patch.Change(ctx, l.Client, l.Live, claim, func(claim *karpv1.NodeClaim) error {
		condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, string(e.Reason), string(e.Reason), l.Now())
		return nil
	}, func(o *karpv1.NodeClaim, p client.Patch) error { return l.Client.Status().Patch(ctx, o, p) })
}

// revoke takes pods that replacements are bought for off whatever other claim still names them: a pod has one claim at a time.
func (l *Loop) revoke(ctx context.Context, e karpv1.DisruptionCommand, moved map[types.UID]bool) error {
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
		if err := provisioning.LetGo(ctx, l.Client, l.Live, list.Items[i].Name, moved); err != nil {
			return err
		}
	}
	return nil
}

// unchanged asks the API server whether the pods on the node are those that the command was made for.
func (l *Loop) unchanged(ctx context.Context, cmd *disrupt.Command, c *disrupt.Candidate) error {
	var pods corev1.PodList
	if err := l.Live.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", c.Node.Name)}); err != nil {
		return err
	}
	known := make(map[types.UID]bool, len(c.Node.Pods))
	for _, p := range c.Node.Pods {
		known[p.UID] = true
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		var changed bool
		switch {
		case cmd.Reason == karpv1.DisruptionEmpty:
			changed = disrupt.Load(p) || !snapshot.Disruptable(p, l.Now())
		case c.Node.Bounded && cmd.Reason == karpv1.DisruptionDrifted:
			changed = snapshot.Reschedulable(p) && !known[p.UID]
		default:
			changed = snapshot.Reschedulable(p) && !known[p.UID] || !snapshot.Disruptable(p, l.Now())
		}
		if changed {
			return fmt.Errorf("node %q, pod %s/%s: %w", c.Node.Name, p.Namespace, p.Name, errSlipped)
		}
	}
	return nil
}

// endAll deletes the claims of nodes that need no replacement.
func (l *Loop) endAll(ctx context.Context, e karpv1.DisruptionCommand) error {
	var errs []error
	for _, name := range e.Candidates {
		claim := &karpv1.NodeClaim{}
		if err := l.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		errs = append(errs, l.Queue.end(ctx, claim, e))
	}
	return errors.Join(errs...)
}

// buy creates the replacements.
func (l *Loop) buy(ctx context.Context, cmd *disrupt.Command, e karpv1.DisruptionCommand) error {
	if isStatic(cmd) {
		pool := cmd.Candidates[0].Pool
		claim, err := provisioning.FixedClaim(pool, [2]string{awsv1.LabelNodeClass, pool.Spec.Template.Spec.NodeClassRef.Name}, l.Labels)
		if err != nil {
			return err
		}
		return l.create(ctx, claim, e, 0)
	}
	done := l.State.Buying()
	defer done()
	if err := l.affords(ctx, cmd); err != nil {
		return err
	}
	for i := range cmd.Plan.Launches {
		claim, err := provisioning.Claim(&cmd.Plan.Launches[i], l.Labels)
		if err != nil {
			return err
		}
		if err := l.create(ctx, claim, e, i); err != nil {
			return err
		}
	}
	return nil
}

// affords looks anew at the limits of the pools that the replacements are of: since the command was made, claims may have been
// created for pods.
func (l *Loop) affords(ctx context.Context, cmd *disrupt.Command) error {
	if !slices.ContainsFunc(cmd.Plan.Launches, func(l schedule.Launch) bool { return len(l.Pool.Spec.Limits) > 0 }) {
		return nil
	}
	snap, err := l.State.Snapshot(ctx)
	if err != nil {
		return err
	}
	if why := disrupt.OverLimits(snap, cmd.Plan.Launches); why != "" {
		return fmt.Errorf("%w: %s", errSpent, why)
	}
	return nil
}

// create makes the i-th replacement. It is there if it was created by a call that was not answered.
func (l *Loop) create(ctx context.Context, claim *karpv1.NodeClaim, e karpv1.DisruptionCommand, i int) error {
	claim.Name = e.Replacements[i]
	claim.Annotations[karpv1.AnnotationLaunchReason] = string(e.Reason)
	claim.Annotations[karpv1.AnnotationReplaces] = strings.Join(e.Candidates, ",")
	claim.Annotations[karpv1.AnnotationReplacementOf] = e.ID
	err := l.Client.Create(ctx, claim)
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		l.State.Forget()
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
	l.Metrics.ClaimsCreated.WithLabelValues(strings.ToLower(string(e.Reason)), pool, fmt.Sprint(claim.Annotations[karpv1.AnnotationMinValuesRelaxed] == "true")).Inc()
	l.Log.Info("created nodeclaim", "NodePool", pool, "NodeClaim", claim.Name, "requests", claim.Spec.Resources.Requests,
		"replaces", slices.Clone(e.Candidates), "reason", strings.ToLower(string(e.Reason)))
	return nil
}
