package refusal

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// State is whether a node may be launched for pods of a class.
type State int

// The states of a class.
const (
	// Free: nodes are launched as the plan has them.
	Free State = iota
	// Due: one node may be launched.
	Due
	// Waiting: none before a time, or before it is known what becomes of one.
	Waiting
	// Held: none until the pods, the pool or its node class change, or a person removes the history.
	Held
)

// Verdict describes what is done for pods of a class.
type Verdict struct {
	State State
	// Until is the time when a node may be launched at the earliest; zero unless it is known.
	Until time.Time
	// Nodes counts how many were launched in vain, and Pool the pool of the last of them.
	Nodes int
	Pool  string
	// Last is the last record; nil if there is none.
	Last *Record
}

// Judge decides for one class at a time. Histories are by the name of the pool.
type Judge struct {
	histories map[string]*History
	now       time.Time
	// undecided are, by pool and class, claims with an outcome that is not known yet.
	undecided map[[2]string]bool
}

// NewJudge reads from the snapshot which claims are undecided. Cost: the nodes, and the classes of those that are young.
func NewJudge(histories map[string]*History, s *snapshot.Snapshot) *Judge {
	j := &Judge{histories: histories, now: s.Now, undecided: map[[2]string]bool{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.PodClasses == "" {
			continue
		}
		open, untried := undecided(n, s.Now), untried(n, s.Now)
		for class := range split(n.PodClasses) {
			if open || untried && !j.found(n, class) {
				j.undecided[[2]string{n.Pool, class}] = true
			}
		}
	}
	return j
}

// undecided reports whether it is not known yet what becomes of a node for the pods that it was launched for.
func undecided(n *snapshot.Node, now time.Time) bool {
	return !n.Deleting && (!n.Initialized || n.SettledAt.IsZero() || now.Before(n.SettledAt))
}

// untried reports whether kube-scheduler may not have tried yet to place equal pods on a node that nothing has come to: those that it was
// launched for may be on other nodes.
func untried(n *snapshot.Node, now time.Time) bool {
	return !n.Deleting && !n.PodCame && !slices.ContainsFunc(n.Pods, ordinary) && now.Before(n.SettledAt.Add(ReportDelay))
}

// found reports whether it is known that the node was launched in vain for the class.
func (j *Judge) found(n *snapshot.Node, class string) bool {
	h := j.histories[n.Pool]
	return h != nil && h.Classes[class] != nil && slices.Contains(h.Classes[class].Claims, n.Claim)
}

// Of returns the verdict on a class. It holds in all pools, since a plan may launch the next node in another one.
func (j *Judge) Of(class string) Verdict {
	v := Verdict{}
	var counting []time.Time
	inARow := 0
	for name, h := range j.histories {
		r := h.Classes[class]
		if !h.refuses(class, j.now) {
			continue
		}
		if v.Last == nil || r.At.After(v.Last.At.Time) || r.At.Equal(&v.Last.At) && name < v.Pool {
			v.Last, v.Pool = r, name
		}
		counting = append(counting, r.counting(j.now)...)
		inARow += r.inARow()
		v.Until = later(later(v.Until, r.Next.Time), h.full(r.Accepted.Time, j.now))
	}
	v.Nodes = len(counting)
	if v.Nodes >= MaxNodes { // a pod has come to a node in between, or no other node is launched at all
		slices.SortFunc(counting, time.Time.Compare)
		v.Until = later(v.Until, counting[v.Nodes-MaxNodes].Add(acceptedWindow))
	}
	short := v.Last != nil && v.Last.Cause == GangShort
	if short && inARow >= MaxNodes { // EC2 has capacity again without a change of anything here
		v.Until = later(v.Until, v.Last.At.Add(window))
	}
	switch {
	case v.Nodes == 0:
		return Verdict{}
	case inARow >= MaxNodes && !short:
		v.State, v.Until = Held, time.Time{}
	case j.now.Before(v.Until):
		v.State = Waiting
	case j.trying(class):
		v.State, v.Until = Waiting, time.Time{}
	default:
		v.State, v.Until = Due, time.Time{}
	}
	return v
}

// trying reports whether a claim is undecided that was launched for pods of the class, or for others that were refused in its pools.
func (j *Judge) trying(class string) bool {
	for key := range j.undecided {
		if key[1] == class {
			return true
		}
		if h := j.histories[key[0]]; h != nil && h.refuses(key[1], j.now) && h.refuses(class, j.now) {
			return true
		}
	}
	return false
}

// refuses reports whether nodes were launched in vain for pods of the class, and count.
func (h *History) refuses(class string, now time.Time) bool {
	r := h.Classes[class]
	return r != nil && len(r.counting(now)) > 0
}

// full is until when no further node of the pool is tried for pods that came to a node at a time, if ever; zero if one may be.
func (h *History) full(accepted, now time.Time) time.Time {
	recent := slices.DeleteFunc(slices.Clone(h.Nodes), func(n Node) bool {
		return now.Sub(n.At.Time) >= window || !n.At.After(accepted)
	})
	if len(recent) < MaxNodes {
		return time.Time{}
	}
	return recent[len(recent)-MaxNodes].At.Add(window)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
