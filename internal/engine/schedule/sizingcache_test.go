package schedule

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// sizedQueue is a solver about to open its first bin, for the first class of the queue.
func sizedQueue(t *testing.T, pods ...*corev1.Pod) (*solver, *class, func() ([]plannedPods, nodepool.Candidate)) {
	t.Helper()
	sv := newSolver(enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, pods...))
	queue := sv.startRun(sv.compile(nil))
	sv.sumFreeRoom()
	sv.priceQueue()
	sv.resetWaiting()
	c := queue[0].class
	return sv, c, func() ([]plannedPods, nodepool.Candidate) {
		b := sv.bins.Fresh(sv.pools.All()[0])
		g, why := sv.bins.Grow(b, c.Class, c.Levels()[0], bin.AnyPrice)
		if why != nil {
			t.Fatalf("no new bin takes a pod: %v", why.Code())
		}
		return sv.sizeBin(b, c, g, sv.chooseSize(b, c, g)), b.Target()
	}
}

func TestEqualBinsAreSizedOnce(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 50 {
		pods = append(pods,
			enginetest.Pod(fmt.Sprintf("large-%02d", i), enginetest.Labeled("app", "large"), enginetest.Requests("cpu", "1500m", "memory", "1Gi")),
			enginetest.Pod(fmt.Sprintf("small-%02d", i), enginetest.Labeled("app", "small"), enginetest.Requests("cpu", "100m", "memory", "1Gi")))
	}
	sv, first, size := sizedQueue(t, pods...)
	content, target := size()
	if len(content) == 0 {
		t.Fatal("the bin is sized for its first pod only")
	}
	offered := func() ([]demand, bin.Growth) {
		b := sv.bins.Fresh(sv.pools.All()[0])
		g, _ := sv.bins.Grow(b, first.Class, first.Levels()[0], bin.AnyPrice)
		return sv.lookAhead(b, first, g), g
	}
	queue, g := offered()
	if !sv.reuseSizing(queue, first, g) {
		t.Error("the next bin is sized again, although nothing has changed")
	}
	again, sameTarget := size()
	if diff := cmp.Diff(content, again, cmpopts.EquateComparable(plannedPods{})); diff != "" || target != sameTarget {
		t.Errorf("the next bin is sized as %v with another content: %s", sameTarget, diff)
	}
	content[0].class.unplaced = content[0].n // the bin took as many as before, but these are all
	if queue, g = offered(); sv.reuseSizing(queue, first, g) {
		t.Error("the next bin is sized as before, although a class that it took from is nearly used up")
	}
}

// A decision that was reused must be the one that would have been made.
func TestReusedSizingsChangeNoPlan(t *testing.T) {
	for _, n := range []int{60, 300} {
		var pods []*corev1.Pod
		for i := range n {
			size := enginetest.Requests("cpu", fmt.Sprintf("%dm", 100+350*(i%4)), "memory", fmt.Sprintf("%dMi", 256<<(i%3)))
			edit := []func(*corev1.Pod){enginetest.Labeled("app", fmt.Sprint("app-", i%5)), size}
			if i%5 == 0 {
				edit = append(edit, enginetest.Apart(enginetest.Host, "app-0"))
			}
			pods = append(pods, enginetest.Pod(fmt.Sprintf("pod-%03d", i), edit...))
		}
		s := enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, pods...)
		describe := func(reuse bool) []string {
			sv := newSolver(s)
			sv.sized.disabled = !reuse
			var out []string
			p := sv.solve(sv.compile(nil), Budget{})
			for i := range p.Launches {
				l := &p.Launches[i]
				names := ""
				for _, pod := range l.Pods {
					names += " " + pod.Name
				}
				out = append(out, l.InstanceTypes[0].Name+names)
			}
			return out
		}
		if diff := cmp.Diff(describe(false), describe(true)); diff != "" {
			t.Errorf("%d pods: %s", n, diff)
		}
	}
}
