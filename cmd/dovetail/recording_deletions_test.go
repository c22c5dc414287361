package main

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/text"
)

func TestRecordingDeletions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.rec")
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	r, err := recorder.New(recorder.Config{Path: path, Size: 16 << 20, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	claim := destroy.Record{
		At: at, Verb: destroy.DeleteNodeClaim, NodePool: "general", Kind: destroy.Planned, Reason: "Drifted", Decision: "d-1",
		Object:   destroy.Object{Kind: "NodeClaim", Name: "general-x7k2p", UID: "uid-1", ResourceVersion: "42"},
		Instance: destroy.Instance{ProviderID: "aws:///us-east-1a/i-1", State: "running", Owner: "ours", NodeClaimUID: "uid-1"},
	}
	pod := destroy.Record{
		At: at.Add(2 * time.Hour), Verb: destroy.EvictPod, Kind: destroy.Requested, Reason: "deleted by a person",
		Object: destroy.Object{Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "uid-2", ResourceVersion: "43"},
	}
	r.Deletion(claim)
	r.Deletion(pod)
	r.Close()

	out := succeed(t, "recording", "deletions", "-f", path)
	expectAll(t, out, "2026-03-14T12:00:00Z", "DeleteNodeClaim", "general-x7k2p", "Drifted", "d-1", "aws:///us-east-1a/i-1 (running)", "shop/web-0")
	var list text.Deletions
	if err := json.Unmarshal([]byte(succeed(t, "recording", "deletions", "-f", path, "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Deletions) != 2 || list.Deletions[0] != claim || list.Deletions[1] != pod || list.Unreadable != 0 {
		t.Errorf("read back: %+v", list)
	}
	if out := succeed(t, "recording", "deletions", "-f", firstRecording); out != "no deletions\n" {
		t.Errorf("of a recording without deletions: %q", out)
	}
}
