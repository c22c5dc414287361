package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Forecast is how long a drain takes if the cluster stays as it is.
type Forecast struct {
	// Longest is the time if each pod needs its whole grace period: most need less. What successors need to be Ready, and volumes to be
	// detached, is not part of it.
	Longest time.Duration
	// Endless are the pods that nothing makes leave, with what keeps them; there are none if the drain has a deadline.
	Endless []Wait
}

// longestForecast is the longest time of one pod that counts: sums of longer ones would wrap around.
const longestForecast = 10 * 24 * time.Hour

// defaultGrace is the grace period that the API server gives to pods without one.
const defaultGrace = 30 * time.Second

// Expect forecasts the drain of a node from now on. Pods of one tier shut down at the same time, unless a PodDisruptionBudget or the order
// of their owner has them leave one after the other.
//
// Cost: linear in the pods times the budgets.
func Expect(n Node, now time.Time) Forecast {
	if n.Since == nil {
		n.Since = &now
	}
	var out Forecast
	first, daemons := splitDaemons(n.Pods)
	for _, pods := range [][]*corev1.Pod{first, daemons} {
		var tiers [4][]*corev1.Pod
		for _, p := range pods {
			if drainable(p, now) && !snapshot.Terminal(p) {
				tiers[tier(p)] = append(tiers[tier(p)], p)
			}
		}
		for _, tier := range tiers {
			out.Longest += n.longest(tier, &out, now)
		}
	}
	out.Longest += max(0, minDuration-now.Sub(*n.Since))
	if n.Deadline != nil {
		if left := max(0, n.Deadline.Sub(now)); len(out.Endless) > 0 || left < out.Longest {
			out.Longest, out.Endless = left, nil
		}
	}
	return out
}

// longest is how long the pods of a tier need to leave.
func (n *Node) longest(tier []*corev1.Pod, out *Forecast, now time.Time) (longest time.Duration) {
	turns := map[types.UID]time.Duration{} // by owner
	for _, p := range tier {
		takes, wait := n.takes(p, now)
		if wait.Why != "" {
			out.Endless = append(out.Endless, wait)
			continue
		}
		longest = max(longest, takes)
		if owner := metav1.GetControllerOfNoCopy(p); Ordered(p) && p.DeletionTimestamp == nil {
			turns[owner.UID] += takes
			longest = max(longest, min(turns[owner.UID], SiblingsWait+takes))
		}
	}
	for _, b := range n.Budgets {
		if allowed := b.Status.DisruptionsAllowed; allowed > 0 {
			longest = max(longest, n.rounds(tier, b, now))
		}
	}
	return longest
}

// rounds is how long the pods of a budget need that allows only some to leave at a time.
func (n *Node) rounds(tier []*corev1.Pod, b snapshot.Budget, now time.Time) time.Duration {
	count, slowest := 0, time.Duration(0)
	for _, p := range tier {
		if takes, wait := n.takes(p, now); b.Selects(p) && p.DeletionTimestamp == nil && wait.Why == "" {
			count, slowest = count+1, max(slowest, takes)
		}
	}
	allowed := int(b.Status.DisruptionsAllowed)
	return time.Duration((count+allowed-1)/allowed) * slowest
}

// takes is how long a pod needs to leave that may; else the wait has a reason.
func (n *Node) takes(p *corev1.Pod, now time.Time) (time.Duration, Wait) {
	grace := defaultGrace
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = time.Duration(min(*own, int64(longestForecast/time.Second))) * time.Second
	}
	if p.DeletionTimestamp != nil {
		return min(max(0, p.DeletionTimestamp.Sub(now)), longestForecast), Wait{}
	}
	var waits time.Duration
	switch protection, ends := snapshot.DoNotDisrupt(p, now); {
	case protection.Blocks() && ends.IsZero():
		return 0, Wait{Pod: p, Why: Protected}
	case protection.Blocks():
		waits = ends.Sub(now)
	}
	if n.budgetBlocks(p) {
		return 0, Wait{Pod: p, Why: BudgetBlocks}
	}
	if end := finishes(p); now.Before(end) && !end.After(n.Since.Add(FinishWait)) {
		waits = max(waits, end.Sub(now))
	}
	return min(waits, longestForecast) + grace, Wait{}
}
