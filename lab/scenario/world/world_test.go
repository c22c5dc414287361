package world

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestStateDirectoryIsForOneWorld(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile((&World{cfg: Config{Dir: dir}}).LogPath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	if !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want that %s holds a world", err, dir)
	}
}

func TestStateDirectoryIsRequired(t *testing.T) {
	if _, err := Start(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "state directory") {
		t.Errorf("got %v", err)
	}
}

// What is started before a cluster fails is stopped.
func TestFailedWorldLeavesNothing(t *testing.T) {
	var aws string
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Clusters: 2, Executable: "/nowhere/dovetail-lab", Progress: func(p Progress) {
		if p.Part == "AWS" && p.Healthy {
			aws = "up"
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/dovetail-lab") || aws != "up" {
		t.Errorf("got %v, AWS %q", err, aws)
	}
}

func TestApplyReadsManifests(t *testing.T) {
	objects, err := decode(
		[]byte(
			"# a comment\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: a\n---\nkind: NodePool\napiVersion: karpenter.sh/v1\nmetadata: {name: b}\n",
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[0].GetNamespace() != "default" || objects[1].GetNamespace() != "" {
		t.Errorf("got %v", objects)
	}
	if _, err := decode([]byte("a: [")); err == nil {
		t.Error("what is no YAML was read")
	}
}

func TestInstanceID(t *testing.T) {
	for provider, want := range map[string]string{"aws:///us-east-1a/i-0abc": "i-0abc", "": "", "i-1": "i-1"} {
		if got := InstanceID(provider); got != want {
			t.Errorf("InstanceID(%q) = %q, want %q", provider, got, want)
		}
	}
}
