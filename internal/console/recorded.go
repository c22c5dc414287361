package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// ShowRecording makes s show what the last pass of a recording saw, like a snapshot of then, with what the engine would do now.
func (s *Sources) ShowRecording(recording *recorder.Recording) error {
	last, err := recording.Pass("")
	if err != nil {
		return err
	}
	prices, err := lastPrices(recording, last)
	if err != nil {
		return err
	}
	return s.showPass(last, prices)
}

// pricesBack sets how far back prices are looked for: a cluster without a NodePool that can launch has none.
const pricesBack = time.Hour

// lastPrices returns those of a pass, or of the last one before it that has some.
func lastPrices(recording *recorder.Recording, last *recorder.PassRecord) (*fleet.Prices, error) {
	found := last.Objects.Pools
	if !canLaunch(found) {
		err := recording.Passes(recorder.Range{From: last.Facts.Now.Add(-pricesBack)}, func(p *recorder.PassRecord) error {
			if canLaunch(p.Objects.Pools) {
				found = p.Objects.Pools
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return recordedPricesOf(found), nil
}

// recordedPricesOf are the prices of what NodePools could launch.
func recordedPricesOf(pools []cluster.Pool) *fleet.Prices {
	source := fleet.Source{From: recordedPrices}
	for i := range pools {
		source.Pools = append(source.Pools, snapshot.Pool{NodePool: pools[i].NodePool, InstanceTypes: pools[i].InstanceTypes})
	}
	return fleet.PricesOf(source)
}

// canLaunch reports whether a pass has prices: those of what its NodePools can launch.
func canLaunch(pools []cluster.Pool) bool {
	return slices.ContainsFunc(pools, func(pool cluster.Pool) bool { return len(pool.InstanceTypes) > 0 })
}

func (s *Sources) showPass(p *recorder.PassRecord, prices *fleet.Prices) error {
	view := recordedView(p, s.Search)
	forecast, err := top.Predict(view)
	if err != nil {
		return err
	}
	observed := top.Observed{Fleet: observe(p, prices), Prices: prices.From, Link: top.Link{Name: s.Name, File: true}}
	s.File, s.Recorded = true, true
	s.View = func(context.Context) (*inspect.View, error) { return view, nil }
	s.Revision = func() int { return 0 }
	s.Watch = func(_ context.Context, send func(any)) {
		send(observed)
		send(top.Predicted{Forecast: forecast})
	}
	return nil
}

// recordedPrices states where the prices of a pass come from.
const recordedPrices = "the recording"

// recordedView is the cluster as a pass saw it.
func recordedView(p *recorder.PassRecord, search consolidate.Settings) *inspect.View {
	view := inspect.Recorded(p.Objects, p.NodeClasses, snapshotOf(p))
	view.Search, view.NominationWindow = search, p.Facts.NominationWindow
	return view
}

// observe is the fleet as a pass saw it.
func observe(p *recorder.PassRecord, prices *fleet.Prices) *top.Fleet {
	return top.Observe(top.Objects{
		Now: p.Facts.Now, Nodes: p.Objects.Nodes, Claims: p.Objects.NodeClaims, Pods: top.PodsOf(p.Objects.Pods), Prices: prices,
	})
}

// atParameter selects a recorded time for an explanation.
var atParameter = parameter{"at", "a recorded time (RFC 3339), for what the last pass before it saw; default: now", false}

// timeOf is the time of the parameter "at". An empty one is invalid.
func timeOf(r *http.Request) (time.Time, error) {
	asked := r.URL.Query().Get(atParameter.Name)
	at, err := time.Parse(time.RFC3339, asked)
	if err != nil {
		return time.Time{}, invalid(atParameter.Name, `"`+asked+`" is not a time such as 2026-11-02T03:12:00Z`)
	}
	return at, nil
}

// explained is an explanation of the cluster as it is, or as the last pass before the time of the request saw it. Of the past, nothing
// is kept: it does not change, so the page queries once.
func (c *Console) explained(r *http.Request, key string, explain func(*planned) (any, error)) (any, error) {
	if !r.URL.Query().Has(atParameter.Name) {
		return c.views.explain(r.Context(), key, explain)
	}
	at, err := timeOf(r)
	if err != nil {
		return nil, err
	}
	return c.passAt(r.Context(), at, func(p *recorder.PassRecord) (any, error) {
		return explain(&planned{View: recordedView(p, c.Search)})
	})
}

// passAt puts a question on the last pass before a time. Requests for the past take turns: each decodes a part of the recording.
func (c *Console) passAt(ctx context.Context, at time.Time, ask func(*recorder.PassRecord) (any, error)) (any, error) {
	end, err := c.reading.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return c.recording(func(recording *recorder.Recording) (any, error) {
		pass, err := recording.Pass(at.Format(time.RFC3339Nano))
		if err != nil {
			return nil, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: err.Error()}
		}
		return ask(pass)
	})
}
