package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// arn is a name with a slash, as aws eks update-kubeconfig makes it.
const arn = "arn:aws:eks:us-east-1:111122223333:cluster/shop"

// several is a console of a cluster that is read, and of one that cannot be reached.
func several(t *testing.T) *Several {
	t.Helper()
	w := newWorld(t)
	here, away := w.Sources, w.Sources
	here.Name, away.Name = arn, "away"
	here.Watch = func(_ context.Context, send func(any)) {
		send(w.observed)
		send(top.Predicted{Forecast: w.forecast})
	}
	away.Watch = func(_ context.Context, send func(any)) {
		send(top.Observed{Link: top.Link{Name: "away", Lost: time.Unix(1, 0), LostWhy: "no route to host"}})
	}
	away.View = func(context.Context) (*inspect.View, error) { return nil, live.ErrLoading }
	away.Diagnose = func(context.Context) (doctor.Report, error) {
		t.Error("the checks are made in a cluster that cannot be reached")
		return doctor.Report{}, nil
	}
	return NewSeveral([]Sources{away, here})
}

func TestAnOverviewHasEachCluster(t *testing.T) {
	s := several(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	handler := s.Handler()
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8484"+path, nil))
		return w
	}
	var rows []Cluster
	for { // the first answers have less
		rows = decoded[Clusters](t, ask(clustersPath)).Clusters
		if len(rows) == 2 && rows[0].Link.Lost != nil && rows[1].Errors != nil {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the rows are %+v", rows)
		case <-time.After(time.Millisecond):
		}
	}
	if away := rows[0]; away.Name != "away" || away.Read || away.Link.LostWhy != "no route to host" || away.Changes != nil || away.Errors != nil {
		t.Errorf("the cluster that cannot be reached is %+v", away)
	}
	if here := rows[1]; here.Name != arn || !here.Read || here.Nodes != 2 || here.Pending != 1 || here.Stuck != 1 || here.Spend.HourlyCost <= 0 ||
		here.Changes == nil || *here.Errors != 1 || *here.Warnings != 0 {
		t.Errorf("the other is %+v", here)
	}
	below := clustersPath + "/arn:aws:eks:us-east-1:111122223333:cluster%2Fshop"
	for _, tt := range []struct {
		path   string
		status int
		want   string
	}{
		{below + "/fleet", 200, "general-b"},
		{below + "/pods/search/indexer-5d8f-bbbbb/explain", 200, "use1-az1"},
		{below + "/nix", 404, "there is no GET"},
		{clustersPath + "/nix/fleet", 404, "no cluster nix"},
		{clustersPath + "/away/nodepools", 503, "still being read"},
		{"/", 200, "Dovetail"},
	} {
		if answer := ask(tt.path); answer.Code != tt.status || !strings.Contains(answer.Body.String(), tt.want) {
			t.Errorf("%s: %d %.300s, want %d with %q", tt.path, answer.Code, answer.Body, tt.status, tt.want)
		}
	}
	stop()
	<-done
}
