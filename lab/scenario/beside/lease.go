package beside

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	leaseName = "karpenter-leader-election"
	// holder begins with the name of the Deployment, as the name of a pod of it does.
	holder       = "karpenter-6f5d8c9b7d-x2k4p_0d3f9b0e-6f0b-4a49-9d1c-0f6f0a7f7f11"
	leaseSeconds = 15
)

// lease is the leader lease of the stand-in.
type lease struct{ kube client.Client }

func newLease(kube client.Client) *lease { return &lease{kube: kube} }

// hold takes or renews the lease, and reports whether the stand-in has it. It has not while another controller renews it.
func (l *lease) hold(ctx context.Context, now time.Time) (bool, error) {
	current := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: leaseName}, current)
	if apierrors.IsNotFound(err) {
		current.Namespace, current.Name = Namespace, leaseName
		take(&current.Spec, now)
		err = l.kube.Create(ctx, current)
		return err == nil, err
	}
	if err != nil || !mayTake(current.Spec, now) {
		return false, err
	}
	take(&current.Spec, now)
	err = l.kube.Update(ctx, current)
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// mayTake reports whether a lease is the stand-in's, nobody's, or has expired.
func mayTake(s coordinationv1.LeaseSpec, now time.Time) bool {
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || *s.HolderIdentity == holder {
		return true
	}
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return true
	}
	return now.After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

func take(s *coordinationv1.LeaseSpec, now time.Time) {
	at, seconds, name := metav1.NewMicroTime(now), int32(leaseSeconds), holder
	if s.HolderIdentity == nil || *s.HolderIdentity != holder {
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions += *s.LeaseTransitions
		}
		s.AcquireTime, s.LeaseTransitions = &at, &transitions
	}
	s.HolderIdentity, s.LeaseDurationSeconds, s.RenewTime = &name, &seconds, &at
}

// release gives the lease up, if the stand-in has it.
func (l *lease) release(ctx context.Context) error {
	current := &coordinationv1.Lease{}
	if err := l.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: leaseName}, current); err != nil {
		return client.IgnoreNotFound(err)
	}
	if current.Spec.HolderIdentity == nil || *current.Spec.HolderIdentity != holder {
		return nil
	}
	nobody, second := "", int32(1)
	current.Spec.HolderIdentity, current.Spec.LeaseDurationSeconds = &nobody, &second
	return l.kube.Update(ctx, current)
}
