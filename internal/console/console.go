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

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Sources is what the console shows, and how it reads it.
type Sources struct {
	// Version is that of the program.
	Version string
	// Name names the cluster; File is true for one from files, which never changes.
	Name string
	File bool
	// Watch sends top.Observed and top.Predicted messages until the context is canceled.
	Watch func(ctx context.Context, send func(any))
	// View reads the cluster as it is; Revision changes whenever the View would.
	View     func(ctx context.Context) (*inspect.View, error)
	Revision func() int
	// Diagnose makes the checks of the doctor; nil if there is no live cluster to check.
	Diagnose func(ctx context.Context) (doctor.Report, error)
	// Decisions opens the recording of a controller; nil without one.
	Decisions func() (*recorder.Recording, error)
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
}

// New makes a Console. It shows nothing before it runs.
func New(s Sources) *Console {
	connecting := Link{Cluster: s.Name, File: s.File, Loading: "Connecting", Missing: []string{}, Forbidden: []string{}}
	c := &Console{Sources: s, hub: newHub(connecting)}
	c.views = &viewCache{read: s.View, revision: s.Revision, now: s.Now}
	c.diagnose = &doctorCache{run: s.Diagnose, now: s.Now}
	c.whatIfs = newWhatIfs()
	return c
}

// Run watches the cluster until the context is canceled.
func (c *Console) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.Watch(ctx, c.hub.receive) })
	<-ctx.Done()
	c.hub.close()
	running.Wait()
}

//go:embed assets
var embedded embed.FS

// Handler serves the page and its API, to requests that the page itself could have made.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range c.routes() {
		mux.Handle(r.Method+" "+r.Path, c.answer(r))
	}
	mux.HandleFunc("GET "+apiRoot+"/events", c.stream)
	mux.HandleFunc("GET "+apiRoot+"/openapi.json", serveDocument)
	mux.HandleFunc(apiRoot+"/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: "there is no " + r.Method + " " + r.URL.Path +
			": " + apiRoot + "/openapi.json lists what there is"})
	})
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	mux.Handle("/", http.FileServerFS(assets))
	return guarded(mux)
}
