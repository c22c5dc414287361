// Package console serves a cluster to a browser: its nodes as a map, pending pods with their reasons and fixes, NodePools, findings
// of the doctor, and recorded decisions. It only reads.
//
// A Watcher feeds a hub with states. Requests read the last one, or a View, which is made when one is needed. The page is built by
// the directory console of the repository and embedded.
package console

import (
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Sources describes what the console shows, and how it reads it.
type Sources struct {
	// Version is that of the program.
	Version string
	// Name names the cluster; File is true for one from files, which never changes.
	Name string
	File bool
	// Recorded is true if all that is shown is a recording: see ShowRecording.
	Recorded bool
	// Watch sends top.Observed and top.Predicted messages until the context is canceled.
	Watch func(ctx context.Context, send func(any))
	// View reads the cluster as it is; Revision changes whenever the View would.
	View     func(ctx context.Context) (*inspect.View, error)
	Revision func() int
	// OnDemand lets Watch run only while somebody looks. Standby reports that another replica has the state to show; nil for never.
	OnDemand bool
	Standby  func() bool
	// Diagnose makes the checks of the doctor; nil if there is no live cluster to check.
	Diagnose func(ctx context.Context) (doctor.Report, error)
	// Decisions opens the recording of a controller; nil without one.
	Decisions func() (*recorder.Recording, error)
	// Written is when that recording was written last; nil if it does not change.
	Written func() (time.Time, error)
	// Events reads the events of an object; nil if there is no live cluster.
	Events func(ctx context.Context, kind, name string) ([]corev1.Event, error)
	// Search states how consolidation is searched in what a recording has. That of a View is its own.
	Search consolidate.Settings
	// Now is the time.
	Now func() time.Time
	// Log gets what a user of the page cannot see, such as a panic.
	Log *slog.Logger
}

// Console serves one cluster.
type Console struct {
	Sources
	hub      *hub
	views    *viewCache
	diagnose *doctorCache
	whatIfs  *whatIfs
	recorded *recordedSpend
	reading  turns // of the recording
	// assessments are made apart from requests.
	assessments *assessments
}

// New makes a Console. It shows nothing before it runs.
func New(s Sources) *Console {
	connecting := Link{Cluster: s.Name, File: s.File, Loading: "Connecting", Missing: []string{}, Forbidden: []string{}}
	c := &Console{Sources: s, hub: newHub(connecting)}
	c.views = &viewCache{read: s.View, revision: s.Revision, now: s.Now}
	c.diagnose = &doctorCache{run: s.Diagnose, now: s.Now}
	c.whatIfs, c.recorded, c.reading = newWhatIfs(), &recordedSpend{now: s.Now}, newTurns()
	c.assessments = &assessments{view: c.views.current, now: s.Now, log: s.Log, unasked: assessedUnasked}
	if s.OnDemand {
		c.assessments.unasked = assessedInController
	}
	return c
}

// Run watches the cluster until the context is canceled.
func (c *Console) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.serveWhileLooked(ctx) })
	if !c.OnDemand {
		running.Go(func() { c.Watch(ctx, c.hub.receive) })
	}
	if !c.File { // while nobody looks, there is nothing to sample
		running.Go(func() { c.hub.sampleUntil(ctx, c.Now) })
	}
	<-ctx.Done()
	c.hub.close()
	running.Wait()
}

// lookedAway sets how long after the last request nobody looks any more: longer than a reload of the page takes.
const lookedAway = time.Minute

// serveWhileLooked waits for the first request until nobody looks, again and again. What was read and computed for those who looked is
// then dropped: it can be larger than all that is watched. On demand, it watches only meanwhile.
func (c *Console) serveWhileLooked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.hub.looked:
		}
		watching, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		if c.OnDemand {
			running.Go(func() { c.Watch(watching, c.hub.receive) })
		}
		running.Go(func() { c.followRecording(watching) })
		for c.hub.awaitLook(ctx, lookedAway) {
		}
		stop()
		running.Wait()
		if c.OnDemand {
			c.hub.forget()
		}
		c.views.forget()
		c.whatIfs.forget()
	}
}

//go:embed assets
var embedded embed.FS

// Handler serves the page and its API, to requests from this machine that the page itself could have made.
func (c *Console) Handler() http.Handler { return fromHere.guarded(c.mux()) }

// ProtectedHandler serves the page, and its API to users whom the reviewer lets in, from anywhere.
func (c *Console) ProtectedHandler(r Reviewer) http.Handler {
	return fromAnywhere.guarded(newAccess(r, c.Now).protect(c.mux()))
}

func (c *Console) mux() http.Handler {
	mux := http.NewServeMux()
	for _, r := range c.routes() {
		mux.Handle(r.Method+" "+r.Path, c.answer(r))
	}
	mux.HandleFunc("GET "+apiRoot+eventsPath, c.stream)
	mux.HandleFunc("GET "+apiRoot+"/openapi.json", serveDocument)
	mux.HandleFunc(apiRoot+"/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: "there is no " + r.Method + " " + r.URL.Path +
			": " + apiRoot + "/openapi.json lists what there is"})
	})
	served := http.NewServeMux()
	served.HandleFunc(apiRoot+"/", func(w http.ResponseWriter, r *http.Request) {
		if c.Standby != nil && c.Standby() {
			writeProblem(w, &Problem{Status: http.StatusServiceUnavailable, Code: CodeStandby, Message: standby})
			return
		}
		c.hub.look()
		mux.ServeHTTP(w, r)
	})
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	served.Handle("/", http.FileServerFS(assets))
	return served
}

// standby is the answer of a replica that has nothing to show.
const standby = "this replica of the controller is on standby: the console is that of the leader, the pod that holds the lease"
