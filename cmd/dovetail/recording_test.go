package main

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/text"
)

// firstRecording is one of the lab: a pod gets a node, which goes with the pod.
const firstRecording = "../../internal/recorder/replay/testdata/first-node.rec"

// consolidationRecording is one of the lab, in which most nodes are removed.
const consolidationRecording = "../../internal/recorder/replay/testdata/consolidate.rec"

// expectAll fails for each text that out lacks.
func expectAll(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in:\n%s", w, out)
		}
	}
}

// succeed runs a command that must succeed.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, err := command("", args...)
	if err != nil {
		t.Fatalf("dovetail %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out
}

func decisionsOf(t *testing.T, path string) []recorder.Decision {
	t.Helper()
	return listOf(t, succeed(t, "recording", "list", "-f", path, "-o", "json")).Decisions
}

// listOf decodes what recording list prints.
func listOf(t *testing.T, text string) (out text.List) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// withFrames writes a copy of a recording, with frames behind its last one that have valid checksums.
func withFrames(t *testing.T, path string, frames ...testFrame) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for i, f := range frames {
		data = append(data, make([]byte, -len(data)&7)...)
		header := binary.LittleEndian.AppendUint32(nil, 0x52564f44)
		header = append(header, f.kind, 0, 0, 0)
		header = binary.LittleEndian.AppendUint32(header, uint32(len(f.payload)))
		header = binary.LittleEndian.AppendUint32(header, crc32.Checksum([]byte(f.payload), castagnoli)+f.off)
		header = binary.LittleEndian.AppendUint64(header, uint64(1_000_000+i))
		header = append(header, make([]byte, 16)...)
		header = binary.LittleEndian.AppendUint64(header, uint64(time.Date(2026, 11, 23, 8, 30, 0, 0, time.UTC).UnixNano()))
		header = append(header, 0, 0, 0, 0)
		header = binary.LittleEndian.AppendUint32(header, crc32.Checksum(header, castagnoli))
		data = append(append(data, header...), f.payload...)
	}
	out := filepath.Join(t.TempDir(), "more.rec")
	if err := os.WriteFile(out, append(data, make([]byte, -len(data)&7)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// testFrame is a frame of decisions (kind 3) or of steps (kind 4). Its checksum is wrong by off.
type testFrame struct {
	kind    byte
	payload string
	off     uint32
}

// Frames that no version, or only another one, can decode do not hide the others.
func TestFramesThatCannotBeReadAreLeftOutAndCounted(t *testing.T) {
	want := decisionsOf(t, firstRecording)
	path := withFrames(t, firstRecording, testFrame{3, "no compressed text", 0}, testFrame{4, "{not steps", 0}, testFrame{4, "[]", 1}, testFrame{4, "[]", 0})
	const note = "note: 3 frames of the recording cannot be read, with decisions or steps that are left out"
	for _, output := range []string{"json", "yaml", "table"} {
		out, stderr, err := command("", "recording", "list", "-f", path, "-o", output)
		if err != nil || !strings.Contains(stderr, note) {
			t.Errorf("-o %s: %v, no %q in %q", output, err, note, stderr)
		}
		expectAll(t, out, want[0].ID, want[1].ID)
		if output == "json" {
			if got := listOf(t, out); got.Unreadable != 3 || len(got.Decisions) != len(want) {
				t.Errorf("%d decisions, and %d unreadable frames", len(got.Decisions), got.Unreadable)
			}
		}
	}
	expectAll(t, succeed(t, "recording", "show", "-f", path, want[1].ID), "terminated")
	if _, _, err := command("", "recording", "show", "-f", path, "p-none"); err == nil || !strings.Contains(err.Error(), "frames that cannot be: 3") {
		t.Errorf("a decision that may be in a frame that cannot be read: %v", err)
	}
	text, failed := newAgent(t, append(ofLoneNode(t), "--recording", path)...).call(t, "decisions", nil)
	if failed || !strings.Contains(text, "3 frames of the recording cannot be read") || !strings.Contains(text, want[0].ID) {
		t.Errorf("error %v, an agent reads:\n%s", failed, text)
	}
	if _, stderr, err := command("", "recording", "list", "-f", firstRecording); err != nil || stderr != "" {
		t.Errorf("of a whole recording: %v, %s", err, stderr)
	}
}

func TestARecordingShowsWhatWasDecidedAndWhatBecameOfIt(t *testing.T) {
	decisions := decisionsOf(t, firstRecording)
	if len(decisions) != 2 {
		t.Fatalf("%d decisions", len(decisions))
	}
	expectAll(t, succeed(t, "recording", "list", "-f", firstRecording),
		"TIME", "OUTCOME", decisions[0].ID, "launch spot ", "no pod needs it, and it costs $", "done after ")
	expectAll(t, succeed(t, "recording", "show", "-f", firstRecording, decisions[0].ID),
		"the pod fits on no existing node", "Alternatives:", "chosen", "/h more", "Prices: those of the controller", "Outcome:", "registered", "initialized",
		"dovetail replay FILE --at "+decisions[0].ID)
	expectAll(t, succeed(t, "recording", "show", "-f", firstRecording, decisions[1].ID),
		"Delete node ", "Saving", "Budget", "Removes:", "deleting", "terminated")
	if _, _, err := command("", "recording", "show", "-f", firstRecording, "p-none"); err == nil || !strings.Contains(err.Error(), `"p-none"`) {
		t.Errorf("a decision that is not recorded: %v", err)
	}
}

func TestAnExportIsARecording(t *testing.T) {
	part := filepath.Join(t.TempDir(), "part.rec")
	succeed(t, "recording", "export", "-f", firstRecording, "--since", "1s", "--output-file", part)
	whole, err := os.Stat(firstRecording)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	if got.Size() > whole.Size() {
		t.Errorf("a part of %d bytes has %d bytes", whole.Size(), got.Size())
	}
	expectAll(t, succeed(t, "replay", part, "--all", "--diff"), ": 0 different")
}

func TestReplayDecidesTheSameAgain(t *testing.T) {
	expectAll(t, succeed(t, "replay", firstRecording, "--all", "--diff"), "10 calls of the engine replayed: 0 different, 9 skipped")
	d := decisionsOf(t, firstRecording)[0]
	for _, at := range []string{d.ID, d.Pass, d.At.Add(time.Millisecond).Format(time.RFC3339Nano)} {
		expectAll(t, succeed(t, "replay", firstRecording, "--at", at), d.Pass, "same", ": 0 different, 0 skipped")
	}
	// The last pass before that time decided nothing.
	expectAll(t, succeed(t, "replay", consolidationRecording, "--at", "2026-11-28T19:16:00Z"),
		"2026-11-28T19:15:49", "pass     same", "1 call of the engine replayed: 0 different")
	for _, at := range []string{"p-none", "2020-01-01T00:00:00Z", "yesterday"} {
		if _, _, err := command("", "replay", firstRecording, "--at", at); err == nil || !strings.Contains(err.Error(), at) {
			t.Errorf("--at %s: %v", at, err)
		}
	}
	if _, _, err := command("", "replay", firstRecording); codeOf(err) != exitUsage {
		t.Errorf("without --at and --all: %v", err)
	}
}

// recordedAt is the time of the pass that recorded records.
var recordedAt = time.Date(2026, 11, 2, 3, 12, 0, 0, time.UTC)

// recorded records the cluster of files, and what is decided for it.
func recorded(t *testing.T, decided func(*snapshot.Snapshot) recorder.PlanRecord, files ...string) (path string) {
	t.Helper()
	var f viewFlags
	cmd := &cobra.Command{}
	f.bind(cmd)
	f.files = files
	view, err := f.read(cmd)
	if err != nil {
		t.Fatal(err)
	}
	objects := view.Objects
	for i := range view.Snapshot.Pools {
		p := &view.Snapshot.Pools[i]
		ref := p.NodePool.Spec.Template.Spec.NodeClassRef
		objects.Pools = append(objects.Pools, cluster.Pool{
			NodePool: p.NodePool, InstanceTypes: p.InstanceTypes, NodeClassLabel: [2]string{ref.Group + "/" + strings.ToLower(ref.Kind), ref.Name},
		})
	}
	facts := cluster.Facts{Now: recordedAt, Settings: view.Snapshot.Settings, Labels: planner.Labels(), NominationWindow: nominationWindow}
	path = filepath.Join(t.TempDir(), "decisions.rec")
	r, err := recorder.New(recorder.Config{
		Path: path, Size: 16 << 20, Version: "v0.0.1", Log: slog.New(slog.DiscardHandler), Now: time.Now,
		NodeClasses: func() []*awsv1.EC2NodeClass { return slices.Collect(maps.Values(view.NodeClasses)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	snap := cluster.BuildSnapshot(objects, facts)
	r.Saw(snap, &objects, &facts)
	pass := r.Begin(recorder.Provisioning, snap, snap)
	pass.Call(recorder.CallSolve, recorder.SolveInput{}, decided(snap))
	pass.Flush()
	r.Close()
	return path
}

func planOf(s *snapshot.Snapshot) recorder.PlanRecord {
	plan := schedule.Solve(s, schedule.DefaultBudget())
	return recorder.RecordPlan(&plan)
}

func TestReplayFailsIfItDecidesOtherwise(t *testing.T) {
	same := recorded(t, planOf, examplePool, exampleShop)
	expectAll(t, succeed(t, "replay", same, "--at", recordedAt.Format(time.RFC3339)), "same", "1 call of the engine replayed: 0 different")
	other := recorded(t, func(s *snapshot.Snapshot) recorder.PlanRecord {
		out := planOf(s)
		out.Launches[0].InstanceTypes = []string{"m1.small"}
		return out
	}, examplePool, exampleShop)
	for _, flags := range [][]string{{"--all", "--diff"}, {"--at", recordedAt.Format(time.RFC3339)}} {
		out, _, err := command("", append([]string{"replay", other}, flags...)...)
		if codeOf(err) != exitError {
			t.Errorf("%q: exit code %d", flags, codeOf(err))
		}
		expectAll(t, out, "DIFFERENT", "  - ", "m1.small", "  + ", "1 different")
	}
}

// A pod is explained from a recording as from the files that the recorded pass saw, and with the same prices.
func TestAPodIsExplainedFromARecording(t *testing.T) {
	const at = "2026-01-01T00:00:00Z"
	pending := filepath.Join(t.TempDir(), "pending.yaml")
	if err := os.WriteFile(pending, []byte(pendingPod), 0o600); err != nil {
		t.Fatal(err)
	}
	path := recorded(t, planOf, examplePool, exampleShop, pending)
	explained := func(args ...string) map[string]any {
		var out map[string]any
		if err := json.Unmarshal([]byte(succeed(t, append([]string{"explain", "pod", "shop/lost", "-o", "json"}, args...)...)), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	live := explained("-f", examplePool, "-f", exampleShop, "-f", pending)
	if live["state"] != "Unschedulable" || live["change"] == nil {
		t.Fatalf("%v", live)
	}
	for _, where := range [][]string{{}, {"--at", recordedAt.Add(time.Hour).Format(time.RFC3339)}} {
		got := explained(append([]string{"--recording", path}, where...)...)
		if want := "the controller's recording of " + recordedAt.Format(time.RFC3339); got["prices"] != want {
			t.Errorf("prices of %q, want %q", got["prices"], want)
		}
		got["prices"] = live["prices"]
		if a, b := mustText(t, live), mustText(t, got); a != b {
			t.Errorf("explained from files:\n%s\nfrom the recording:\n%s", a, b)
		}
	}
	expectAll(t, succeed(t, "explain", "pod", "lost", "-n", "shop", "--recording", path), "Smallest change", "on-demnad to on-demand")
	for _, args := range [][]string{{"--recording", path, "-f", pending}, {"--at", at}, {"--recording", path, "--kubeconfig", "x"}} {
		if _, _, err := command("", append([]string{"explain", "pod", "shop/lost"}, args...)...); codeOf(err) != exitUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, _, err := command("", "explain", "pod", "shop/lost", "--recording", path, "--at", at); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("before the recording begins: %v", err)
	}
}

// pendingPod names a capacity type that does not exist.
const pendingPod = `apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: shop}
spec:
  nodeSelector: {karpenter.sh/capacity-type: on-demnad}
  containers:
  - name: lost
    image: lost
    resources: {requests: {cpu: "1"}}
`

func mustText(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
