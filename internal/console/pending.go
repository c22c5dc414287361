package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Pending are the pods without a node.
type Pending struct {
	At time.Time `json:"at"`
	// Unknown is true if pods may not be read, or have not been yet.
	Unknown bool `json:"unknown"`
	// Planned is the time when the engine last planned them; null if it has not yet, and the reasons are kube-scheduler's.
	Planned *time.Time `json:"planned"`
	// Stuck counts how many pods need a change to run, Fits how many get a node as they are. Of Waiting pods nobody has decided yet: they need
	// no change.
	Stuck   int `json:"stuck"`
	Fits    int `json:"fits"`
	Waiting int `json:"waiting"`
	// Workloads counts how many groups there are.
	Workloads int `json:"workloads"`
	// Found counts how many groups have the text that is requested, those first that need a change, then by waiting time. Groups are some of
	// them, from index From on.
	Found  int            `json:"found"`
	From   int            `json:"from"`
	Groups []PendingGroup `json:"groups"`
}

// PendingGroup are pods of one workload with the same outlook.
type PendingGroup struct {
	Namespace string `json:"namespace"`
	// Kind and Name are those of the workload, or of the pod if it has none.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Pods are the names of the first pods, the oldest first. Count is how many there are.
	Pods  []string `json:"pods"`
	Count int      `json:"count"`
	// Since is the time when the oldest was created.
	Since time.Time `json:"since"`
	// CPU is the request of the oldest in millicores, Memory in bytes.
	CPU    int64 `json:"cpuMillicores"`
	Memory int64 `json:"memoryBytes"`
	// Why holds what becomes of it, or why it gets no node; Fits reports which of the two.
	Why  string `json:"why"`
	Fits bool   `json:"fits"`
	// Waiting is true if nothing is to be done: kube-scheduler, or the next plan, decides.
	Waiting bool `json:"waiting"`

	// names are the names of all pods.
	names []string
}

const (
	// mostGroups limits how many groups an answer has: several screens of them.
	mostGroups = 200
	// namedPods sets how many pods of a group are named: as many as a page lists without scrolling.
	namedPods = 20
	// mostFind limits how long a text to find may be: that of a namespace and a name.
	mostFind = 320
)

// pending answers with groups from an index on that have a text.
func (c *Console) pending(r *http.Request) (any, error) {
	text := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("find")))
	if len(text) > mostFind {
		return nil, invalid("find", fmt.Sprintf("it has %d characters; the limit is %d", len(text), mostFind))
	}
	from := 0
	if asked := r.URL.Query().Get("from"); asked != "" {
		var err error
		if from, err = strconv.Atoi(asked); err != nil || from < 0 {
			return nil, invalid("from", `"`+asked+`" is not a number from 0 on`)
		}
	}
	s, _ := c.hub.current()
	return s.pending(from, text), nil
}

// pending are the pending pods of the state: the groups with a text, in lower case, from an index on. It costs O(groups), the first time
// O(pending pods).
func (s *state) pending(from int, text string) Pending {
	out := Pending{At: s.At, Unknown: s.report == nil || s.observed.Fleet.PodsUnknown, Planned: s.Summary.Planned, Groups: []PendingGroup{}}
	if s.report == nil {
		return out
	}
	all := s.groups()
	out.Stuck, out.Waiting, out.Workloads = s.Summary.Stuck, s.Summary.Waiting, len(all)
	out.Fits = s.Summary.Pending - s.Summary.Stuck - s.Summary.Waiting
	out.From = from
	for i := range all {
		if text != "" && !all[i].has(text) {
			continue
		}
		if out.Found >= from && len(out.Groups) < mostGroups {
			out.Groups = append(out.Groups, all[i])
		}
		out.Found++
	}
	return out
}

// has reports whether a text in lower case is in what the page shows of the group.
func (g *PendingGroup) has(text string) bool {
	for _, shown := range []string{g.Namespace + "/" + g.Name, g.Kind, g.Why} {
		if strings.Contains(strings.ToLower(shown), text) {
			return true
		}
	}
	for _, name := range g.names {
		if strings.Contains(name, text) {
			return true
		}
	}
	return false
}

// groupPending groups the pending pods of the report, which has those first that need a change, then the oldest.
func (s *state) groupPending() []PendingGroup {
	type key struct {
		namespace, kind, name string
		fits, waiting         bool
	}
	var out []PendingGroup
	known := map[key]int{}
	for i := range s.report.Pending {
		p := &s.report.Pending[i]
		kind, name := workloadOf(p.Pod)
		k := key{p.Namespace, kind, name, p.Fits, p.Waits}
		at, found := known[k]
		if !found {
			at = len(out)
			known[k] = at
			out = append(out, PendingGroup{
				Namespace: p.Namespace, Kind: kind, Name: name, Since: p.Created, CPU: p.CPU, Memory: p.Memory, Why: p.Why, Fits: p.Fits,
				Waiting: p.Waits, Pods: []string{},
			})
		}
		g := &out[at]
		g.Count++
		g.names = append(g.names, p.Name)
		if len(g.Pods) < namedPods {
			g.Pods = append(g.Pods, p.Name)
		}
	}
	return out
}
