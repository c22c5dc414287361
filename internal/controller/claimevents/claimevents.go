// Package claimevents passes on what becomes of NodeClaims.
package claimevents

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Follow calls observe with each NodeClaim that is new or has changed, and gone with each that no longer exists. Neither may change it.
func Follow(claims cache.Informers, observe, gone func(*karpv1.NodeClaim)) error {
	informer, err := claims.GetInformer(context.Background(), &karpv1.NodeClaim{})
	if err == nil {
		_, err = informer.AddEventHandler(Handler(observe, gone))
	}
	if err != nil {
		return fmt.Errorf("watch node claims: %w", err)
	}
	return nil
}

// Handler is what Follow adds to the informer.
func Handler(observe, gone func(*karpv1.NodeClaim)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { observe(o.(*karpv1.NodeClaim)) },
		UpdateFunc: func(_, o any) { observe(o.(*karpv1.NodeClaim)) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if claim, ok := o.(*karpv1.NodeClaim); ok {
				gone(claim)
			}
		},
	}
}
