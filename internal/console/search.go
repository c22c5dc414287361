package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// Found are the pods that a search has found, and checks of the doctor. More is how many pods are left out.
type Found struct {
	Pods   []FoundPod   `json:"pods"`
	More   int          `json:"more"`
	Checks []FoundCheck `json:"checks"`
}

// FoundCheck is a check of the doctor. Findings is how many findings it had when the checks last ran; null if they have not.
type FoundCheck struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Findings *int   `json:"findings"`
}

// FoundPod is a pod. Node is the name of its node, empty while it has none.
type FoundPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
}

const (
	// leastSearched sets how many characters a search has at least, mostSearched how many at most: those of a namespace and a name.
	leastSearched, mostSearched = 1, 320
	// mostFound limits how many pods an answer has: as many as a person reads before typing on.
	mostFound = 20
	// leastOfID sets how many characters a search for the ID of a check has at least: shorter texts are in all of them. mostChecks limits
	// their number.
	leastOfID, mostChecks = 3, 8
)

// search finds pods by a part of NAMESPACE/NAME, however short, and checks by a part of their ID. It costs O(pods), with a logarithm of
// mostFound. It makes no check.
func (c *Console) search(r *http.Request) (any, error) {
	text := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("text")))
	if len(text) < leastSearched || len(text) > mostSearched {
		return nil, invalid("text", fmt.Sprintf("it needs %d to %d characters", leastSearched, mostSearched))
	}
	s, _ := c.hub.current()
	out := s.find(text)
	if c.Diagnose != nil {
		out.Checks = checksWith(text, c.diagnose.latest.Load())
	}
	return out, nil
}

// checksWith are the checks that have a text in their ID.
func checksWith(text string, last *Diagnosis) []FoundCheck {
	out := []FoundCheck{}
	if len(text) < leastOfID {
		return out
	}
	for _, check := range doctor.Checks() {
		if !strings.Contains(check.ID, text) || len(out) == mostChecks {
			continue
		}
		found := FoundCheck{ID: check.ID, Title: check.Title}
		if last != nil {
			n := 0
			for _, f := range last.Findings {
				if f.Check == check.ID {
					n++
				}
			}
			found.Findings = &n
		}
		out = append(out, found)
	}
	return out
}

// find returns first what begins with the text, then pods without a node, then by name.
func (s *state) find(text string) Found {
	out := Found{Pods: []FoundPod{}, Checks: []FoundCheck{}}
	if s.report == nil || s.observed.Fleet.PodsUnknown {
		return out
	}
	rank := func(p FoundPod) int {
		switch {
		case strings.HasPrefix(p.Name, text) || strings.HasPrefix(p.Namespace+"/"+p.Name, text):
			return 0
		case p.Node == "":
			return 1
		}
		return 2
	}
	order := func(a, b FoundPod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	}
	add := func(p FoundPod) {
		if at, _ := slices.BinarySearchFunc(out.Pods, p, order); at < mostFound {
			out.Pods = slices.Insert(out.Pods, at, p)
		}
		if len(out.Pods) > mostFound {
			out.Pods = out.Pods[:mostFound]
		}
		out.More++
	}
	for i := range s.observed.Fleet.Pods {
		if p := &s.observed.Fleet.Pods[i]; strings.Contains(p.Namespace+"/"+p.Name, text) {
			add(FoundPod{p.Namespace, p.Name, p.Spec.NodeName})
		}
	}
	out.More -= len(out.Pods)
	return out
}
