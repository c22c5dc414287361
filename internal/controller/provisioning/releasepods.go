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

// releasePods removes the pods of new launches from the claims that they were nominated to before: other pods may have
// taken the room on that node, or the node differs from its claim. A pod is nominated to one claim at a time, so the
// old claim releases it first. A launch with pods that could not be released is left to the next pass.
func (p *Provisioner) releasePods(ctx context.Context, launches []schedule.Launch) ([]schedule.Launch, error) {
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
	group.SetLimit(maxParallelCreates)
	for i := range claims.Items {
		claim := &claims.Items[i]
		nominated := claim.Nominated(karpv1.AnnotationNominatedPods)
		if claim.DeletionTimestamp != nil || !slices.ContainsFunc(nominated, func(uid types.UID) bool { return wanted[uid] }) {
			continue
		}
		group.Go(func() error {
			errs[i] = panics.Error(func() error {
				return ReleasePods(ctx, patch.Clients{Client: p.Client, Live: p.Live}, claim.Name, wanted)
			})
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

// ReleasePods removes pods from the nominations of a claim, if it still exists.
func ReleasePods(ctx context.Context, clients patch.Clients, claim string, pods map[types.UID]bool) error {
	o := &karpv1.NodeClaim{}
	o.Name = claim
	err := patch.ObjectWithRetry(ctx, clients, o, func(o *karpv1.NodeClaim) error {
		o.RemoveNominated(pods)
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release pods from node claim %q: %w", claim, err)
	}
	return nil
}
