package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// driftRollout changes the AMI of all nodes.
func driftRollout(fleet int) Scenario {
	nodes := max(20, fleet/4) // a tenth of 20 is 2 nodes at a time
	s := newDisruptionFixture()
	s.pool["AMI_ALIAS"] = oldImage
	steps := append(
		s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{Name: "change the AMI: each node is replaced", Timeout: 15 * time.Minute, Run: func(ctx context.Context, w *World) error {
			begin := time.Now()
			if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": newImage}); err != nil {
				return err
			}
			if err := awaitImage(ctx, w, newImage, nodes); err != nil {
				return err
			}
			w.Note("all nodes have the new AMI after %.0f s", time.Since(begin).Seconds())
			return nil
		}},
		Step{
			Name:    "the cluster settles; all pods run; each node was replaced once, at most a tenth at a time",
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := s.invariants.awaitSettled(ctx, w, 20*time.Second); err != nil {
					return err
				}
				if n := len(w.Instances()); n != 2*nodes {
					return fmt.Errorf("%d instances were launched in total, want %d", n, 2*nodes)
				}
				return s.awaitHealthy(ctx, w)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "drift-rollout",
		Summary: fmt.Sprintf("AMI drift replaces %d nodes, a tenth at a time", nodes),
		Long:    true,
		Steps:   steps,
	}
}

// aliasRelease returns the release of an AMI alias, which is the suffix of the AMI's name.
func aliasRelease(alias string) string { return alias[strings.LastIndexByte(alias, 'v'):] }

// awaitImage waits until exactly nodes instances run, all with this AMI and with a NodeClaim.
func awaitImage(ctx context.Context, w *World, alias string, nodes int) error {
	return awaitImageNamed(ctx, w, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(alias), nodes)
}

// awaitImageNamed is awaitImage for the AMI of a name.
func awaitImageNamed(ctx context.Context, w *World, name string, nodes int) error {
	id, err := w.ImageID(ctx, name)
	if err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		live := w.Running()
		others := slices.IndexFunc(live, func(i awsim.Instance) bool { return i.ImageID != id })
		if others >= 0 || len(live) != nodes {
			return fmt.Errorf("%d instances run, not all with %s", len(live), name)
		}
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		return unpaired(claims.Items, live)
	})
}

// badAMI changes the AMI to one that does not boot.
func badAMI(fleet Fleet) Scenario {
	const nodes = 20
	s := newDisruptionFixture()
	s.pool["AMI_ALIAS"] = oldImage
	var before []string
	steps := append(
		s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    "change to an AMI that does not boot: the rollout pauses, and a condition of the NodePool reports it",
			Timeout: 10 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				var err error
				if before, err = nodeClaimNames(ctx, w); err != nil {
					return err
				}
				id, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(newImage))
				if err != nil {
					return err
				}
				w.BreakImage(id)
				s.invariants.requireReady(frontApp, nodes) // no pod may be evicted before its new node is ready
				begin := time.Now()
				if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": newImage}); err != nil {
					return err
				}
				if err := s.awaitPaused(ctx, w, true); err != nil {
					return err
				}
				w.Note("paused after %.0f s and %d instances", time.Since(begin).Seconds(), len(w.Instances())-nodes)
				return nil
			},
		},
		Step{
			Name:    "no other instance is launched; the old nodes stay, and all pods run",
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if n := len(w.Instances()) - nodes; n > nodes/2 {
					return fmt.Errorf("%d instances were launched with the new AMI", n)
				}
				if err := s.invariants.awaitSettled(ctx, w, max(fleet.paced(DefaultFleet.Settle), 15*time.Second)); err != nil {
					return err
				}
				return errors.Join(claimsKept(ctx, w, before), s.awaitPods(ctx, w), s.invariants.check(w))
			},
		},
		Step{
			Name:    "change back to the old AMI: nothing is drifted, and the rollout is no longer paused",
			Timeout: 5 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": oldImage}); err != nil {
					return err
				}
				if err := errors.Join(s.awaitPaused(ctx, w, false), awaitImage(ctx, w, oldImage, nodes)); err != nil {
					return err
				}
				return errors.Join(claimsKept(ctx, w, before), s.awaitHealthy(ctx, w))
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "bad-ami",
		Summary: fmt.Sprintf("no node joins with a new AMI: the rollout pauses, and %d old nodes stay", nodes),
		Long:    true,
		Steps:   steps,
	}
}

// claimsKept checks that each of the NodeClaims still exists.
func claimsKept(ctx context.Context, w *World, before []string) error {
	now, err := nodeClaimNames(ctx, w)
	if err != nil {
		return err
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			return fmt.Errorf("NodeClaim %s no longer exists", name)
		}
	}
	return nil
}

// awaitPaused waits until the NodePool's condition DisruptionPaused is, or is no longer, True.
func (s *disruptionFixture) awaitPaused(ctx context.Context, w *World, want bool) error {
	return world.Until(ctx, func() error {
		pool := &karpv1.NodePool{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, pool); err != nil {
			return err
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, karpv1.ConditionDisruptionPaused)
		is := c != nil && c.Status == "True"
		if is != want {
			return fmt.Errorf("the condition %s of the NodePool is %+v", karpv1.ConditionDisruptionPaused, c)
		}
		if is {
			w.Note("%s: %s", c.Reason, c.Message)
		}
		return nil
	})
}
