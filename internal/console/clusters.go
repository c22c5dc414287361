package console

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// clustersPath lists the clusters. With several, each path of the API is also below it, after the name of a cluster.
const clustersPath = apiRoot + "/clusters"

// Clusters are the clusters of a console, in their order.
type Clusters struct {
	Clusters []Cluster `json:"clusters"`
}

// Cluster is a cluster in numbers.
type Cluster struct {
	Name string `json:"name"`
	Link Link   `json:"link"`
	// Read is false before the cluster has been read: the numbers are then not known.
	Read    bool      `json:"read"`
	At      time.Time `json:"at"`
	Nodes   int       `json:"nodes"`
	Pods    int       `json:"pods"`
	Pending int       `json:"pending"`
	// Stuck are pending pods that get no node unless something changes.
	Stuck int       `json:"stuck"`
	Spend top.Spend `json:"cost"`
	// Changes counts how many changes are planned; null before the first plan.
	Changes *int `json:"changes"`
	// Errors and Warnings are how many the doctor has found; null before it has run.
	Errors   *int `json:"errors"`
	Warnings *int `json:"warnings"`
}

// row is the cluster of a console.
func (c *Console) row() Cluster {
	s, _ := c.hub.current()
	out := Cluster{
		Name: c.Name, Link: s.Link, Read: s.Nodes != nil, At: s.At, Nodes: len(s.Nodes), Pods: s.Summary.Pods, Pending: s.Summary.Pending,
		Stuck: s.Summary.Stuck, Spend: s.Summary.Spend,
	}
	if s.Summary.Planned != nil {
		out.Changes = new(len(s.Summary.Changes))
	}
	if found := c.diagnose.latest.Load(); found != nil {
		errors, warnings := 0, 0
		for i := range found.Findings {
			switch found.Findings[i].Severity {
			case doctor.Error:
				errors++
			case doctor.Warning:
				warnings++
			}
		}
		out.Errors, out.Warnings = &errors, &warnings
	}
	return out
}

const (
	// overviewFindingsAge sets how old the findings of an overview may be. Its checks read each cluster as a whole.
	overviewFindingsAge = 10 * time.Minute
	// diagnoseTimeout sets how long the checks of one cluster may keep those of the others waiting.
	diagnoseTimeout = 2 * time.Minute
)

// Several serves several clusters: an overview, and each of them below its name. One that cannot be reached holds up no other.
type Several struct {
	consoles []*Console
	// diagnosing is held while the checks of the doctor are made: in one cluster at a time.
	diagnosing sync.Mutex
	running    sync.WaitGroup
	stopped    context.Context
	stop       context.CancelFunc
}

// NewSeveral makes the console of several clusters, which have different names.
func NewSeveral(all []Sources) *Several {
	s := &Several{}
	s.stopped, s.stop = context.WithCancel(context.Background())
	for i := range all {
		s.consoles = append(s.consoles, New(all[i]))
	}
	return s
}

// Run watches the clusters until the context is canceled.
func (s *Several) Run(ctx context.Context) {
	for _, c := range s.consoles {
		s.running.Go(func() { c.Run(ctx) })
	}
	<-ctx.Done()
	s.stop()
	s.diagnosing.Lock() // nothing begins after it
	defer s.diagnosing.Unlock()
	s.running.Wait()
}

// Handler serves the page, the overview, and the API of each cluster, to requests from this machine that the page could have made.
func (s *Several) Handler() http.Handler {
	muxes := map[string]http.Handler{}
	for _, c := range s.consoles {
		muxes[c.Name] = c.mux()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+clustersPath, func(w http.ResponseWriter, _ *http.Request) {
		out := Clusters{Clusters: []Cluster{}}
		for _, c := range s.consoles {
			out.Clusters = append(out.Clusters, c.row())
		}
		s.diagnose()
		writeJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc(clustersPath+"/{cluster}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		one, known := muxes[r.PathValue("cluster")]
		if !known {
			writeProblem(w, &Problem{
				Status: http.StatusNotFound, Code: CodeNotFound, Message: "this console has no cluster " + r.PathValue("cluster"),
			})
			return
		}
		inner := r.Clone(r.Context())
		// The path as it came: a name in it may have an escaped slash.
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), clustersPath+"/"), "/")
		inner.URL.Path, inner.URL.RawPath = apiRoot+"/"+r.PathValue("path"), apiRoot+"/"+rest
		one.ServeHTTP(w, inner)
	})
	mux.Handle("/", muxes[s.consoles[0].Name])
	return fromHere.guarded(mux)
}

// diagnose makes the checks of the doctor in the clusters with findings that are old, one after the other, unless that is being done.
func (s *Several) diagnose() {
	if s.stopped.Err() != nil || !s.diagnosing.TryLock() {
		return
	}
	var old []*Console
	for _, c := range s.consoles {
		state, _ := c.hub.current()
		found := c.diagnose.latest.Load()
		if c.Diagnose != nil && state.Nodes != nil && (found == nil || c.Now().Sub(found.At) >= overviewFindingsAge) {
			old = append(old, c)
		}
	}
	go func() {
		defer s.diagnosing.Unlock()
		for _, c := range old {
			ctx, cancel := context.WithTimeout(s.stopped, diagnoseTimeout)
			if _, err := c.diagnose.get(ctx, true /* fresh */); err != nil && s.stopped.Err() == nil {
				c.Log.Debug("the overview has no findings of a cluster", "cluster", c.Name, "error", err)
			}
			cancel()
		}
	}()
}
