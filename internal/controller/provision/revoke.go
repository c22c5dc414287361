package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
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
	if err := p.Client.List(ctx, &claims); err != nil {
		return nil, err
	}
	held := map[types.UID]bool{}
	var errs []error
	for i := range claims.Items {
		claim := &claims.Items[i]
		promised := claim.Nominated(karpv1.AnnotationNominatedPods)
		if claim.DeletionTimestamp != nil || !slices.ContainsFunc(promised, func(uid types.UID) bool { return wanted[uid] }) {
			continue
		}
		if err := p.letGo(ctx, claim, wanted); err != nil {
			errs = append(errs, fmt.Errorf("take pods off node claim %q: %w", claim.Name, err))
			for _, uid := range promised {
				held[uid] = true
			}
		}
	}
	free := slices.DeleteFunc(slices.Clone(launches), func(l schedule.Launch) bool {
		return slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return held[pod.UID] })
	})
	return free, errors.Join(errs...)
}

// letGo strikes pods from what a claim was bought for, unless it has changed since it was read.
func (p *Provisioner) letGo(ctx context.Context, claim *karpv1.NodeClaim, pods map[types.UID]bool) error {
	before := claim.DeepCopy()
	claim.LetGo(pods)
	err := p.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
