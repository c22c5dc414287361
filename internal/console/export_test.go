package console

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// firstNode is a recording of a few seconds, in which a pod gets a node.
var firstNode = filepath.Join(filepath.Dir(recording), "first-node.rec")

// packIn reads a file of answers.
func packIn(t *testing.T, dir, name string) map[string]json.RawMessage {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, exportData, name+".pack"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]json.RawMessage
	if err := json.NewDecoder(text).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// An export answers what the server would.
func TestAnExportHasTheAnswersOfTheServer(t *testing.T) {
	dir := t.TempDir()
	info, err := shown(t, firstNode, (*Sources).ShowRecording).Export(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	mark := `<meta name="dovetail-export" content="data/">`
	if err != nil || !strings.Contains(string(page), mark) || strings.Contains(string(page), `="/`) {
		t.Errorf("the page has no relative paths, or no mark of an export: %s (%v)", page, err)
	}
	c := shown(t, firstNode, (*Sources).ShowRecording)
	present := packIn(t, dir, "present")
	for _, path := range []string{"/about", "/fleet", "/pending", "/nodepools", "/decisions", "/spend", "/assessment"} {
		if got, want := string(present[path]), strings.TrimSpace(get(c, apiRoot+path).Body.String()); got != want {
			t.Errorf("%s:\n%s\nof the server:\n%s", path, got, want)
		}
	}
	for _, d := range decoded[Decisions](t, get(c, apiRoot+"/decisions")).Decisions {
		if len(present["/decisions/"+d.ID]) == 0 {
			t.Errorf("decision %s has no answer", d.ID)
		}
	}
	var moments []moment
	if err := json.Unmarshal(present["/moments"], &moments); err != nil || len(moments) != info.Passes {
		t.Fatalf("%d moments of %d passes (%v)", len(moments), info.Passes, err)
	}
	for _, m := range moments {
		if m.Pack < 0 || m.Pack >= info.Packs-1 {
			t.Fatalf("pass %s is in pack %d of %d", m.Pass, m.Pack, info.Packs-1)
		}
	}
	// A pass that decided something is explained as of its own time.
	first := moments[len(moments)/2]
	for _, m := range moments {
		if m.Pack == first.Pack {
			first = m
			break
		}
	}
	explained := 0
	for path, answer := range packIn(t, dir, strconv.Itoa(first.Pack)) {
		if !strings.HasSuffix(path, "/explain") {
			continue
		}
		explained++
		got := get(c, apiRoot+path+"?at="+first.At.Format("2006-01-02T15:04:05.999999999Z07:00"))
		if got.Code != http.StatusOK || strings.TrimSpace(got.Body.String()) != string(answer) {
			t.Errorf("%s:\n%s\nof the server, %d:\n%s", path, answer, got.Code, got.Body)
		}
	}
	if explained < 2 {
		t.Errorf("%d objects are explained", explained)
	}
}

func TestOnlyARecordingIsExported(t *testing.T) {
	c := shown(t, firstNode, func(s *Sources, r *recorder.Recording) error {
		err := s.ShowRecording(r)
		s.Recorded = false
		return err
	})
	if _, err := c.Export(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "only a recording") {
		t.Errorf("the error is %v", err)
	}
}
