package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// rolloutPool is a NodePool of manifests.Rollout with its workload.
type rolloutPool struct {
	name    string
	nodes   int
	zones   []string // letters
	rollout string   // the annotation
	alias   string
}

// apply creates the pool, or changes its image.
func (p *rolloutPool) apply(ctx context.Context, w *World, alias string) error {
	p.alias = alias
	zones := make([]string, len(p.zones))
	for i, z := range p.zones {
		zones[i] = w.Region() + z
	}
	list, err := json.Marshal(zones)
	if err != nil {
		return err
	}
	return apply(ctx, w, manifests.Rollout, map[string]string{
		"NAME": p.name, "AMI_ALIAS": alias, "ROLLOUT": p.rollout, "ZONES": string(list),
	})
}

// fill creates the pods.
func (p *rolloutPool) fill(ctx context.Context, w *World) error {
	return apply(ctx, w, manifests.RolloutWorkload, map[string]string{"NAME": p.name, "REPLICAS": strconv.Itoa(p.nodes)})
}

// claims are the NodeClaims of the pool.
func (p *rolloutPool) claims(ctx context.Context, w *World) ([]karpv1.NodeClaim, error) {
	var all karpv1.NodeClaimList
	err := w.Client.List(ctx, &all, client.MatchingLabels{karpv1.LabelNodePool: p.name})
	return all.Items, err
}

// objects are the NodePool and its class.
func (p *rolloutPool) objects(ctx context.Context, w *World) (*karpv1.NodePool, *awsv1.EC2NodeClass, error) {
	pool, class := &karpv1.NodePool{}, &awsv1.EC2NodeClass{}
	key := client.ObjectKey{Name: p.name}
	return pool, class, errors.Join(w.Client.Get(ctx, key, pool), w.Client.Get(ctx, key, class))
}

// awaitRollout waits until the condition Rollout of the pool has a reason; empty for no condition. It returns the message.
func (p *rolloutPool) awaitRollout(ctx context.Context, w *World, reason string) (message string, err error) {
	err = world.Until(ctx, func() error {
		pool, _, err := p.objects(ctx, w)
		if err != nil {
			return err
		}
		c := findCondition(pool.Status.Conditions, karpv1.ConditionRollout)
		if message = c.Message; c.Reason != reason {
			return fmt.Errorf("NodePool %s: Rollout=%s %s %s, want the reason %q", p.name, c.Status, c.Reason, c.Message, reason)
		}
		return nil
	})
	return message, err
}

// awaitImages waits until the pool has so many initialized nodes, all with the image of an ID.
func (p *rolloutPool) awaitImages(ctx context.Context, w *World, id string) error {
	return world.Until(ctx, func() error {
		claims, err := p.claims(ctx, w)
		if err != nil {
			return err
		}
		good := 0
		for _, c := range claims {
			if c.Status.ImageID == id && findCondition(c.Status.Conditions, karpv1.ConditionInitialized).Status == "True" {
				good++
			}
		}
		if good != p.nodes || len(claims) != p.nodes {
			return fmt.Errorf("%d of the %d NodeClaims of %s have image %s and a node, want %d", good, len(claims), p.name, id, p.nodes)
		}
		return nil
	})
}

// awaitKnownGood waits until the class records that its images are known to be good.
func (p *rolloutPool) awaitKnownGood(ctx context.Context, w *World, id string) error {
	return world.Until(ctx, func() error {
		_, class, err := p.objects(ctx, w)
		if err != nil {
			return err
		}
		if good, known := class.KnownGood(); !known || !slices.Contains(awsv1.ImageIDs(good.AMIs), id) {
			return fmt.Errorf("EC2NodeClass %s does not know image %s as good: %q", p.name, id, class.Annotations[awsv1.AnnotationKnownGood])
		}
		return nil
	})
}

// remove deletes pool, class and pods.
func (p *rolloutPool) remove(ctx context.Context, w *World) error {
	text, err := render(w, manifests.RolloutWorkload, map[string]string{"NAME": p.name, "REPLICAS": "0"})
	if err != nil {
		return err
	}
	pool, err := render(w, manifests.Rollout, map[string]string{"NAME": p.name, "AMI_ALIAS": p.alias, "ROLLOUT": p.rollout, "ZONES": "[]"})
	if err != nil {
		return err
	}
	return errors.Join(w.Delete(ctx, text), w.Delete(ctx, pool))
}

// oldClaims are the UIDs of the NodeClaims of the pool before a roll-out.
func (p *rolloutPool) uids(ctx context.Context, w *World) (map[types.UID]bool, error) {
	claims, err := p.claims(ctx, w)
	out := map[types.UID]bool{}
	for _, c := range claims {
		out[c.UID] = c.DeletionTimestamp == nil
	}
	return out, err
}

// lost counts the NodeClaims of before that are gone or go.
func (p *rolloutPool) lost(ctx context.Context, w *World, before map[types.UID]bool) (int, error) {
	now, err := p.uids(ctx, w)
	n := 0
	for uid := range maps.Keys(before) {
		if !now[uid] {
			n++
		}
	}
	return n, err
}

// newImageID is the ID of a release of the standard image.
func newImageID(ctx context.Context, w *World, alias string) (string, error) {
	return w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(alias))
}

// setUpRollout are the steps that start the controller, and fill pools with nodes of the old image.
func setUpRollout(pools ...*rolloutPool) []Step {
	return []Step{
		{Name: "start the controller", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
			w.SetEnv("STARTUP_TAINT_GRACE_PERIOD", taintGracePeriod.String())
			w.RestartControllerOnExit()
			return w.StartController(ctx)
		}},
		{
			Name: fmt.Sprintf("create %d NodePools with the annotation dovetail.sh/rollout, DaemonSets and pods: all run", len(pools)), Timeout: 4 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := apply(ctx, w, manifests.RolloutDaemons, nil); err != nil {
					return err
				}
				for _, p := range pools {
					if err := p.apply(ctx, w, oldImage); err != nil {
						return err
					}
				}
				if err := awaitPoolReady(ctx, w); err != nil {
					return err
				}
				var errs []error
				for _, p := range pools {
					errs = append(errs, p.fill(ctx, w))
				}
				for _, p := range pools {
					errs = append(errs, awaitPodsRunning(ctx, w, p.name, p.nodes))
				}
				return errors.Join(errs...)
			},
		},
	}
}

// tearDownRollout is the last step: it deletes all.
func tearDownRollout(pools ...*rolloutPool) Step {
	return Step{
		Name: "delete the pods, NodePools and EC2NodeClasses: nothing is left", Timeout: 3 * time.Minute, PauseKills: true,
		Run: func(ctx context.Context, w *World) error {
			daemons, err := render(w, manifests.RolloutDaemons, nil)
			if err != nil {
				return err
			}
			errs := []error{w.Delete(ctx, daemons)}
			for _, p := range pools {
				errs = append(errs, p.remove(ctx, w))
			}
			return errors.Join(append(errs, awaitNothingLeft(ctx, w))...)
		},
	}
}
