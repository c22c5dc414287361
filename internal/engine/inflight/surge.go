package inflight

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Surge is a Deployment that is restarted before a command deletes the node of its only pod, so that the next pod is Ready first.
type Surge struct {
	// Record is what the candidate has of it.
	Record karpv1.Surge
	// Claim is the name of that candidate.
	Claim string
	// Deployment is nil if it does not exist any more. Pods are all of it.
	Deployment *appsv1.Deployment
	Pods       []*corev1.Pod
	// Exclusive is the name of a PersistentVolumeClaim that only pods of one node can use; empty if the pods have none.
	Exclusive string
	// Nodes are those of the command.
	Nodes map[string]bool
	// Timeout is how long the rollout may take.
	Timeout time.Duration
}

// SurgeAction is what is done about a Surge.
type SurgeAction string

// The actions.
const (
	// SurgeBegin: it is recorded that the waits begin.
	SurgeBegin SurgeAction = "Begin"
	// SurgeWait for a rollout.
	SurgeWait SurgeAction = "Wait"
	// SurgeRecord: it is recorded that the Deployment is restarted, before it is.
	SurgeRecord SurgeAction = "Record"
	// SurgeRestart the Deployment, as recorded.
	SurgeRestart SurgeAction = "Restart"
	// SurgeGiveUp: it is recorded that the pods are evicted instead.
	SurgeGiveUp SurgeAction = "GiveUp"
	// SurgeFailed: the rollout has failed, and the command is rolled back.
	SurgeFailed SurgeAction = "Failed"
	// SurgeDone: nothing is left to do.
	SurgeDone SurgeAction = "Done"
)

// Reasons of events about a Surge.
const (
	ReasonSurgeImpossible   = "SurgeImpossible"
	ReasonRolloutInProgress = "RolloutInProgress"
	ReasonSurgeTimedOut     = "SurgeTimedOut"
)

// SurgeStep is what is done next about a Surge. Equal facts give equal steps.
type SurgeStep struct {
	Action SurgeAction
	// Reason and Message are those of an event; empty if there is none.
	Reason, Message string
	// Until is when time alone changes a wait.
	Until time.Time
}

// Next decides what is done about a Surge now.
func (s *Surge) Next(now time.Time) SurgeStep {
	r := &s.Record
	switch {
	case r.GaveUp, s.Deployment == nil, s.Deployment.UID != types.UID(r.UID), !s.stays():
		return SurgeStep{Action: SurgeDone}
	case r.Restarted != nil && s.Deployment.Generation == r.Generation:
		return SurgeStep{Action: SurgeRestart}
	case r.Restarted != nil:
		return s.rollout(now)
	}
	if why := s.impossible(); why != "" {
		return SurgeStep{Action: SurgeGiveUp, Reason: ReasonSurgeImpossible, Message: "Pods are evicted without a restart first: " + why}
	}
	if r.Began == nil {
		return SurgeStep{Action: SurgeBegin}
	}
	if s.idle() {
		return SurgeStep{Action: SurgeRecord}
	}
	if ends := r.Began.Add(s.Timeout); now.Before(ends) {
		return SurgeStep{
			Action: SurgeWait, Until: ends, Reason: ReasonRolloutInProgress,
			Message: "The restart that moves the pod to another node waits for the rollout in progress",
		}
	}
	return SurgeStep{
		Action: SurgeGiveUp, Reason: ReasonSurgeTimedOut,
		Message: fmt.Sprintf("Pods are evicted without a restart first: another rollout has not completed for %v", s.Timeout),
	}
}

// name is the Deployment's, with its namespace.
func (s *Surge) name() string { return s.Record.Namespace + "/" + s.Record.Name }

// verdictWait sets how long after progressDeadlineSeconds the Deployment controller has stated that a rollout does not progress.
const verdictWait = time.Minute

// rollout decides about a Deployment that has been restarted.
func (s *Surge) rollout(now time.Time) SurgeStep {
	d := s.Deployment
	progressing := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
	})
	if progressing >= 0 && d.Status.ObservedGeneration >= d.Generation && d.Generation > s.Record.Generation {
		return SurgeStep{Action: SurgeFailed}
	}
	timeout := s.Timeout
	if own := d.Spec.ProgressDeadlineSeconds; own != nil && time.Duration(*own)*time.Second <= timeout {
		timeout = max(timeout, time.Duration(*own)*time.Second+verdictWait) // a failed rollout must not take the last pod
	}
	ends := s.Record.Restarted.Add(timeout)
	if now.Before(ends) {
		return SurgeStep{Action: SurgeWait, Until: ends}
	}
	return SurgeStep{
		Action: SurgeGiveUp, Reason: ReasonSurgeTimedOut,
		Message: fmt.Sprintf("Pods are evicted: the restart that was to move them has not completed for %v", timeout),
	}
}

// stays reports whether a pod of the Deployment still has to leave a node of the command.
func (s *Surge) stays() bool {
	return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return snapshot.Active(p) && s.Nodes[p.Spec.NodeName] })
}

// Singleton reports whether all that serves requests of a Deployment is on the nodes of a command: it has one replica, or no pod
// elsewhere is Ready.
func Singleton(d *appsv1.Deployment, pods []*corev1.Pod, nodes map[string]bool) bool {
	if d.Spec.Replicas == nil || *d.Spec.Replicas == 1 {
		return true
	}
	return *d.Spec.Replicas > 1 && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return snapshot.Active(p) && snapshot.Ready(p) && !nodes[p.Spec.NodeName]
	})
}

// impossible is why a restart would not move the pods without a gap; empty if it would. A port of the host is no reason: the nodes of the
// command take no pod.
func (s *Surge) impossible() string {
	d := s.Deployment
	switch {
	case !Singleton(d, s.Pods, s.Nodes):
		return "a pod on another node is Ready by now"
	case d.Spec.Paused:
		return "the Deployment is paused"
	case d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType && d.Spec.Strategy.Type != "":
		return "spec.strategy.type is " + string(d.Spec.Strategy.Type)
	case s.Exclusive != "":
		return fmt.Sprintf("the next pod cannot use PersistentVolumeClaim %q while this one does", s.Exclusive)
	}
	replicas := 1
	if d.Spec.Replicas != nil {
		replicas = int(*d.Spec.Replicas)
	}
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if r.MaxSurge != nil {
			surge = *r.MaxSurge
		}
		if r.MaxUnavailable != nil {
			unavailable = *r.MaxUnavailable
		}
	}
	more, err := intstr.GetScaledValueFromIntOrPercent(&surge, replicas, true /* roundUp */)
	if err != nil || more < 1 {
		return "spec.strategy.rollingUpdate.maxSurge is less than 1"
	}
	if less, err := intstr.GetScaledValueFromIntOrPercent(&unavailable, replicas, false /* roundUp */); err != nil || less > 0 {
		return fmt.Sprintf("spec.strategy.rollingUpdate.maxUnavailable allows %d pods to be missing", less)
	}
	return ""
}

// idle reports whether no rollout of the Deployment is in progress.
func (s *Surge) idle() bool {
	d := s.Deployment
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	st := &d.Status
	observed := st.ObservedGeneration >= d.Generation
	return observed && st.UpdatedReplicas == replicas && st.Replicas == replicas && st.AvailableReplicas == replicas
}
