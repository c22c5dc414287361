package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// correctedImage is an AMI of another family, with which nodes stay ready.
const correctedImage = "bottlerocket-aws-k8s-1.37-x86_64-v1.59.0-a7e0c4d9"

// imageFailsLater changes the AMI to one with which nodes join, become Ready, and fail 45 s later.
func imageFailsLater() Scenario {
	const (
		nodes = 20
		// few is how many nodes may be replaced before that shows: the first two, and one more if only one of them has failed so far.
		few = 3
	)
	s := newDisruptionFixture()
	s.pool["AMI_ALIAS"], s.pool["BUDGET"] = oldImage, "20%"
	s.invariants = newInvariants(percentBudget(20))
	steps := append(
		s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    "change to an AMI with which nodes fail 45 s after they started: at most three nodes are replaced; NodePool and EC2NodeClass report it",
			Timeout: 10 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				id, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(newImage))
				if err != nil {
					return err
				}
				w.FailImageAfter(id, 45*time.Second)
				s.invariants.requireReady(frontApp, 0) // pods on nodes that fail are not ready
				begin := time.Now()
				if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": newImage}); err != nil {
					return err
				}
				if err := awaitNewNodesFail(ctx, w, id); err != nil {
					return err
				}
				if err := s.invariants.awaitSettled(ctx, w, DefaultFleet.Settle); err != nil {
					return err
				}
				n := len(w.Instances()) - nodes
				w.Note("paused and settled after %.0f s and %d instances", time.Since(begin).Seconds(), n)
				if n > few {
					return fmt.Errorf("%d instances were launched with the new AMI, want at most %d", n, few)
				}
				return awaitEvents(ctx, w, "DisruptionPaused", "NodePool", "EC2NodeClass")
			},
		},
		Step{
			Name:    "correct the image in the EC2NodeClass: nothing is paused any more, and all nodes get it",
			Timeout: 15 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				begin := time.Now()
				if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": "bottlerocket@v1.59.0"}); err != nil {
					return err
				}
				if err := errors.Join(s.awaitPaused(ctx, w, false), awaitImageNamed(ctx, w, correctedImage, nodes)); err != nil {
					return err
				}
				w.Note("all nodes have the corrected AMI after %.0f s", time.Since(begin).Seconds())
				return s.awaitHealthy(ctx, w)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "image-fails-later",
		Summary: fmt.Sprintf("nodes with a new AMI become Ready and fail: the rollout pauses after a few of %d, and goes on with another AMI", nodes),
		Long:    true,
		Steps:   steps,
	}
}

// awaitNewNodesFail waits until the conditions of NodePool and EC2NodeClass state that nodes with the image fail after they became ready.
func awaitNewNodesFail(ctx context.Context, w *World, image string) error {
	return world.Until(ctx, func() error {
		pool, class := &karpv1.NodePool{}, &awsv1.EC2NodeClass{}
		key := client.ObjectKey{Name: "default"}
		if err := errors.Join(w.Client.Get(ctx, key, pool), w.Client.Get(ctx, key, class)); err != nil {
			return err
		}
		onPool := meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionDisruptionPaused)
		onClass := meta.FindStatusCondition(class.Status.Conditions, awsv1.ConditionDisruptionPaused)
		for _, part := range []string{image, "became ready and failed", "Ready is Unknown"} {
			if onPool == nil || onClass == nil || !strings.Contains(onPool.Message, part) || !strings.Contains(onClass.Message, part) {
				return fmt.Errorf("the condition of the NodePool is %+v, that of the EC2NodeClass %+v", onPool, onClass)
			}
		}
		w.Note("%s: %s", onClass.Reason, onClass.Message)
		return nil
	})
}

// awaitEvents waits for an event of a reason about an object of each kind.
func awaitEvents(ctx context.Context, w *World, reason string, kinds ...string) error {
	return world.Until(ctx, func() error {
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		for _, kind := range kinds {
			if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Kind == kind }) {
				return fmt.Errorf("no event %s is about the %s", reason, kind)
			}
		}
		return nil
	})
}
