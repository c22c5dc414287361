package operator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/internal/controller/dependency"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// probeTimeout sets how long a probe waits for the caches: kubelets wait for a second.
const probeTimeout = time.Second

// probes serve /healthz and /readyz. A controller is ready once its caches are filled, whatever it waits for of AWS: it drains nodes and
// handles interruptions without. /readyz?verbose lists what it waits for.
type probes struct {
	// synced reports whether the caches are filled, or waits for it until ctx is done.
	synced func(ctx context.Context) bool
	// dependencies are listed from when they are set.
	dependencies atomic.Pointer[dependency.Set]
	now          func() time.Time
}

// addProbes binds the port of the probes, and has the manager serve them.
func addProbes(mgr manager.Manager, s settings.Settings) (*probes, error) {
	p := &probes{synced: mgr.GetCache().WaitForCacheSync, now: time.Now}
	listener, err := listenForProbes(s)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	return p, mgr.Add(&manager.Server{Name: "health probe", Server: server, Listener: listener})
}

// listenForProbes binds the port of the probes.
func listenForProbes(s settings.Settings) (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(s.BindAddress, strconv.Itoa(s.HealthProbePort)))
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	return listener, nil
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/readyz", p.ready)
	return mux
}

// ready answers with the form of Kubernetes: ok, or a line for each check where something is wrong or the request is verbose.
func (p *probes) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	synced := p.synced(ctx)
	if !synced {
		w.WriteHeader(http.StatusInternalServerError)
	} else if !r.URL.Query().Has("verbose") {
		_, _ = fmt.Fprint(w, "ok")
		return
	}
	_, _ = fmt.Fprint(w, p.text(synced))
}

// text has a line for the caches, and one for each dependency.
func (p *probes) text(synced bool) string {
	var out strings.Builder
	if synced {
		out.WriteString("[+]caches ok\n")
	} else {
		out.WriteString("[-]caches failed: they are not synced\n")
	}
	if of := p.dependencies.Load(); of != nil {
		for _, s := range of.States() {
			out.WriteString(dependencyLine(s, p.now()) + "\n")
		}
	}
	if synced {
		out.WriteString("readyz check passed\n")
	} else {
		out.WriteString("readyz check failed\n")
	}
	return out.String()
}

// dependencyLine is the state of one dependency.
func dependencyLine(s dependency.State, now time.Time) string {
	if s.Known {
		return "[+]" + s.Name + " ok"
	}
	line := fmt.Sprintf("[-]%s waiting for %s: %s", s.Name, now.Sub(s.Since).Round(time.Second), s.Reason)
	switch {
	case s.Launches:
		line += " (launches wait)"
	case !s.StandsIn.IsZero():
		line += fmt.Sprintf(" (those of %s are used; disruption waits)", s.StandsIn.UTC().Format(time.RFC3339))
	}
	return line
}
