package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// heldBy is a finalizer that keeps VolumeAttachments, as an attacher that does not come to an end does.
	heldBy = "lab.dovetail.sh/stuck-attacher"
	// heldFor is beyond the 45 s after which the alert DovetailVolumesNotDetached fires, by two scrapes.
	heldFor = 55 * time.Second
)

// holdVolumes replaces a node with volumes that are not detached for almost a minute.
func holdVolumes(replicas int) Step {
	return Step{
		Name:    "the volumes of a deleted NodeClaim are held: its condition names who has to detach them; once they go, all pods run",
		Timeout: 3 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			node, claim, err := busiest(ctx, w)
			if err != nil {
				return err
			}
			if err := changeAttachments(ctx, w, node, true /* held */); err != nil {
				return err
			}
			if err := w.Client.Delete(ctx, claim); err != nil {
				return err
			}
			held := awaitHeld(ctx, w, claim.Name)
			if err := errors.Join(held, changeAttachments(ctx, w, node, false)); err != nil {
				return err
			}
			return awaitPodsRunning(ctx, w, databaseApp, replicas)
		},
	}
}

// changeAttachments holds the VolumeAttachments of a node, or lets them go.
func changeAttachments(ctx context.Context, w *World, node string, held bool) error {
	return world.Until(ctx, func() error {
		var all storagev1.VolumeAttachmentList
		if err := w.Client.List(ctx, &all); err != nil {
			return err
		}
		var errs []error
		for i := range all.Items {
			a := &all.Items[i]
			before := a.DeepCopy()
			if a.Spec.NodeName != node || held && !controllerutil.AddFinalizer(a, heldBy) || !held && !controllerutil.RemoveFinalizer(a, heldBy) {
				continue
			}
			errs = append(errs, client.IgnoreNotFound(
				w.Client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})),
			))
		}
		return errors.Join(errs...)
	})
}

// awaitHeld waits until a NodeClaim has reported for some time that its volumes are attached, and who has to detach them.
func awaitHeld(ctx context.Context, w *World, name string) error {
	return world.Until(ctx, func() error {
		claim := &karpv1.NodeClaim{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
			return err
		}
		c := findCondition(claim.Status.Conditions, karpv1.ConditionVolumesDetached)
		after := time.Since(c.LastTransitionTime.Time)
		named := c.Reason == "AwaitingVolumeDetachment" && strings.Contains(c.Message, "detach")
		if c.Status == metav1.ConditionTrue || !named || after < heldFor {
			return fmt.Errorf("NodeClaim %s: VolumesDetached=%s %s %s for %v", name, c.Status, c.Reason, c.Message, after)
		}
		w.Note("%s", c.Message)
		return nil
	})
}
