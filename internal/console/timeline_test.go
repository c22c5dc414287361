package console

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// recording is one of the lab, in which consolidation removes most nodes within five minutes.
var recording = filepath.Join("..", "recorder", "replay", "testdata", "consolidate.rec")

func recordedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Decisions = func() (*recorder.Recording, error) { return recorder.Open(recording) }
	return w
}

func TestSpendOfARecordingHasAPointForEachMinute(t *testing.T) {
	spend := decoded[Spend](t, get(recordedWorld(t).console(), apiRoot+"/spend"))
	if !spend.Recorded || spend.Read != 1 || len(spend.Points) != 7 {
		t.Fatalf("the spend is %+v", spend)
	}
	bounds := 0
	if first := spend.Points[0]; first.Nodes != 0 || first.OnDemand != 0 || first.Pending == nil || *first.Pending == 0 {
		t.Errorf("the first point is %+v, want one of pods that wait for nodes", first)
	}
	spend.Points = spend.Points[1:]
	for i, p := range spend.Points {
		if i > 0 && (p.OnDemand > spend.Points[i-1].OnDemand || p.At.Sub(spend.Points[i-1].At) > 2*time.Minute) {
			t.Errorf("consolidation costs more, or a minute is missing: %+v after %+v", p, spend.Points[i-1])
		}
		if p.Nodes == 0 || p.OnDemand <= 0 || p.Pending == nil {
			t.Errorf("a point is %+v", p)
		}
		if p.LowerBound != nil {
			bounds++
			if *p.LowerBound > p.Reserved+p.OnDemand+p.Spot {
				t.Errorf("the bound is above the cost: %+v", p)
			}
		}
	}
	if bounds == 0 {
		t.Error("no lower bound is known")
	}
}

// A request reads for a limited time, and the next one goes on where it has stopped.
func TestSpendOfALongRecordingIsReadInParts(t *testing.T) {
	w := recordedWorld(t)
	now := w.Now()
	w.Now = func() time.Time { now = now.Add(spendTime / 20); return now }
	c := w.console()
	var last Spend
	requests := 0
	for last.Read < 1 && requests < 100 {
		before := last
		last = decoded[Spend](t, get(c, apiRoot+"/spend"))
		if requests++; len(last.Points) < len(before.Points) || last.Read < before.Read {
			t.Fatalf("after %d points, there are %d", len(before.Points), len(last.Points))
		}
	}
	whole := decoded[Spend](t, get(recordedWorld(t).console(), apiRoot+"/spend"))
	if requests < 2 || len(last.Points) != len(whole.Points) || last.Read != 1 {
		t.Errorf("%d points after %d requests, want %d", len(last.Points), requests, len(whole.Points))
	}
}

func TestTheFleetOfARecordedMinuteIsThatOfThePassBeforeIt(t *testing.T) {
	c := recordedWorld(t).console()
	early := decoded[Past](t, get(c, apiRoot+"/past?at=2026-11-28T19:13:50Z"))
	late := decoded[Past](t, get(c, apiRoot+"/past?at=2026-11-28T19:17:00Z"))
	if len(early.Fleet.Nodes) <= len(late.Fleet.Nodes) || early.Seen.After(early.Asked) || late.Seen.Before(early.Seen) {
		t.Errorf("%d nodes at %s, %d at %s", len(early.Fleet.Nodes), early.Seen, len(late.Fleet.Nodes), late.Seen)
	}
	if early.Fleet.Summary.Spend.HourlyCost <= 0 || early.Pass == "" || early.Fleet.Summary.Pods == 0 {
		t.Errorf("the fleet is %+v of pass %q", early.Fleet.Summary, early.Pass)
	}
	for path, status := range map[string]int{
		"/past?at=now": http.StatusBadRequest, "/past": http.StatusBadRequest, "/past?at=2026-11-28T19:00:00Z": http.StatusNotFound,
	} {
		if answer := get(c, apiRoot+path); answer.Code != status {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	if answer := get(newWorld(t).console(), apiRoot+"/past?at=2026-11-28T19:13:50Z"); answer.Code != http.StatusNotFound {
		t.Errorf("without a recording: %d", answer.Code)
	}
}

func TestACanceledRequestDoesNotReadTheRecording(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := recordedWorld(t)
	c := w.console()
	get(c, apiRoot+"/spend", func(r *http.Request) { *r = *r.WithContext(ctx) })
	if len(c.recorded.points) > 0 {
		t.Errorf("%d points have been read", len(c.recorded.points))
	}
}

func TestSpendIsObservedOnceAMinuteForADay(t *testing.T) {
	w := newWorld(t)
	c := w.console()
	at := w.Now().Truncate(time.Minute)
	for i := range 2*spendMinutes + 1 {
		c.hub.last.Link.File = false
		c.hub.sample(at.Add(time.Duration(i) * 30 * time.Second))
	}
	points := decoded[Spend](t, get(c, apiRoot+"/spend")).Points
	if len(points) != spendMinutes || points[1].At.Sub(points[0].At) != time.Minute || points[0].Nodes != 2 || points[0].OnDemand <= 0 {
		t.Fatalf("%d points, from %+v", len(points), points[:1])
	}
	lost := w.observed
	lost.Link.File, lost.Link.Lost = false, at
	c.hub.receive(top.Observed{Link: lost.Link})
	c.hub.sample(at.Add(2 * spendMinutes * time.Minute))
	if now := decoded[Spend](t, get(c, apiRoot+"/spend")).Points; !now[len(now)-1].At.Equal(points[len(points)-1].At) {
		t.Errorf("while the API server is away, there is a point at %s", now[len(now)-1].At)
	}
}
