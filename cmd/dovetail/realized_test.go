package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// realized is what decisions have saved, as the console and top have it.
type realized struct {
	Until                       string
	HourlySavings, TotalSavings float64
}

// The console, top and explain state the same savings of one recording.
func TestSavingsAreTheSameInEveryCommand(t *testing.T) {
	t.Setenv("KUBECONFIG", "nowhere")
	address, stop := consoleOf(t, "--recording", consolidationRecording)
	console := func(path string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(body(t, address+"api/v1/"+path)), into); err != nil {
			t.Fatal(err)
		}
	}
	var all, shown struct{ Realized realized }
	console("decisions", &all)
	if all.Realized.HourlySavings == 0 || all.Realized.TotalSavings == 0 {
		t.Fatalf("the recording saves nothing: %+v", all.Realized)
	}
	top := []string{"top", "--once", "-f", assessedFiles, "--recording", consolidationRecording}
	if got := parsed[struct{ Realized realized }](t, top...); got.Realized != all.Realized {
		t.Errorf("top: %+v, the console: %+v", got.Realized, all.Realized)
	}
	if got, want := succeed(t, top...), "saved by decisions of the day until 2026-11-28T19:18:13Z: $0.16, and $2.7330/h now\n"; !strings.Contains(got, want) {
		t.Errorf("top lacks %q:\n%s", want, got)
	}
	console("decisions/"+consolidatedAt, &shown)
	explain := []string{"explain", "decision", consolidatedAt, "--recording", consolidationRecording}
	if got := parsed[struct{ Realized realized }](t, explain...); got.Realized != shown.Realized || got.Realized.TotalSavings == 0 {
		t.Errorf("explain: %+v, the console: %+v", got.Realized, shown.Realized)
	}
	text := succeed(t, explain...)
	if text != succeed(t, "recording", "show", consolidatedAt, "-f", consolidationRecording) {
		t.Errorf("recording show prints something else than explain:\n%s", text)
	}
	if !strings.Contains(text, "Realized saving  $0.1530/h\n  Saved so far     $0.01\n") {
		t.Errorf("explain:\n%s", text)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestADecisionIsExplainedFromARecordingOnly(t *testing.T) {
	for args, want := range map[string]string{
		"explain decision x": "a decision needs --recording FILE",
		"explain decision x --recording " + consolidationRecording + " --at " + consolidatedAt: "a decision needs no --at",
		"explain decision x --recording " + consolidationRecording:                             `"x"`,
		"explain decision x --recording " + filepath.Join("testdata", "none.rec"):              "none.rec",
		"top --once -f " + assessedFiles + " --recording none.rec":                             "--recording: ",
	} {
		if _, _, err := command("", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dovetail %s: %v, want %q", args, err, want)
		}
	}
}
