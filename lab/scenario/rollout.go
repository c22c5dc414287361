package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// driftRollout is a new image for all nodes.
func driftRollout() Scenario {
	const nodes = 50
	s := newShop()
	s.pool["AMI_ALIAS"] = oldImage
	steps := append(s.open(),
		s.fill(nodes, nodes, 0),
		Step{Name: "a new image: each node is replaced", Timeout: 10 * time.Minute, Run: func(ctx context.Context, w *World) error {
			begin := time.Now()
			if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": newImage}); err != nil {
				return err
			}
			if err := allOf(ctx, w, newImage, nodes); err != nil {
				return err
			}
			w.Note("all nodes have the new image after %.0f s", time.Since(begin).Seconds())
			return nil
		}},
		Step{Name: "nothing further happens; all pods run; each node was replaced once, a tenth at a time", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := s.guard.settled(ctx, 20*time.Second); err != nil {
				return err
			}
			if n := len(w.Instances()); n != 2*nodes {
				return fmt.Errorf("%d instances were launched over all, want %d", n, 2*nodes)
			}
			return s.sound(ctx, w)
		}},
		s.close(),
	)
	return Scenario{Name: "drift-rollout", Summary: fmt.Sprintf("a new image over %d nodes, a tenth at a time", nodes), Steps: steps}
}

// release is the part of an image's alias that its name ends in.
func release(alias string) string { return alias[strings.LastIndexByte(alias, 'v'):] }

// allOf waits until so many instances are there, all of an image, and each has its NodeClaim.
func allOf(ctx context.Context, w *World, alias string, nodes int) error {
	id, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.36-"+release(alias))
	if err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		live := w.Running()
		others := slices.IndexFunc(live, func(i awsim.Instance) bool { return i.ImageID != id })
		if others >= 0 || len(live) != nodes {
			return fmt.Errorf("%d instances, not all of %s", len(live), alias)
		}
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		return unpaired(claims.Items, live)
	})
}
