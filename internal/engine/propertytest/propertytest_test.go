package propertytest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// worlds sets how many a test run generates; make fuzz generates ten times as many.
const worlds = 2_000

// wrong solves the world and returns what is wrong with the plan.
func violations(s *snapshot.Snapshot, budget schedule.Budget) (schedule.Plan, error) {
	p := schedule.Solve(s, budget)
	return p, errors.Join(validate.Plan(s, p), validate.Choices(s, p))
}

// budget is none for most worlds; an exhausted one makes plans more expensive, never invalid.
func (d random) budget() schedule.Budget {
	return schedule.Budget{LookaheadSteps: pick(d, 0, 0, 0, 1, 200)}
}

// examine reports what is wrong with the world's plan, after shrinking the world.
func examine(d random) (*snapshot.Snapshot, schedule.Plan, error) {
	return examineWorld(d.anyWorld(), d.budget())
}

func examineWorld(s *snapshot.Snapshot, budget schedule.Budget) (*snapshot.Snapshot, schedule.Plan, error) {
	p, err := violations(s, budget)
	if err == nil {
		return s, p, nil
	}
	small := Shrink(s, func(t *snapshot.Snapshot) bool {
		_, err := violations(t, budget)
		return err != nil
	})
	p, smallErr := violations(small, budget)
	return small, p, fmt.Errorf("%w\n\nshrunk: %w\n%s%s", err, smallErr, Show(small), Describe(p))
}

// tally counts what happened in the worlds: worlds in which nothing happens prove nothing.
type tally struct {
	mu                                sync.Mutex
	pods, onNodes, launched, launches int
	reasons                           map[schedule.Code]int
}

func (t *tally) add(s *snapshot.Snapshot, p schedule.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods += len(s.Pods)
	t.launches += len(p.Launches)
	for _, pl := range p.Placements {
		t.onNodes += len(pl.Pods)
	}
	for i := range p.Launches {
		t.launched += len(p.Launches[i].Pods)
	}
	for _, r := range p.Rejected {
		for _, reason := range r.Reasons {
			t.reasons[reason.Code]++
		}
	}
}

// worldRange is which worlds to generate: DOVETAIL_WORLDS=first,count, or the first ones.
func worldRange(t *testing.T, usual uint64) (first, count uint64) {
	t.Helper()
	first, count = 0, usual
	if v := os.Getenv("DOVETAIL_WORLDS"); v != "" {
		if _, err := fmt.Sscanf(v, "%d,%d", &first, &count); err != nil {
			t.Fatalf("DOVETAIL_WORLDS=%s: %v", v, err)
		}
	}
	return first, count
}

// TestWorlds finds no violation in any of them. DOVETAIL_WORLDS=first,count generates others.
func TestWorlds(t *testing.T) {
	first, count := worldRange(t, worlds)
	seen := &tally{reasons: map[schedule.Code]int{}}
	var next atomic.Uint64
	var failed atomic.Int32
	var group sync.WaitGroup
	for range min(2, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for failed.Load() < 3 {
				k := next.Add(1) - 1
				if k >= count {
					return
				}
				s, p, err := examine(seeded(first + k))
				if err != nil {
					failed.Add(1)
					t.Errorf("world %s: %v", strconv.FormatUint(first+k, 10), err)
					continue
				}
				seen.add(s, p)
			}
		})
	}
	group.Wait()
	if placed := seen.onNodes + seen.launched; failed.Load() == 0 &&
		(seen.onNodes < int(count) || placed < 3*int(count) || seen.pods-placed < 2*int(count) || len(seen.reasons) < 10) {
		t.Errorf("too little happened in %d worlds", count)
	}
	t.Logf(
		"%d pods: %d on nodes, %d in %d launches; reasons of the others: %v",
		seen.pods,
		seen.onNodes,
		seen.launched,
		seen.launches,
		seen.reasons,
	)
}

// FuzzWorlds searches for worlds with a violation.
func FuzzWorlds(f *testing.F) {
	for seed := range uint64(24) {
		d := seeded(seed)
		data := make([]byte, 1500)
		for i := range data {
			data[i] = d.next()
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := examine(written(data)); err != nil {
			t.Error(err)
		}
	})
}
