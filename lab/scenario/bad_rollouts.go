package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/node"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// badRollout is a bad image or configuration: what is wrong, and how long after the boot it shows in a cluster with the real pace.
type badRollout struct {
	fault node.ImageFault
	after time.Duration
	pool  rolloutPool
	// before are the NodeClaims before the roll-out.
	before map[types.UID]bool
	lost   int
	reason string
	took   time.Duration
}

// badRolloutNodes is how many nodes each NodePool has, in one zone: so one of them is the canary.
const badRolloutNodes = 3

// badRollouts rolls out twelve bad images and configurations at once, each in a NodePool of its own: each takes no more than its canary.
func badRollouts(fleet Fleet) Scenario {
	all := []*badRollout{
		{fault: node.DoesNotJoin},
		{fault: node.NotReadyLater, after: 3 * time.Minute},
		{fault: node.DNSBroken},
		{fault: node.MemoryLeak, after: 4 * time.Minute},
		{fault: node.WrongReserve},
		{fault: node.NoNetworkPlugin},
		{fault: node.NoGPUDriver},
		{fault: node.DiskFull, after: 5 * time.Minute},
		{fault: node.ClockSkew},
		{fault: node.PanicLoop, after: time.Minute},
		{fault: node.PullsFail},
		{fault: node.DaemonsCrash},
	}
	var pools []*rolloutPool
	for i, b := range all {
		b.pool = rolloutPool{
			name: fmt.Sprintf("bad-%02d", i+1), nodes: badRolloutNodes, zones: []string{"a"}, rollout: string(karpv1.RolloutCanary),
		}
		pools = append(pools, &b.pool)
	}
	steps := append(setUpRollout(pools...),
		Step{
			Name:    "roll out twelve bad AMIs and configurations: each roll-out is paused with its evidence, and no more than the canary is lost",
			Timeout: 15 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				id, err := newImageID(ctx, w, newImage)
				if err != nil {
					return err
				}
				for _, b := range all {
					w.PlantFault(id, b.pool.name, b.fault, fleet.paced(b.after))
					if b.before, err = b.pool.uids(ctx, w); err != nil {
						return err
					}
					if err := b.pool.apply(ctx, w, newImage); err != nil {
						return err
					}
				}
				return awaitBadRollouts(ctx, w, all)
			},
		},
		tearDownRollout(pools...),
	)
	return Scenario{
		Name:           "bad-rollouts",
		Summary:        "twelve bad AMIs and configurations are rolled out with canaries: no more nodes are lost than the canary of each",
		Long:           true,
		PlantsRefusals: true,
		Steps:          steps,
	}
}

// awaitBadRollouts waits until each roll-out is paused, and prints what each has cost.
func awaitBadRollouts(ctx context.Context, w *World, all []*badRollout) error {
	begin := time.Now()
	defer func() {
		w.Note("%-24s %-6s %-9s %s", "fault", "lost", "seconds", "evidence")
		for _, b := range all {
			w.Note("%-24s %d of %d %-9.0f %s", b.fault, b.lost, badRolloutNodes, b.took.Seconds(), b.reason)
		}
	}()
	err := world.Until(ctx, func() error {
		var errs []error
		for _, b := range all {
			if b.took == 0 {
				errs = append(errs, b.observe(ctx, w, begin))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		lost, err := b.pool.lost(ctx, w, b.before)
		if b.lost = max(b.lost, lost); b.lost > len(b.pool.zones) {
			errs = append(errs, fmt.Errorf("%s: %d nodes are lost, want at most %d", b.fault, b.lost, len(b.pool.zones)))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// observe notes what has become of a roll-out. Its error is that it is not paused.
func (b *badRollout) observe(ctx context.Context, w *World, begin time.Time) error {
	pool, _, err := b.pool.objects(ctx, w)
	if err != nil {
		return err
	}
	lost, err := b.pool.lost(ctx, w, b.before)
	if err != nil {
		return err
	}
	b.lost = max(b.lost, lost)
	c := findCondition(pool.Status.Conditions, karpv1.ConditionRollout)
	if !slices.Contains([]string{"Paused", "RolledBack"}, c.Reason) {
		return fmt.Errorf("%s: NodePool %s: Rollout=%s %s %s", b.fault, b.pool.name, c.Status, c.Reason, c.Message)
	}
	b.took, b.reason = time.Since(begin), evidenceIn(c.Message)
	return nil
}

// evidenceIn is the part of the message that has the evidence.
func evidenceIn(message string) string {
	if _, rest, found := strings.Cut(message, "all of "); found {
		if _, evidence, found := strings.Cut(rest, ": "); found {
			message = evidence
		}
	}
	if evidence, _, found := strings.Cut(message, ". The old nodes stay"); found {
		return evidence
	}
	evidence, _, _ := strings.Cut(message, ". Replacement resumes")
	return evidence
}
