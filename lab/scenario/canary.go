package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// shortSoak has a wave survive its soak after four minutes.
const shortSoak = `{"mode":"Canary","soak":"4m"}`

// waves notes how many nodes with a new image a pool has had in each wave.
type waves struct {
	image string

	mu     sync.Mutex
	wave   string
	claims map[string]bool
	most   map[string]int // new NodeClaims by wave, as the condition states it
}

// watch notes from now on.
func (v *waves) watch(w *World) {
	v.claims, v.most, v.wave = map[string]bool{}, map[string]int{}, "none"
	w.History.Watch(func(o client.Object, gone bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		switch o := o.(type) {
		case *karpv1.NodePool:
			if c := findCondition(o.Status.Conditions, karpv1.ConditionRollout); c.Reason == "Wave" {
				v.wave, _, _ = strings.Cut(c.Message, " of the roll-out")
			}
		case *karpv1.NodeClaim:
			if !gone && o.Status.ImageID == v.image {
				v.claims[o.Name] = true
			}
		}
		v.most[v.wave] = max(v.most[v.wave], len(v.claims))
	})
}

// canary rolls out a good image in waves, and then one with which applications do not become ready.
func canary() Scenario {
	const nodes = 12
	pool := &rolloutPool{name: "canary", nodes: nodes, zones: []string{"a", "b", "c"}, rollout: shortSoak}
	seen := &waves{}
	steps := append(setUpRollout(pool),
		Step{
			Name: "change to a good AMI: three canaries, then six nodes, then the others; each wave survives its soak", Timeout: 15 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				id, err := newImageID(ctx, w, newImage)
				if err != nil {
					return err
				}
				seen.image = id
				seen.watch(w)
				begin := time.Now()
				if err := pool.apply(ctx, w, newImage); err != nil {
					return err
				}
				if err := pool.awaitImages(ctx, w, id); err != nil {
					return err
				}
				w.Note("all nodes have the new AMI after %.0f s", time.Since(begin).Seconds())
				seen.mu.Lock()
				defer seen.mu.Unlock()
				for wave, most := range map[string]int{"wave 1 of 3": 3, "wave 2 of 3": 9, "wave 3 of 3": nodes} {
					n, is := seen.most[wave]
					w.Note("%s: %d nodes with the new AMI", wave, n)
					if !is || n > most {
						return fmt.Errorf("%s had %d new nodes, want at most %d: %v", wave, n, most, seen.most)
					}
				}
				return awaitPodsRunning(ctx, w, pool.name, nodes)
			},
		},
		Step{
			Name: "change to an AMI with which pods crash: three canaries, and the roll-out is paused", Timeout: 10 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				id, err := newImageID(ctx, w, oldImage)
				if err != nil {
					return err
				}
				if _, err := pool.awaitRollout(ctx, w, ""); err != nil {
					return err
				}
				before, err := pool.uids(ctx, w)
				if err != nil {
					return err
				}
				launched := len(w.Instances())
				w.PlantFault(id, pool.name, node.DaemonsCrash, 0)
				if err := pool.apply(ctx, w, oldImage); err != nil {
					return err
				}
				if err := awaitCanariesFail(ctx, w, pool, id); err != nil {
					return err
				}
				lost, err := pool.lost(ctx, w, before)
				n := len(w.Instances()) - launched
				w.Note("%d of %d nodes lost, %d instances launched", lost, nodes, n)
				if lost > 3 || err != nil {
					return errors.Join(fmt.Errorf("%d nodes are lost, want at most 3", lost), err)
				}
				return nil
			},
		},
		tearDownRollout(pool),
	)
	return Scenario{
		Name:    "canary",
		Summary: fmt.Sprintf("AMI drift replaces %d nodes in waves that double, one node per zone first; an AMI with which daemons crash takes no more than those", nodes),
		Long:    true,
		Steps:   steps,
	}
}

// awaitCanariesFail waits until the roll-out of an image is paused or rolled back, by conditions that name the image and the evidence.
func awaitCanariesFail(ctx context.Context, w *World, p *rolloutPool, image string) error {
	return world.Until(ctx, func() error {
		pool, class, err := p.objects(ctx, w)
		if err != nil {
			return err
		}
		c := findCondition(pool.Status.Conditions, karpv1.ConditionRollout)
		if !slices.Contains([]string{"Paused", "RolledBack"}, c.Reason) || !strings.Contains(c.Message, image) ||
			!strings.Contains(c.Message, "DaemonSet default/") {
			return fmt.Errorf("NodePool %s: Rollout=%s %s %s; EC2NodeClass: %+v", p.name, c.Status, c.Reason, c.Message,
				findCondition(class.Status.Conditions, awsv1.ConditionRolledBack))
		}
		w.Note("%s: %s", c.Reason, c.Message)
		return nil
	})
}
