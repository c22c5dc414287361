// Package interruption ends NodeClaims whose instances are going to be interrupted: before the cloud takes the machine, their pods
// move, and others are bought for them.
//
// Queue reads the warnings that the cloud puts into a queue, Status asks every minute which instances are not well. A message
// is deleted only after what follows from it has been written to the API server; until then it comes again, to this process
// or the next.
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
)

// remindEvery is how often an event about something that lasts is repeated.
const remindEvery = 15 * time.Minute

// rule is what an interruption leads to.
type rule struct {
	// event is the reason of the event on NodeClaim and Node, and the reason for which the node is drained.
	event string
	// message of the event.
	message string
	// ends is true if the claim is deleted; forceful if its pods are not waited for, since its machine does not work.
	ends, forceful bool
}

func ruleOf(kind cloudprovider.InterruptionKind) (rule, bool) {
	switch kind {
	case cloudprovider.SpotInterrupted:
		return rule{event: karpv1.ReasonSpotInterrupted, message: "Spot interruption warning was received", ends: true}, true
	case cloudprovider.RebalanceRecommended:
		return rule{event: "SpotRebalanceRecommendation", message: "Spot rebalance recommendation was received"}, true
	case cloudprovider.InstanceStopped:
		return rule{event: "InstanceStopping", message: "Instance is stopping or stopped", ends: true}, true
	case cloudprovider.InstanceTerminated:
		return rule{event: "InstanceTerminating", message: "Instance is terminating or terminated", ends: true}, true
	case cloudprovider.ReservationInterrupted:
		return rule{event: karpv1.ReasonReservationInterrupted, message: "Capacity reservation interruption warning was received", ends: true}, true
	case cloudprovider.ScheduledChange, cloudprovider.EventScheduled:
		return rule{event: "InstanceUnhealthy", message: "A change that interrupts the instance is scheduled", ends: true}, true
	case cloudprovider.InstanceStatusFailed, cloudprovider.SystemStatusFailed:
		return rule{event: "InstanceUnhealthy", message: "A status check of the instance has failed", ends: true, forceful: true}, true
	}
	return rule{}, false
}

// offerings are told what an interruption says about capacity.
type offerings interface {
	SpotInterrupted(instanceType, zone string)
	ReservationInterrupted(id string)
}

// Actor does to NodeClaims what interruptions call for. Doing it again changes nothing.
type Actor struct {
	Client client.Client
	// Live reads the API server itself, when the cache is behind.
	Live    client.Reader
	Cloud   offerings
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// interruption is what happens to a claim, for one cause or several at once.
type interruption struct {
	kinds []cloudprovider.InterruptionKind
	// detail is appended to what people are told; it may be empty.
	detail string
}

// act tells people, and the cloud's memory of what can be had, and ends the claim.
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
		a.tell(claim, nodes, kind, r, i.detail)
		a.learn(claim, kind)
		forceful = forceful || r.forceful
		if r.ends && !because.ends {
			first, because = kind, r
		}
	}
	if !because.ends {
		return nil
	}
	ended, err := a.end(ctx, claim, because.event, forceful)
	if err != nil || !ended {
		return err
	}
	a.Log.Info("deleting nodeclaim, its instance is interrupted", "NodeClaim", claim.Name, "Node", claim.Status.NodeName, "provider-id", claim.Status.ProviderID, "reason", string(first))
	for _, o := range about(claim, nodes) {
		a.Events.Warn(o, "TerminatingOnInterruption", "Interruption triggered termination for the NodeClaim %s: %s", claim.Name, because.message)
	}
	a.Metrics.Disrupted(claim, string(first))
	return nil
}

// about are the objects that events about a claim are recorded on.
func about(claim *karpv1.NodeClaim, nodes []corev1.Node) []event.Object {
	out := []event.Object{claim}
	for i := range nodes {
		out = append(out, &nodes[i])
	}
	return out
}

func (a *Actor) tell(claim *karpv1.NodeClaim, nodes []corev1.Node, kind cloudprovider.InterruptionKind, r rule, detail string) {
	message := r.message
	if detail != "" {
		message += ": " + detail
	}
	for _, o := range about(claim, nodes) {
		if kind == cloudprovider.RebalanceRecommended {
			a.Events.Normal(o, r.event, "%s", message)
		} else {
			a.Events.WarnEvery(remindEvery, o, r.event, "%s", message)
		}
	}
}

// learn keeps others from being launched where this one is taken away.
func (a *Actor) learn(claim *karpv1.NodeClaim, kind cloudprovider.InterruptionKind) {
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

// attempts is how often a claim is read anew because somebody else has written to it.
const attempts = 5

// end deletes a claim, unless that has been done, and reports whether it has. It returns once the API server has it in
// writing.
func (a *Actor) end(ctx context.Context, claim *karpv1.NodeClaim, reason string, forceful bool) (ended bool, err error) {
	now := claim.DeepCopy()
	for attempt := 1; ; attempt++ {
		ended, err = a.tryEnd(ctx, now, reason, forceful)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return ended, client.IgnoreNotFound(err)
		}
		if err := a.Live.Get(ctx, client.ObjectKeyFromObject(claim), now); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if now.UID != claim.UID {
			return false, nil // another of its name
		}
	}
}

// tryEnd writes the deadline, the reason, and the deletion, each only to the claim as it was read. Of two that try, one has
// deleted it.
func (a *Actor) tryEnd(ctx context.Context, claim *karpv1.NodeClaim, reason string, forceful bool) (ended bool, err error) {
	deadline, _ := claim.TerminationDeadline() // one that cannot be read is none; the claim's end says so
	if forceful && deadline == nil {
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationTerminationTimestamp, a.Now().UTC().Format(time.RFC3339))
		if err := a.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, err
		}
	}
	leaving := claim.DeletionTimestamp != nil
	if leaving && reason != karpv1.ReasonSpotInterrupted && reason != karpv1.ReasonReservationInterrupted {
		return false, nil
	}
	before := claim.DeepCopy()
	if condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, reason, reason, a.Now()) {
		if err := a.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, err
		}
	}
	if leaving { // it has to hurry now, which is what the reason is for
		return false, nil
	}
	err = a.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	return err == nil, err
}

// claimsOf are the claims of ours for an instance.
func (a *Actor) claimsOf(ctx context.Context, instanceID string) ([]karpv1.NodeClaim, error) {
	claims, err := cluster.ClaimsOfInstance(ctx, a.Client, instanceID)
	return slices.DeleteFunc(claims, func(c karpv1.NodeClaim) bool { return !awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) }), err
}
