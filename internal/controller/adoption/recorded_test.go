package adoption

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/text"
)

// recordedLoop is a loop that records. The function closes the recording and reads it.
func recordedLoop(t *testing.T, fleet *ec2) (*Loop, func() *recorder.Recording) {
	t.Helper()
	l, f := loop(t, fleet)
	path := filepath.Join(t.TempDir(), "decisions.rec")
	rec, err := recorder.New(recorder.Config{Path: path, Size: recorder.MinSize, Log: f.Log, Now: f.Now})
	if err != nil {
		t.Fatal(err)
	}
	l.Recorder = rec
	return l, func() *recorder.Recording {
		rec.Close()
		recording, err := recorder.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = recording.Close() }) // nothing was written
		return recording
	}
}

// A takeover is one decision, with a step for each instance. One that fails is tried again, and the decision finishes once it succeeds.
func TestATakeoverIsADecision(t *testing.T) {
	adoptable := func(id, claim string) cloudprovider.Instance {
		i := instance(id, cloudprovider.Adoptable, "")
		i.NodeClaim, i.ProviderID = claim, "aws:///z1/"+id
		return i
	}
	fleet := &ec2{
		instances: []cloudprovider.Instance{adoptable("i-1", "general-a"), adoptable("i-2", "general-b"), adoptable("i-3", "")},
		refused:   map[string]error{"i-2": errors.New("UnauthorizedOperation")},
	}
	l, recorded := recordedLoop(t, fleet)
	for range 3 {
		if _, err := l.pass(t.Context()); err == nil {
			t.Fatal("no error")
		}
	}
	fleet.refused = nil
	fleet.instances = append(fleet.instances, adoptable("i-4", "general-d"))
	runPass(t, l)
	runPass(t, l)
	recording := recorded()
	list, unreadable := recording.Decisions(recorder.Selection{})
	if len(list) != 2 || unreadable != 0 {
		t.Fatalf("%d decisions, %d frames cannot be read", len(list), unreadable)
	}
	var steps []string
	for _, s := range list[0].Steps {
		steps = append(steps, string(s.What)+" "+s.Object+" "+s.Message)
	}
	const want = "failed general-b aws:///z1/i-2: UnauthorizedOperation\nadopted general-a aws:///z1/i-1\n" +
		"adopted general-b aws:///z1/i-2\nadopted i-3 aws:///z1/i-3"
	if got := strings.Join(steps, "\n"); got != want {
		t.Errorf("steps:\n%s\nwant:\n%s", got, want)
	}
	for i, what := range []string{"adopt 3 instances", "adopt 1 instance"} {
		if d := list[i]; d.What != what || d.Kind != recorder.KindAdoption || d.Outcome != recorder.OutcomeDone || d.Realized != nil || d.ID == "" {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	found, err := recording.Decision(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := (text.Page{Decision: found}).Text(&page); err != nil {
		t.Fatal(err)
	}
	if got := page.String(); !strings.HasPrefix(got, "Adopt 3 instances: an earlier autoscaler launched them for nodes of this cluster\n") ||
		!strings.Contains(got, "adopted general-a") || strings.Contains(got, "Evictions") || strings.Contains(got, "Replay") {
		t.Errorf("it is printed as\n%s", got)
	}
}

// What fails for good is one decision, however many passes try it.
func TestAFailedTakeoverIsRecordedOnce(t *testing.T) {
	fleet := &ec2{instances: []cloudprovider.Instance{instance("i-1", cloudprovider.Adoptable, "")}, err: errors.New("UnauthorizedOperation")}
	l, recorded := recordedLoop(t, fleet)
	for range 5 {
		if _, err := l.pass(t.Context()); err == nil {
			t.Fatal("no error")
		}
	}
	recording := recorded()
	list, _ := recording.Decisions(recorder.Selection{})
	if len(list) != 1 || list[0].Outcome != recorder.OutcomeFailed || len(list[0].Steps) != 1 {
		t.Errorf("%+v", list)
	}
}
