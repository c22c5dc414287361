package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// rollback rolls out an image with which applications do not become ready: the image that is known to be good comes back.
func rollback() Scenario {
	const nodes = 9
	pool := &rolloutPool{name: "rollback", nodes: nodes, zones: []string{"a", "b", "c"}, rollout: shortSoak}
	steps := append(setUpRollout(pool),
		Step{
			Name: "the nodes survive a soak: their AMI is known to be good", Timeout: 5 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				id, err := newImageID(ctx, w, oldImage)
				if err != nil {
					return err
				}
				return pool.awaitKnownGood(ctx, w, id)
			},
		},
		Step{
			Name:    "change to an AMI on which DNS does not work: three canaries, then all nodes have the old AMI again, and all pods run",
			Timeout: 10 * time.Minute,
			Run:     func(ctx context.Context, w *World) error { return rollBack(ctx, w, pool) },
		},
		Step{
			Name: "select the old AMI in the EC2NodeClass: nothing is rolled back any more, and no node is replaced", Timeout: 3 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				before, err := pool.uids(ctx, w)
				if err != nil {
					return err
				}
				if err := pool.apply(ctx, w, oldImage); err != nil {
					return err
				}
				if _, err := pool.awaitRollout(ctx, w, ""); err != nil {
					return err
				}
				if err := awaitRolledBack(ctx, w, pool, ""); err != nil {
					return err
				}
				lost, err := pool.lost(ctx, w, before)
				if lost > 0 || err != nil {
					return errors.Join(fmt.Errorf("%d nodes are replaced", lost), err)
				}
				return awaitPodsRunning(ctx, w, pool.name, nodes)
			},
		},
		tearDownRollout(pool),
	)
	return Scenario{
		Name:    "rollback",
		Summary: fmt.Sprintf("an AMI on which DNS does not work takes three of %d nodes; they are replaced by nodes with the AMI that is known to be good", nodes),
		Long:    true,
		Steps:   steps,
	}
}

// rollBack changes the image of the pool to one on which DNS does not work, and waits until the old one is back.
func rollBack(ctx context.Context, w *World, pool *rolloutPool) error {
	good, err1 := newImageID(ctx, w, oldImage)
	bad, err2 := newImageID(ctx, w, newImage)
	before, err3 := pool.uids(ctx, w)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	launched := len(w.Instances())
	w.PlantFault(bad, pool.name, node.DNSBroken, 0)
	begin := time.Now()
	if err := pool.apply(ctx, w, newImage); err != nil {
		return err
	}
	if err := awaitRolledBack(ctx, w, pool, bad); err != nil {
		return err
	}
	w.Note("rolled back after %.0f s", time.Since(begin).Seconds())
	if err := errors.Join(pool.awaitImages(ctx, w, good), awaitPodsRunning(ctx, w, pool.name, pool.nodes)); err != nil {
		return err
	}
	lost, err := pool.lost(ctx, w, before)
	w.Note("all nodes have the old AMI after %.0f s; %d nodes were replaced, by %d instances", time.Since(begin).Seconds(), lost,
		len(w.Instances())-launched)
	if lost > len(pool.zones) || err != nil {
		return errors.Join(fmt.Errorf("%d nodes are lost, want at most %d", lost, len(pool.zones)), err)
	}
	return awaitEvents(ctx, w, awsv1.ConditionRolledBack, "EC2NodeClass")
}

// awaitRolledBack waits until the class of the pool is rolled back from an image, or not rolled back if the image is empty.
func awaitRolledBack(ctx context.Context, w *World, p *rolloutPool, from string) error {
	return world.Until(ctx, func() error {
		pool, class, err := p.objects(ctx, w)
		if err != nil {
			return err
		}
		c := findCondition(class.Status.Conditions, awsv1.ConditionRolledBack)
		is := c.Status == "True"
		if is != (from != "") || is && !(strings.Contains(c.Message, from) && strings.Contains(c.Message, "ReplicaSet default/"+p.name)) {
			return fmt.Errorf("EC2NodeClass: RolledBack=%s %s %s; NodePool: %+v", c.Status, c.Reason, c.Message, pool.Status.Conditions)
		}
		if is {
			w.Note("%s", c.Message)
		}
		return nil
	})
}
