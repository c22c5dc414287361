package disrupt

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// maxForecastWindows limits how many changes of budgets a forecast follows; what budgets allow after the last of them counts from there on.
// Six days of a budget with hourly windows have 288.
const maxForecastWindows = 2000

// Expiry is when a node is due, and when it is deleted if it has not been replaced by then.
type Expiry struct{ Due, Deadline time.Time }

// Expiries are those of the nodes of a pool that have not been replaced or deleted yet.
type Expiries struct {
	Pool  *karpv1.NodePool
	Nodes []Expiry
	// Total is how many nodes percentages in budgets are of.
	Total int
	// Each is how long it takes to replace a node, from its command until it has gone.
	Each time.Duration
	Now  time.Time
}

// Forecast is how many nodes of a pool will be deleted at their deadline, since budgets allow to replace too few before.
type Forecast struct {
	Behind int
	// First is the first deadline of them.
	First time.Time
	// Enough is the smallest number of nodes, in each window in which budgets allow any, with which all would be replaced; 0 if none is.
	Enough int
}

// Forecast simulates that nodes are replaced as budgets allow, of those that are due the one first that is deleted first. One
// that cannot be done by its deadline is left out. The budgets are those of the pool's annotation, which is Graceful. Cost:
// O(n log n) for n nodes, and some ten times that if nodes are left out.
func (x Expiries) Forecast() Forecast {
	windows := x.windows()
	out := x.simulate(windows, 0)
	if out.Behind == 0 {
		return out
	}
	// More nodes at once never leave more behind.
	low, high := 1, len(x.Nodes)
	if x.simulate(windows, high).Behind > 0 {
		return out
	}
	for low < high {
		if middle := (low + high) / 2; x.simulate(windows, middle).Behind > 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	out.Enough = low
	return out
}

// forecastWindow is what budgets allow from an instant on.
type forecastWindow struct {
	from    time.Time
	allowed int
}

// windows are what budgets allow until the last deadline.
func (x Expiries) windows() (out []forecastWindow) {
	reason := x.Pool.Graceful().BudgetReason
	var last time.Time
	for _, n := range x.Nodes {
		if n.Deadline.After(last) {
			last = n.Deadline
		}
	}
	for at := x.Now; len(out) < maxForecastWindows; {
		allowed, _ := Allowed(x.Pool, x.Total, reason, at) // 0 if a budget is invalid
		if len(out) == 0 || out[len(out)-1].allowed != allowed {
			out = append(out, forecastWindow{at, allowed})
		}
		var next time.Time
		for _, b := range x.Pool.Spec.Disruption.Budgets {
			if change := nextWindowChange(b, at); !change.IsZero() && (next.IsZero() || change.Before(next)) {
				next = change
			}
		}
		if next.IsZero() || next.After(last) {
			return out
		}
		at = next
	}
	return out
}

// simulate replaces the nodes in windows that allow as many as they do, or atOnce where that is more than 0.
func (x Expiries) simulate(windows []forecastWindow, atOnce int) (out Forecast) {
	nodes := slices.SortedFunc(slices.Values(x.Nodes), func(a, b Expiry) int {
		return cmp.Or(a.Due.Compare(b.Due), a.Deadline.Compare(b.Deadline))
	})
	now, due := x.Now, &byDeadline{}
	for len(nodes)+due.Len() > 0 {
		if due.Len() == 0 && nodes[0].Due.After(now) {
			now = nodes[0].Due
		}
		for len(nodes) > 0 && !nodes[0].Due.After(now) {
			heap.Push(due, nodes[0])
			nodes = nodes[1:]
		}
		n := heap.Pop(due).(Expiry) //nolint:forcetypeassert // it has nothing else
		done := x.doneAt(windows, atOnce, now)
		if !done.IsZero() && !done.After(n.Deadline) {
			now = done
			continue
		}
		out.Behind++
		if out.First.IsZero() || n.Deadline.Before(out.First) {
			out.First = n.Deadline
		}
	}
	return out
}

// doneAt is when one more node has been replaced, if its turn comes at an instant: n nodes at once take turns that are n times shorter. It
// is zero if no window comes.
func (x Expiries) doneAt(windows []forecastWindow, atOnce int, from time.Time) time.Time {
	work := float64(x.Each)
	at := max(0, sortedBefore(windows, from))
	for i := at; i < len(windows); i++ {
		begin := windows[i].from
		if begin.Before(from) {
			begin = from
		}
		allowed := windows[i].allowed
		if allowed > 0 && atOnce > 0 {
			allowed = atOnce
		}
		takes := time.Duration(work / float64(max(allowed, 1)))
		if i+1 == len(windows) || allowed > 0 && !begin.Add(takes).After(windows[i+1].from) {
			if allowed == 0 {
				return time.Time{}
			}
			return begin.Add(takes)
		}
		if allowed > 0 {
			work -= float64(windows[i+1].from.Sub(begin)) * float64(allowed)
		}
	}
	return time.Time{}
}

// sortedBefore is the index of the window at an instant; -1 if it is before all.
func sortedBefore(windows []forecastWindow, at time.Time) int {
	i, found := slices.BinarySearchFunc(windows, at, func(w forecastWindow, at time.Time) int { return w.from.Compare(at) })
	if found {
		return i
	}
	return i - 1
}

// byDeadline is a heap of nodes, the first deadline first.
type byDeadline []Expiry

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].Deadline.Before(h[j].Deadline) }
func (h byDeadline) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDeadline) Push(n any)        { *h = append(*h, n.(Expiry)) } //nolint:forcetypeassert // it has nothing else
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	out := (*h)[last]
	*h = (*h)[:last]
	return out
}
