package console

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Link is how the console is connected to the cluster. The page shows each state of it.
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
	// NotPlanned is why there is no forecast of this state; empty if there is one, or will be.
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
	// Pending pods have no node; Stuck of them get none unless something changes.
	Pending int       `json:"pending"`
	Stuck   int       `json:"stuck"`
	Spend   top.Spend `json:"costPerHour"`
	// Planned is when the forecast was made; null before the first one. Changes are its changes, Planning what it ignored.
	Planned *time.Time   `json:"planned"`
	Changes []top.Change `json:"changes"`
	Notes   []string     `json:"notes"`
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

// Change is what differs from an earlier Fleet.
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
	// encoded are the nodes as JSON by ID, made when a stream first needs them: most states are superseded before.
	encoded func() map[string]string
}

// newState makes the state of what was observed; the forecast may be nil.
func newState(sequence int, observed top.Observed, forecast *top.Forecast) *state {
	s := &state{observed: observed}
	s.Sequence, s.Link = sequence, linkOf(observed.Link)
	s.Summary = Summary{Changes: []top.Change{}, Notes: []string{}}
	s.encoded = sync.OnceValue(s.encode)
	if observed.Fleet == nil {
		return s
	}
	s.At = observed.Fleet.At
	s.report = top.NewReport(observed, forecast)
	s.Summary.Pods, s.Summary.Pending, s.Summary.Spend = s.report.Pods, len(s.report.Pending), s.report.Spend
	for i := range s.report.Pending {
		if !s.report.Pending[i].Fits {
			s.Summary.Stuck++
		}
	}
	if forecast != nil {
		s.Summary.Planned, s.Summary.Changes, s.Summary.Notes = &forecast.At, forecast.Changes, forecast.Notes
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

// hashOf identifies the pods with what the map shows of them.
func hashOf(pods []top.Pod) string {
	h := fnv.New64a()
	for i := range pods {
		fmt.Fprintf(h, "%s %d %d ", pods[i].UID, pods[i].CPU, pods[i].Memory)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

func (s *state) encode() map[string]string {
	out := make(map[string]string, len(s.Nodes))
	for i := range s.Nodes {
		data, err := json.Marshal(s.Nodes[i])
		if err != nil {
			continue // plain data; a price that is no number has none
		}
		out[s.Nodes[i].ID] = string(data)
	}
	return out
}

// since is what differs from an earlier state. It costs O(nodes).
func (s *state) since(before *state) Change {
	out := Change{Sequence: s.Sequence, At: s.At, Link: s.Link, Summary: s.Summary, Changed: []Node{}, Removed: []string{}}
	old, now := before.encoded(), s.encoded()
	for i := range s.Nodes {
		if id := s.Nodes[i].ID; old[id] != now[id] {
			out.Changed = append(out.Changed, s.Nodes[i])
		}
	}
	for i := range before.Nodes {
		if _, still := now[before.Nodes[i].ID]; !still {
			out.Removed = append(out.Removed, before.Nodes[i].ID)
		}
	}
	return out
}

// hub has the last state. Streams wait for the next one, and skip those that they were too slow for.
type hub struct {
	mu       sync.Mutex
	last     *state
	forecast *top.Forecast
	// next is closed when there is another state, done when there will be none.
	next chan struct{}
	done chan struct{}
	// streams is how many browsers listen.
	streams int
}

func newHub(link Link) *hub {
	first := &state{Fleet: Fleet{Link: link, Summary: Summary{Changes: []top.Change{}, Notes: []string{}}}}
	first.encoded = sync.OnceValue(first.encode)
	return &hub{last: first, next: make(chan struct{}), done: make(chan struct{})}
}

// receive takes a message of a Watcher. Without a fleet in it, the last one stays: the link has changed.
func (h *hub) receive(message any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	observed := h.last.observed
	switch m := message.(type) {
	case top.Observed:
		if m.Fleet == nil {
			m.Fleet, m.Prices = observed.Fleet, observed.Prices
		}
		observed = m
	case top.Predicted:
		h.forecast = m.Forecast
	default:
		return
	}
	h.last = newState(h.last.Sequence+1, observed, h.forecast)
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
