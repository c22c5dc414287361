package provisioning

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
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
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
			errs[i] = panics.Error(func() error { return LetGo(ctx, p.Client, p.Live, claim.Name, wanted) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, err := range errs {
		if err == nil {
			continue
		}
		for _, uid := range claims.Items[i].Nominated(karpv1.AnnotationNominatedPods) {
			held[uid] = true
		}
	}
	free := slices.DeleteFunc(slices.Clone(launches), func(l schedule.Launch) bool {
		return slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return held[pod.UID] })
	})
	return free, errors.Join(errs...)
}

// LetGo strikes pods from what a claim was bought for, if it is still there. Where it has changed since c read it, live is asked.
func LetGo(ctx context.Context, c client.Client, live client.Reader, claim string, pods map[types.UID]bool) error {
	o := &karpv1.NodeClaim{}
	o.Name = claim
	err := patch.Change(ctx, c, live, o, func(o *karpv1.NodeClaim) error {
		o.LetGo(pods)
		return nil
	}, func(o *karpv1.NodeClaim, patch client.Patch) error { return c.Patch(ctx, o, patch) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take pods off node claim %q: %w", claim, err)
	}
	return nil
}
