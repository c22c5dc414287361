package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// blastNodes expire at once, of which blastAllowed may be deleted in an hour by blastLimit.
	blastNodes, blastAllowed = 6, 2
	blastLimit               = "expired=34%"
	// blastWatched is longer than the controller takes to try a paused deletion again.
	blastWatched = 20 * time.Second
)

// blast is the scenario blast-radius, with the first NodeClaims.
type blast struct {
	*disruptionFixture
	before map[types.UID]string
}

// blastRadius lets all nodes expire at once, with a limit of a third of them in an hour.
func blastRadius() Scenario {
	s := &blast{disruptionFixture: newDisruptionFixture()}
	s.invariants = newInvariants(nodeBudget(blastNodes)) // expiration ignores budgets
	s.pool["EXPIRE_AFTER"], s.pool["BUDGET"] = "75s", `"0"`
	steps := append(
		s.setUp(),
		s.fill(blastNodes, blastNodes, 0),
		Step{
			Name:    "all nodes expire: two are deleted, then deletions pause, with condition, event and metric",
			Timeout: 3 * time.Minute, Run: s.expire,
		},
		Step{
			Name:    fmt.Sprintf("kill the controller: after a restart nothing more is deleted for %v", blastWatched),
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := errors.Join(w.KillController(), w.StartController(ctx)); err != nil {
					return err
				}
				return staysDeleted(ctx, w, s.before, blastWatched)
			},
		},
		Step{
			Name: "new pods get nodes", Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error { return s.scale(ctx, w, blastNodes+2, 0) },
		},
		Step{
			Name: "a person deletes a NodeClaim: its node is drained and terminated", Timeout: time.Minute, Run: s.deleteOne,
		},
		Step{
			Name:    "dovetail resume names the NodePool and why; with --all the rest is deleted, up to the limit",
			Timeout: 2 * time.Minute, Run: s.resume,
		},
		s.tearDown(),
	)
	start := steps[0].Run
	steps[0].Run = func(ctx context.Context, w *World) error {
		w.SetEnv("BLAST_RADIUS", blastLimit)
		return start(ctx, w)
	}
	return Scenario{
		Name: "blast-radius", Summary: "all nodes expire at once: a third is deleted, then deletions pause until a person resumes them; launches go on",
		Steps: steps,
	}
}

// expire waits until the limit is reached.
func (s *blast) expire(ctx context.Context, w *World) (err error) {
	if s.before, err = claimsByUID(ctx, w); err != nil {
		return err
	}
	// Nodes that are launched from now on stay.
	if err := s.applyPool(ctx, w, map[string]string{"EXPIRE_AFTER": "Never"}); err != nil {
		return err
	}
	if err := awaitDeletionsPaused(ctx, w); err != nil {
		return err
	}
	return deletedExactly(ctx, w, s.before, blastAllowed)
}

// deleteOne deletes one of the first NodeClaims, and waits until it is gone.
func (s *blast) deleteOne(ctx context.Context, w *World) error {
	uid, name, err := oneLeft(ctx, w, s.before)
	if err != nil {
		return err
	}
	claim := &karpv1.NodeClaim{}
	claim.Name = name
	if err := w.Client.Delete(ctx, claim, client.Preconditions{UID: &uid}); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		err := w.Client.Get(ctx, client.ObjectKey{Name: name}, claim)
		if err == nil {
			err = fmt.Errorf("NodeClaim %s still exists", name)
		}
		return client.IgnoreNotFound(err)
	})
}

// resume runs the command, and waits until as many are deleted as the limit allows once more.
func (s *blast) resume(ctx context.Context, w *World) error {
	err := prints(ctx, w, []string{"resume"}, "nodepool/default: deletions are paused in", "of the kind expired", "dovetail resume --all")
	if err != nil {
		return err
	}
	if err := prints(ctx, w, []string{"resume", "--all"}, "nodepool/default: deletions resume"); err != nil {
		return err
	}
	const want = 2*blastAllowed + 1
	return world.Until(ctx, func() error {
		n, err := countDeleted(ctx, w, s.before)
		if err == nil && n < want {
			err = fmt.Errorf("%d of the first NodeClaims are deleted, want %d", n, want)
		}
		return err
	})
}

// claimsByUID returns the names of the NodeClaims that are not being deleted.
func claimsByUID(ctx context.Context, w *World) (map[types.UID]string, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return nil, err
	}
	out := map[types.UID]string{}
	for _, c := range claims.Items {
		if c.DeletionTimestamp == nil {
			out[c.UID] = c.Name
		}
	}
	return out, nil
}

// countDeleted counts the NodeClaims that are gone or being deleted.
func countDeleted(ctx context.Context, w *World, before map[types.UID]string) (int, error) {
	now, err := claimsByUID(ctx, w)
	n := 0
	for uid := range before {
		if _, lives := now[uid]; !lives {
			n++
		}
	}
	return n, err
}

func deletedExactly(ctx context.Context, w *World, before map[types.UID]string, want int) error {
	n, err := countDeleted(ctx, w, before)
	if err == nil && n != want {
		err = fmt.Errorf("%d NodeClaims were deleted, want %d", n, want)
	}
	return err
}

// staysDeleted returns an error if more NodeClaims are deleted within a time.
func staysDeleted(ctx context.Context, w *World, before map[types.UID]string, d time.Duration) error {
	want, err := countDeleted(ctx, w, before)
	if err != nil {
		return err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := errors.Join(deletedExactly(ctx, w, before, want), pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// oneLeft returns one of the NodeClaims that are not being deleted.
func oneLeft(ctx context.Context, w *World, before map[types.UID]string) (types.UID, string, error) {
	now, err := claimsByUID(ctx, w)
	if err != nil {
		return "", "", err
	}
	var left []string
	byName := map[string]types.UID{}
	for uid, name := range before {
		if _, lives := now[uid]; lives {
			left, byName[name] = append(left, name), uid
		}
	}
	if len(left) == 0 {
		return "", "", errors.New("no NodeClaim is left")
	}
	name := slices.Min(left)
	return byName[name], name, nil
}

// awaitDeletionsPaused waits until the NodePool's condition, an event and the metric state that deletions are paused.
func awaitDeletionsPaused(ctx context.Context, w *World) error {
	err := world.Until(ctx, func() error {
		pool := &karpv1.NodePool{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, pool); err != nil {
			return err
		}
		c, _ := condition.Get(pool, karpv1.ConditionBlastRadiusExceeded)
		if !condition.IsTrue(pool, karpv1.ConditionBlastRadiusExceeded) || !strings.Contains(c.Message, "dovetail resume") {
			return fmt.Errorf("the condition is %+v", c)
		}
		metrics, err := w.Metrics(ctx)
		if err != nil {
			return err
		}
		if !strings.Contains(metrics, `dovetail_blast_radius_exceeded{nodepool="default"} 1`) {
			return errors.New("the metric does not state it")
		}
		return nil
	})
	if err != nil {
		return err
	}
	message, err := awaitEventMessage(ctx, w, "NodePool", "default", karpv1.ConditionBlastRadiusExceeded)
	w.Note("%s", message)
	return err
}

// prints runs the program, and returns an error unless it prints all the texts.
func prints(ctx context.Context, w *World, args []string, texts ...string) error {
	output, exit, err := w.RunDovetail(ctx, args...)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if exit != 0 || !strings.Contains(string(output), text) {
			return fmt.Errorf("dovetail %s: exit code %d, %q is missing in:\n%s", strings.Join(args, " "), exit, text, output)
		}
	}
	return nil
}
