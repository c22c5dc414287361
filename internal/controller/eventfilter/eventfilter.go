// Package eventfilter has the predicates and options that controllers share.
//
// A reconciler that writes a status triggers itself. If the status has an error message that differs each time, the
// reconciler would retry at once and forever, past any backoff.
package eventfilter

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// IgnoreStatusUpdates drops updates that change nothing but the status.
func IgnoreStatusUpdates() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return Changed(e.ObjectOld, e.ObjectNew) }}
}

// OnlyDeletions drops everything but the final deletion of an object.
func OnlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Deleting drops events of objects that are not being deleted. At the start of a process, these are nearly all.
func Deleting() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
}

// Claims drops events of NodeClaims that which does not accept as they are now.
func Claims(which func(*karpv1.NodeClaim) bool) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		claim, is := o.(*karpv1.NodeClaim)
		return is && which(claim)
	})
}

// Changed reports whether two versions of an object differ in more than their status.
func Changed(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() ||
		before.GetGeneration() != after.GetGeneration() ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers()) ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}
