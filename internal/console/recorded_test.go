package console

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// The recording removes this node after its first minute, and moves this pod.
const (
	removedNode = "/nodes/ip-10-0-32-17.ec2.internal/explain"
	movedPod    = "/pods/default/front-7d6569b58f-hqd5q/explain"
	early       = "?at=2026-11-28T19:15:50Z"
)

// recordingAlone is a console of a recording without a cluster.
func recordingAlone(t *testing.T) *Console {
	t.Helper()
	return shown(t, recording, (*Sources).ShowRecording)
}

func shown(t *testing.T, file string, show func(*Sources, *recorder.Recording) error) *Console {
	t.Helper()
	s := Sources{
		Version: "v1", Name: filepath.Base(file), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Search:    consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps},
		Decisions: func() (*recorder.Recording, error) { return recorder.Open(file) },
	}
	opened, err := recorder.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := show(&s, opened); err != nil {
		t.Fatal(err)
	}
	c := New(s)
	s.Watch(context.Background(), c.hub.receive)
	return c
}

func TestARecordingIsShownWithoutACluster(t *testing.T) {
	c := recordingAlone(t)
	about := decoded[About](t, get(c, apiRoot+"/about"))
	if want := (About{Version: "v1", Cluster: "consolidate.rec", File: true, Decisions: true, Recorded: true}); about != want {
		t.Errorf("it is %+v, want %+v", about, want)
	}
	fleet := decoded[Fleet](t, get(c, apiRoot+"/fleet"))
	spend := decoded[Spend](t, get(c, apiRoot+"/spend"))
	for spend.Read < 1 { // on a busy computer
		spend = decoded[Spend](t, get(c, apiRoot+"/spend"))
	}
	if last := spend.Points[len(spend.Points)-1]; !spend.Recorded || len(fleet.Nodes) != last.Nodes ||
		fleet.Summary.Spend.HourlyCost != last.OnDemand+last.Spot {
		t.Errorf("the fleet has %d nodes for $%f; the last point is %+v", len(fleet.Nodes), fleet.Summary.Spend.HourlyCost, last)
	}
	if fleet.Summary.Planned == nil || fleet.Summary.Spend.HourlyCost == 0 || !fleet.Link.File {
		t.Errorf("the summary is %+v", fleet.Summary)
	}
	if answer := get(c, apiRoot+removedNode); answer.Code != http.StatusNotFound {
		t.Errorf("a node that the last pass has not seen: %d %s", answer.Code, answer.Body)
	}
	if answer := get(c, apiRoot+"/doctor"); answer.Code != http.StatusNotFound {
		t.Errorf("the doctor checks a recording: %d", answer.Code)
	}
}

// What was recorded can be explained and edited like a cluster.
func TestWhatAPassSawIsExplainedLikeACluster(t *testing.T) {
	c := shown(t, recording, func(s *Sources, opened *recorder.Recording) error {
		pass, err := opened.Pass(early[len("?at="):])
		if err != nil {
			return err
		}
		return s.showPass(pass, recordedPricesOf(pass.Objects.Pools))
	})
	fleet := decoded[Fleet](t, get(c, apiRoot+"/fleet"))
	if fleet.Summary.Pods == 0 || fleet.Summary.Spend.LowerBound == nil || fleet.Summary.Spend.PlannedHourlyCost == nil {
		t.Errorf("the summary is %+v", fleet.Summary)
	}
	pools := decoded[NodePools](t, get(c, apiRoot+"/nodepools"))
	if len(pools.Names) != 1 || pools.Names[0] != "default" {
		t.Errorf("the NodePools are %v", pools.Names)
	}
	for _, path := range []string{removedNode, movedPod, "/nodepools/default/explain"} {
		if answer := get(c, apiRoot+path); answer.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	whatIf := post(c, whatIfPath, edited("default", manifestOf(t, c, "default")))
	if answer := decoded[WhatIf](t, whatIf); answer.Comparison == nil {
		t.Errorf("an edit of what was recorded: %s", whatIf.Body)
	}
}

// With a time, an explanation is of that time, whether there is a cluster or not.
func TestExplanationsAreOfTheRecordedTimeThatIsAskedFor(t *testing.T) {
	for name, c := range map[string]*Console{"a recording": recordingAlone(t), "a cluster and a recording": recordedWorld(t).console()} {
		asked, err := time.Parse(time.RFC3339, early[len("?at="):])
		if err != nil {
			t.Fatal(err)
		}
		node := decoded[nodereport.Report](t, get(c, apiRoot+removedNode+early))
		if node.InstanceType == "" || node.Now.After(asked) || asked.Sub(node.Now) > time.Minute || len(node.Pods) == 0 {
			t.Errorf("%s: the node is %+v", name, node)
		}
		pod := decoded[podreport.Report](t, get(c, apiRoot+movedPod+early))
		if pod.Node == nil || pod.Node.Name == "" {
			t.Errorf("%s: the pod is %+v", name, pod)
		}
		pool := decoded[poolreport.Report](t, get(c, apiRoot+"/nodepools/default/explain"+early))
		late := decoded[poolreport.Report](t, get(c, apiRoot+"/nodepools/default/explain?at=2026-11-28T19:17:40Z"))
		if pool.Nodes <= late.Nodes {
			t.Errorf("%s: the NodePool has %d nodes early and %d late", name, pool.Nodes, late.Nodes)
		}
		for path, status := range map[string]int{
			removedNode + "?at=": http.StatusBadRequest, removedNode + "?at=then": http.StatusBadRequest,
			removedNode + "?at=2026-11-28T19:00:00Z": http.StatusNotFound, "/nodes/nix/explain" + early: http.StatusNotFound,
			"/pods/default/nix/explain" + early: http.StatusNotFound, "/nodepools/nix/explain" + early: http.StatusNotFound,
		} {
			if answer := get(c, apiRoot+path); answer.Code != status {
				t.Errorf("%s: %s: %d %s, want %d", name, path, answer.Code, answer.Body, status)
			}
		}
	}
	if answer := get(newWorld(t).console(), apiRoot+removedNode+early); answer.Code != http.StatusNotFound {
		t.Errorf("without a recording: %d %s", answer.Code, answer.Body)
	}
}

func TestARecordingThatCannotBeReadIsNamed(t *testing.T) {
	w := newWorld(t)
	w.Decisions = func() (*recorder.Recording, error) { return recorder.Open("nowhere.rec") }
	c := w.console()
	for _, path := range []string{"/decisions", "/decisions/d-1", "/spend", "/past" + early, removedNode + early} {
		got := decoded[Problem](t, get(c, apiRoot+path))
		if got.Code != CodeUnreadable || got.Message != "open nowhere.rec: no such file or directory" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if answer := get(c, apiRoot+"/fleet"); answer.Code != http.StatusOK {
		t.Errorf("the fleet: %d %s", answer.Code, answer.Body)
	}
}

func TestACanceledRequestForThePastPlansNothing(t *testing.T) {
	c := recordingAlone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.passAt(ctx, time.Now(), func(*recorder.PassRecord) (any, error) {
		t.Error("the recording has been read")
		return nil, nil
	})
	if err == nil {
		t.Error("a canceled request has an answer")
	}
}
