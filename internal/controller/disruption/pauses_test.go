package disruption

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Anyone who reads the log sees why a rollout stands still, once, and that it goes on.
func TestAPauseIsInTheLogOnce(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var p pauses
	for _, step := range []struct {
		pool, why, want string
	}{
		{"web", "", ""},
		{"web", "2 new nodes are watched", `msg="waiting to replace more nodes" NodePool=web reason=Drifted why="2 new nodes are watched"`},
		{"web", "2 new nodes are watched", ""},
		{"batch", "2 new nodes are watched", "NodePool=batch"},
		{"web", "1 new node is watched", "1 new node is watched"},
		{"web", "", `msg="replacing nodes again" NodePool=web reason=Drifted`},
		{"web", "", ""},
		{"web", "2 new nodes are watched", "NodePool=web"},
	} {
		out.Reset()
		p.note(log, step.pool, karpv1.DisruptionDrifted, step.why)
		if got := out.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%s, %q: logged %q, want %q", step.pool, step.why, got, step.want)
		}
	}
}
