package console

import (
	"context"
	"encoding/json"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Link describes how the console is connected to the cluster. The page shows each state of it.
type Link struct {
	Cluster string `json:"cluster"`
	// File is true for a cluster from files, which never changes.
	File bool `json:"file"`
	// Loading states what is still being read; empty once everything is.
	Loading string `json:"loading"`
	// Lost is since when the API server has not answered, null while it does; LostWhy is its error.
	Lost    *time.Time `json:"lost"`
	LostWhy string     `json:"lostWhy"`
	// Missing are permissions and kinds that are missing, each with what is not shown for it.
	Missing []string `json:"missing"`
	// Forbidden are the resources that the user may not list and watch, Rule the rules of a ClusterRole that would let them.
	Forbidden []string `json:"forbidden"`
	Rule      string   `json:"rule"`
	// NotPlanned states why there is no forecast of this state; empty if there is one, or will be.
	NotPlanned string `json:"notPlanned"`
}

// Node is a node, a NodeClaim, or both.
type Node struct {
	// ID is the same from the launch to the end of the node.
	ID string `json:"id"`
	*top.Node
	// PodsHash changes whenever a pod of the node does.
	PodsHash string `json:"podsHash"`
}

// Summary is the fleet in numbers.
type Summary struct {
	Pods int `json:"pods"`
	// Pending pods have no node; Stuck of them get none unless something changes, and of Waiting nobody has decided yet.
	Pending int       `json:"pending"`
	Stuck   int       `json:"stuck"`
	Waiting int       `json:"waiting"`
	Spend   top.Spend `json:"cost"`
	// Planned is the time when the forecast was made; null before the first one. Changes are those in progress and what it has that is still
	// to come, Notes what it ignored. They are null in a Change in which they are those of before.
	Planned *time.Time   `json:"planned"`
	Changes []top.Change `json:"changes"`
	Notes   []string     `json:"notes"`
	// Kept counts the nodes that stay by their reason, those of most nodes first, as of the forecast. It is null where Changes are.
	Kept []top.Kept `json:"kept"`
}

// Fleet is the state of the cluster. Null nodes have not been read yet.
type Fleet struct {
	// Sequence grows with each state.
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Link     Link      `json:"link"`
	Summary  Summary   `json:"summary"`
	Nodes    []Node    `json:"nodes"`
}

// Change describes what differs from an earlier Fleet.
type Change struct {
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Link     Link      `json:"link"`
	Summary  Summary   `json:"summary"`
	// Changed are nodes that are new or differ, Removed the IDs of those that are gone.
	Changed []Node   `json:"changed"`
	Removed []string `json:"removed"`
}

// state is a Fleet, and what its answers are made of. It does not change.
type state struct {
	Fleet
	observed top.Observed
	report   *top.Report
	// whole is the Fleet as JSON, made when a stream first needs it: all that start with this state share it.
	whole func() ([]byte, error)
	// groups are the pending pods by workload, made when a page first needs them.
	groups func() []PendingGroup

	// The change since the state of a sequence number, as JSON. Streams that keep up all need the same.
	mu     sync.Mutex
	from   int
	change []byte
}

// newState makes the state of what was observed; the forecast may be nil.
func newState(sequence int, observed top.Observed, forecast *top.Forecast) *state {
	s := &state{observed: observed, from: -1}
	s.Sequence, s.Link = sequence, linkOf(observed.Link)
	s.Summary = Summary{Changes: []top.Change{}, Notes: []string{}, Kept: []top.Kept{}}
	s.whole = sync.OnceValues(func() ([]byte, error) { return json.Marshal(s.Fleet) })
	s.groups = sync.OnceValue(s.groupPending)
	if observed.Fleet == nil {
		return s
	}
	s.At = observed.Fleet.At
	s.report = top.NewReport(observed, forecast)
	s.Summary.Pods, s.Summary.Pending, s.Summary.Spend = s.report.Pods, len(s.report.Pending), s.report.Spend
	for i := range s.report.Pending {
		switch p := &s.report.Pending[i]; {
		case p.Waits:
			s.Summary.Waiting++
		case !p.Fits:
			s.Summary.Stuck++
		}
	}
	s.Summary.Changes, s.Summary.Kept = s.report.Changes, s.report.Kept
	if forecast != nil {
		s.Summary.Planned, s.Summary.Notes = &forecast.At, forecast.Notes
	}
	s.Nodes = make([]Node, 0, len(s.report.Nodes))
	for _, n := range s.report.Nodes {
		s.Nodes = append(s.Nodes, Node{ID: string(n.UID()), Node: n, PodsHash: hashOf(observed.Fleet.PodsOn(n))})
	}
	return s
}

func linkOf(l top.Link) Link {
	out := Link{
		Cluster: l.Name, File: l.File, Loading: l.Loading, LostWhy: l.LostWhy, NotPlanned: l.NotPlanned,
		Missing: append([]string{}, l.Missing...), Forbidden: append([]string{}, l.Forbidden...),
	}
	if !l.Lost.IsZero() {
		out.Lost = &l.Lost
	}
	for _, resource := range l.Forbidden {
		out.Rule += ruleFor(resource)
	}
	return out
}

// hashOf identifies pods with what the map shows of them, in their order: FNV-1a over their hashes.
func hashOf(pods iter.Seq[*top.Pod]) string {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for p := range pods {
		h = (h ^ p.Hash) * prime
		h = (h ^ p.Hash>>32) * prime // a product carries nothing down
	}
	return strconv.FormatUint(h, 36)
}

// changeSince is the event for a stream that has last sent an earlier Fleet, as JSON. It costs O(nodes).
func (s *state) changeSince(before *Fleet) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == before.Sequence {
		return s.change, nil
	}
	data, err := json.Marshal(s.Fleet.since(before))
	if err == nil {
		s.from, s.change = before.Sequence, data
	}
	return data, err
}

// since returns what differs from an earlier Fleet.
func (f *Fleet) since(before *Fleet) Change {
	out := Change{Sequence: f.Sequence, At: f.At, Link: f.Link, Summary: f.Summary, Changed: []Node{}, Removed: []string{}}
	if samePlan(&f.Summary, &before.Summary) {
		out.Summary.Changes, out.Summary.Notes, out.Summary.Kept = nil, nil, nil
	}
	old := make(map[string]*Node, len(before.Nodes))
	for i := range before.Nodes {
		old[before.Nodes[i].ID] = &before.Nodes[i]
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if was := old[n.ID]; was == nil || !n.same(was) {
			out.Changed = append(out.Changed, *n)
		}
		delete(old, n.ID)
	}
	for i := range before.Nodes { // in order
		if _, gone := old[before.Nodes[i].ID]; gone {
			out.Removed = append(out.Removed, before.Nodes[i].ID)
		}
	}
	return out
}

// samePlan reports whether two summaries have the same forecast and the same changes.
func samePlan(a, b *Summary) bool {
	if !reflect.DeepEqual(a.Changes, b.Changes) || !slices.Equal(a.Kept, b.Kept) {
		return false
	}
	return a.Planned == b.Planned || a.Planned != nil && b.Planned != nil && a.Planned.Equal(*b.Planned)
}

// same reports whether two nodes look the same on the page.
func (n Node) same(other *Node) bool { return n.PodsHash == other.PodsHash && n.Node.Same(other.Node) }

// hub has the last state. Streams wait for the next one, and skip those that they were too slow for.
type hub struct {
	mu       sync.Mutex
	last     *state
	forecast *top.Forecast
	// next is closed when there is another state, done when there will be none.
	next chan struct{}
	done chan struct{}
	// streams counts how many browsers listen.
	streams int
	// looked has a value after a request, until it is taken.
	looked  chan struct{}
	link    Link
	history history
	// decided is the number of the last decision of the recording, or step of one; nextDecided is closed when there is another.
	decided     uint64
	nextDecided chan struct{}
}

func newHub(link Link) *hub {
	return &hub{
		last: unseen(link, 0), next: make(chan struct{}), done: make(chan struct{}), looked: make(chan struct{}, 1), link: link,
		nextDecided: make(chan struct{}),
	}
}

// unseen is the state before anything is read.
func unseen(link Link, sequence int) *state {
	s := newState(sequence, top.Observed{}, nil)
	s.Link = link
	return s
}

// look notes a request.
func (h *hub) look() {
	select {
	case h.looked <- struct{}{}:
	default:
	}
}

// awaitLook returns true after a request, or after so long with a stream open; false if nobody looks, or ctx is done.
func (h *hub) awaitLook(ctx context.Context, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-h.looked:
		return true
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams > 0
}

// forget drops the state.
func (h *hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.forecast = unseen(h.link, h.last.Sequence+1), nil
	close(h.next)
	h.next = make(chan struct{})
}

// receive takes a message of a Watcher. Without a fleet in it, the last one stays: the link has changed.
func (h *hub) receive(message any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	observed := h.last.observed
	switch m := message.(type) {
	case top.Observed:
		if m.Fleet == nil {
			m.Fleet, m.Prices, m.PricesProblem = observed.Fleet, observed.Prices, observed.PricesProblem
		}
		observed = m
	case top.Predicted:
		h.forecast = m.Forecast
	default:
		return
	}
	h.last = newState(h.last.Sequence+1, observed, h.forecast)
	h.record(h.last.At)
	close(h.next)
	h.next = make(chan struct{})
}

// current is the last state, and a channel that is closed once there is another.
func (h *hub) current() (*state, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.next
}

func (h *hub) close() { close(h.done) }

// join counts a stream in, unless there are too many.
func (h *hub) join() (leave func(), joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= maxStreams {
		return nil, false
	}
	h.streams++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.streams--
	}, true
}
