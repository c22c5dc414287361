package console

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// A new decision is reported to the pages that are open, once, and within two seconds; a pass that decides nothing is not.
func TestAStreamStatesThatTheRecordingHasOtherDecisions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.rec")
	write := func(from string, at time.Time) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(file, data, 0o644)
		}
		if err == nil {
			err = os.Chtimes(file, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	write(firstNode, began)
	w := newWorld(t)
	w.Sources.Decisions = func() (*recorder.Recording, error) { return recorder.Open(file) }
	w.Written = func() (time.Time, error) { return recorder.Written(file) }
	c := w.console()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.hub.close()
	stream := open(t, server.URL)
	if name, _ := stream.next(t); name != "fleet" {
		t.Fatalf("the first event is %s", name)
	}
	go c.followRecording(t.Context())
	next := func() uint64 {
		t.Helper()
		name, data := stream.next(t)
		var out Recorded
		if err := json.Unmarshal([]byte(data), &out); err != nil || name != "recorded" || out.Recorded == 0 {
			t.Fatalf("%s %s: %v", name, data, err)
		}
		return out.Recorded
	}
	first := next()
	late := open(t, server.URL)
	late.next(t)
	if name, _ := late.next(t); name != "recorded" {
		t.Errorf("a page that is opened later gets %s after the fleet", name)
	}
	if listed := decoded[Decisions](t, get(c, apiRoot+"/decisions")); listed.Recorded != first {
		t.Errorf("the list goes to %d, the event to %d", listed.Recorded, first)
	}
	write(firstNode, began.Add(time.Second)) // a write without another decision
	write(recording, began.Add(2*time.Second))
	changed := time.Now()
	if again := next(); again == first {
		t.Errorf("both recordings have decision %d last", first)
	}
	if took := time.Since(changed); took > followInterval+2*time.Second {
		t.Errorf("it took %s", took)
	}
}
