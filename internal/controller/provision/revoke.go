package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/conflict"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// revoke takes the pods of new claims off the claims that they were bought for before: a node that is up may have been filled
// with others meanwhile, or is not what it was bought as. A pod has one claim at a time, so the old one lets go first. Launches
// whose pods it does not let go of are left to the next pass.
func (p *Provisioner) revoke(ctx context.Context, launches []schedule.Launch) ([]schedule.Launch, error) {
	if len(launches) == 0 {
		return nil, nil
	}
	wanted := map[types.UID]bool{}
	for i := range launches {
		for _, pod := range launches[i].Pods {
			wanted[pod.UID] = true
		}
	}
	var claims karpv1.NodeClaimList
	if err := p.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	held := map[types.UID]bool{}
	errs := make([]error, len(claims.Items))
	var group errgroup.Group
	group.SetLimit(createAtOnce)
	for i := range claims.Items {
		claim := &claims.Items[i]
		promised := claim.Nominated(karpv1.AnnotationNominatedPods)
		if claim.DeletionTimestamp != nil || !slices.ContainsFunc(promised, func(uid types.UID) bool { return wanted[uid] }) {
			continue
		}
		group.Go(func() error {
			errs[i] = p.letGo(ctx, claim.Name, claim.UID, wanted)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, err := range errs {
		if err == nil {
			continue
		}
		errs[i] = fmt.Errorf("take pods off node claim %q: %w", claims.Items[i].Name, err)
		for _, uid := range claims.Items[i].Nominated(karpv1.AnnotationNominatedPods) {
			held[uid] = true
		}
	}
	free := slices.DeleteFunc(slices.Clone(launches), func(l schedule.Launch) bool {
		return slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return held[pod.UID] })
	})
	return free, errors.Join(errs...)
}

// letGo strikes pods from what a claim was bought for.
func (p *Provisioner) letGo(ctx context.Context, name string, uid types.UID, pods map[types.UID]bool) error {
	claim := &karpv1.NodeClaim{}
	claim.Name = name
	err := conflict.Change(ctx, p.Client, p.Live, claim, func(c *karpv1.NodeClaim) error {
		if c.UID == uid {
			c.LetGo(pods)
		}
		return nil
	}, func(c *karpv1.NodeClaim, patch client.Patch) error { return p.Client.Patch(ctx, c, patch) })
	return client.IgnoreNotFound(err)
}
