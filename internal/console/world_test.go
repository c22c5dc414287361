package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// offered is a catalog of the types of the test's cluster.
type offered []*catalog.InstanceType

// Types implements planner.Catalog.
func (t offered) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return t, nil }

// viewOf is the cluster of testdata: two nodes, one of them drifted, and a pending pod with a zone that is misspelled.
func viewOf(t testing.TB) *inspect.View {
	t.Helper()
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return viewOfText(t, string(text))
}

// viewOfText is a cluster of manifests.
func viewOfText(t testing.TB, text string) *inspect.View {
	t.Helper()
	list, err := workload.EC2Types("us-east-1", "spot", "on-demand")
	if err != nil {
		t.Fatal(err)
	}
	view, err := inspect.Files(manifest.Input{Paths: []string{"-"}, Stdin: strings.NewReader(text), MaxBytes: 1 << 20}, inspect.Config{
		Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
			return inspect.Prices{Catalog: offered(list), From: "a test"}, nil
		},
		Settings: snapshot.Settings{}, NominationWindow: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// world is a console of a cluster from files. A test replaces parts of it.
type world struct {
	Sources
	view     *inspect.View
	observed top.Observed
	forecast *top.Forecast
}

func newWorld(t testing.TB) *world {
	t.Helper()
	view := viewOf(t)
	observed, forecast, err := live.FromFile(view, "shop")
	if err != nil {
		t.Fatal(err)
	}
	now := view.Now
	return &world{view: view, observed: observed, forecast: forecast, Sources: Sources{
		Version: "v1", Name: "shop", Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		View:     func(context.Context) (*inspect.View, error) { return view, nil },
		Revision: func() int { return 1 },
		Diagnose: func(context.Context) (doctor.Report, error) {
			return doctor.Report{Checks: 3, Findings: []doctor.Finding{{Check: "c", Severity: doctor.Error}}, NotChecked: []doctor.NotChecked{}}, nil
		},
	}}
}

// console is the console of the world, which has received the state.
func (w *world) console() *Console {
	c := New(w.Sources)
	c.hub.receive(w.observed)
	c.hub.receive(top.Predicted{Forecast: w.forecast})
	return c
}

// get is the answer to a request of the page.
func get(c *Console, path string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8484"+path, nil)
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return w
}

var errAway = errors.New("dial tcp 10.0.0.1:443: connection refused")
