package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// revoke takes the pods of new claims off the claims that they were bought for before: a node that is up may have been filled
// with others meanwhile. A pod has one claim at a time, so the old one lets go first. Launches whose pods it does not let go
// of are left to the next pass.
func (p *Provisioner) revoke(ctx context.Context, snap *snapshot.Snapshot, launches []schedule.Launch) ([]schedule.Launch, error) {
	wanted := map[types.UID]bool{}
	for i := range launches {
		for _, pod := range launches[i].Pods {
			wanted[pod.UID] = true
		}
	}
	held := map[types.UID]bool{}
	var errs []error
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Claim == "" || n.Deleting || !slices.ContainsFunc(n.Nominated, func(uid types.UID) bool { return wanted[uid] }) {
			continue
		}
		if err := p.letGo(ctx, n.Claim, wanted); err != nil {
			errs = append(errs, fmt.Errorf("take pods off node claim %q: %w", n.Claim, err))
			for _, uid := range n.Nominated {
				held[uid] = true
			}
		}
	}
	if len(held) == 0 {
		return launches, nil
	}
	var free []schedule.Launch
	for i := range launches {
		if !slices.ContainsFunc(launches[i].Pods, func(pod *corev1.Pod) bool { return held[pod.UID] }) {
			free = append(free, launches[i])
		}
	}
	return free, errors.Join(errs...)
}

// letGo strikes pods from what a claim was bought for.
func (p *Provisioner) letGo(ctx context.Context, name string, pods map[types.UID]bool) error {
	claim := &karpv1.NodeClaim{}
	if err := p.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := claim.DeepCopy()
	var kept []string
	for uid := range strings.SplitSeq(claim.Annotations[karpv1.AnnotationNominatedPods], ",") {
		if !pods[types.UID(uid)] {
			kept = append(kept, uid)
		}
	}
	if claim.Annotations == nil {
		return nil
	}
	claim.Annotations[karpv1.AnnotationNominatedPods] = strings.Join(kept, ",")
	err := p.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
