// Package interruption deletes NodeClaims with instances that EC2 is going to interrupt, so that pods move to new nodes
// before.
//
// Queue reads interruption warnings from a queue, Status reads every minute which instances are unhealthy. A message is
// deleted only after its consequences have been written to the API server; until then it is received again, by this
// process or the next.
package interruption

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// eventInterval sets how often an event about a lasting state is repeated.
const eventInterval = 15 * time.Minute

// rule describes how a kind of interruption is handled.
type rule struct {
	// event is the reason of the event on NodeClaim and Node, and of the condition DisruptionReason.
	event string
	// message of the event.
	message string
	// deletes is true if the claim is deleted; forceful if its pods are not drained first, since the instance does not
	// work.
	deletes, forceful bool
}

func ruleOf(kind cloudprovider.InterruptionKind) (rule, bool) {
	switch kind {
	case cloudprovider.SpotInterrupted:
		return rule{event: karpv1.ReasonSpotInterrupted, message: "Spot interruption warning was received", deletes: true}, true
	case cloudprovider.RebalanceRecommended:
		return rule{event: "SpotRebalanceRecommendation", message: "Spot rebalance recommendation was received"}, true
	case cloudprovider.InstanceStopped:
		return rule{event: "InstanceStopping", message: "Instance is stopping or stopped", deletes: true}, true
	case cloudprovider.InstanceTerminated:
		return rule{event: "InstanceTerminating", message: "Instance is terminating or terminated", deletes: true}, true
	case cloudprovider.ReservationInterrupted:
		return rule{
			event:   karpv1.ReasonReservationInterrupted,
			message: "Capacity reservation interruption warning was received",
			deletes: true,
		}, true
	case cloudprovider.ScheduledChange, cloudprovider.EventScheduled:
		return rule{event: "InstanceUnhealthy", message: "A change that interrupts the instance is scheduled", deletes: true}, true
	case cloudprovider.InstanceStatusFailed, cloudprovider.SystemStatusFailed:
		return rule{event: "InstanceUnhealthy", message: "A status check of the instance has failed", deletes: true, forceful: true}, true
	}
	return rule{}, false
}

// offerings marks offerings as unavailable after an interruption.
type offerings interface {
	SpotInterrupted(instanceType, zone string)
	ReservationInterrupted(id string)
}

// Actor handles the interruption of NodeClaims. It is idempotent.
type Actor struct {
	Client client.Client
	Guard  *destroy.Guard
	// Live reads from the API server, when the cache is stale.
	Live    client.Reader
	Cloud   offerings
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// interruption is an interruption of one claim, for one cause or several.
type interruption struct {
	kinds []cloudprovider.InterruptionKind
	// detail is appended to event messages; it may be empty.
	detail string
}

// act publishes events, marks the offering unavailable, and deletes the claim if the rule reports it.
func (a *Actor) act(ctx context.Context, claim *karpv1.NodeClaim, i interruption) error {
	nodes, err := cluster.NodesOf(ctx, a.Client, claim.Status.ProviderID)
	if err != nil {
		return err
	}
	var first cloudprovider.InterruptionKind
	var because rule
	forceful := false
	for _, kind := range i.kinds {
		r, known := ruleOf(kind)
		if !known {
			continue
		}
		message := r.message
		if i.detail != "" {
			message += ": " + i.detail
		}
		a.recordEvents(eventObjects(claim, nodes), kind, r.event, message)
		a.markUnavailable(claim, kind)
		forceful = forceful || r.forceful
		if r.deletes && !because.deletes {
			first, because = kind, r
		}
	}
	if !because.deletes {
		return nil
	}
	deleted, err := a.deleteClaim(ctx, claim, because.event, forceful)
	if err != nil || !deleted {
		return err
	}
	a.Log.Info(
		"deleting nodeclaim, its instance is interrupted",
		"NodeClaim",
		claim.Name,
		"Node",
		claim.Status.NodeName,
		"provider-id",
		claim.Status.ProviderID,
		"reason",
		string(first),
	)
	for _, o := range eventObjects(claim, nodes) {
		a.Events.Warn(
			o,
			"TerminatingOnInterruption",
			"Interruption triggered termination for the NodeClaim %s: %s",
			claim.Name,
			because.message,
		)
	}
	a.Metrics.Disrupted(claim, string(first))
	return nil
}

// eventObjects are the objects that events about a claim are published on.
func eventObjects(claim *karpv1.NodeClaim, nodes []corev1.Node) []event.Object {
	out := []event.Object{claim}
	for i := range nodes {
		out = append(out, &nodes[i])
	}
	return out
}

func (a *Actor) recordEvents(objects []event.Object, kind cloudprovider.InterruptionKind, reason, message string) {
	for _, o := range objects {
		if kind == cloudprovider.RebalanceRecommended {
			a.Events.Normal(o, reason, "%s", message)
		} else {
			a.Events.WarnEvery(eventInterval, o, reason, "%s", message)
		}
	}
}

// markUnavailable keeps new nodes from the offering that is interrupted.
func (a *Actor) markUnavailable(claim *karpv1.NodeClaim, kind cloudprovider.InterruptionKind) {
	switch kind {
	case cloudprovider.SpotInterrupted:
		typ, zone := claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone]
		if typ != "" && zone != "" {
			a.Cloud.SpotInterrupted(typ, zone)
		}
	case cloudprovider.ReservationInterrupted:
		if id := claim.Labels[awsv1.LabelReservationID]; id != "" {
			a.Cloud.ReservationInterrupted(id)
		}
	}
}

// maxAttempts limits how often a deletion is tried against other writers of the claim.
const maxAttempts = 5

// deleteClaim deletes a claim, unless it is deleting already, and reports whether it did.
func (a *Actor) deleteClaim(ctx context.Context, claim *karpv1.NodeClaim, reason string, forceful bool) (deleted bool, err error) {
	now := claim.DeepCopy()
	for attempt := 1; ; attempt++ {
		deleted, err = a.tryDelete(ctx, now, reason, forceful)
		if !apierrors.IsConflict(err) || attempt == maxAttempts {
			return deleted, client.IgnoreNotFound(err)
		}
		if err := a.Live.Get(ctx, client.ObjectKeyFromObject(claim), now); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if now.UID != claim.UID {
			return false, nil // another claim has its name
		}
	}
}

// tryDelete writes the deadline and the reason, and deletes the claim, each with the version that was read: of two
// concurrent calls, only one deletes it.
func (a *Actor) tryDelete(ctx context.Context, claim *karpv1.NodeClaim, reason string, forceful bool) (deleted bool, err error) {
	deadline, _ := claim.TerminationDeadline() // the termination controller reports one that cannot be parsed
	if forceful && deadline == nil {
		_, err := patch.Object(ctx, a.Client, claim, func() {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationTerminationTimestamp, a.Now().UTC().Format(time.RFC3339))
		})
		if err != nil {
			return false, err
		}
	}
	deleting := claim.DeletionTimestamp != nil
	if deleting && reason != karpv1.ReasonSpotInterrupted && reason != karpv1.ReasonReservationInterrupted {
		return false, nil
	}
	_, err = patch.Status(ctx, a.Client, claim, func() {
		condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, condition.Because(reason, reason), a.Now())
	})
	if err != nil {
		return false, err
	}
	// The reason makes a deletion in progress hurry, and a pause of deletions holds it up no more.
	err = a.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Interrupted, Reason: reason, Unchanged: true})
	return err == nil && !deleting, err
}

// claimsOf returns the claims of this controller for an instance.
func (a *Actor) claimsOf(ctx context.Context, instanceID string) ([]karpv1.NodeClaim, error) {
	claims, err := cluster.ClaimsOfInstance(ctx, a.Client, instanceID)
	return slices.DeleteFunc(claims, func(c karpv1.NodeClaim) bool { return !awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) }), err
}
