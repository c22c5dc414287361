package scripttest_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/engine/scripttest"
)

var update = flag.Bool("update", false, "write the plans into the scripts; commit only what you understand")

func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := scripttest.Run(path, string(text))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(got, "\n"); n > 60 {
				t.Errorf("the script has %d lines: more than a screen", n)
			}
			if got == string(text) {
				return
			}
			if !*update {
				t.Fatalf("want -, got +; go test ./internal/engine/scripttest -update writes it\n%s", cmp.Diff(string(text), got))
			}
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestErrorsSayWhatIsExpected checks that an error reports the author of a script what to write.
func TestErrorsSayWhatIsExpected(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{
			"# hello\n\npodd web",
			`s.txt:3: "podd" is not a command; expected plan, pass or one of at, changed, daemon, delete, done, failed, limit, node, pdb, pod, pool, refused, restart, set, type, unavailable, volume, zones`,
		},
		{"pod", `s.txt:1: pod: expected a name after "pod"`},
		{"pod web xmany", `s.txt:1: pod: expected a number, not "many"`},
		{
			"pod web cpus=1",
			`s.txt:1: pod: "cpus=1" is not known here; expected one of keep, affinity=..., anti-affinity=..., arch=..., capacity=..., cpu=..., `,
		},
		{"pod web cpu=much", `s.txt:1: pod: cpu: expected a quantity such as 500m or 2Gi, not "much"`},
		{"pod web cpu=", "s.txt:1: pod: cpu has no value"},
		{"pod web spread=zone", `s.txt:1: pod: spread: expected LABEL/SKEW, as in zone/1, with /MINDOMAINS, /taints or /all-nodes behind, not "zone"`},
		{"pod web affinity=zone", `s.txt:1: pod: affinity: expected LABEL/APP, as in zone/web, not "zone"`},
		{"pod web on=n1", `s.txt:1: pod: on: there is no node "n1" so far`},
		{
			"pool p taint=x",
			`s.txt:1: pool: taint: expected KEY:EFFECT or KEY=VALUE:EFFECT, with one of the effects [NoSchedule PreferNoSchedule NoExecute], not "x"`,
		},
		{"pool p weight=heavy", `s.txt:1: pool: weight: expected a number, not "heavy"`},
		{"type t cpu=1 mem=1Gi", "s.txt:1: type: expected price=... in $/h"},
		{"type t cpu=1 mem=1Gi price=cheap", `s.txt:1: type: price: expected a price in $/h, not "cheap"`},
		{"node n type=x", `s.txt:1: there is no type "x" so far`},
		{"unavailable m.small capacity=free", `s.txt:1: unavailable: capacity: expected one of spot, on-demand, not "free"`},
		{"volume v class=fast", `s.txt:1: volume: class: expected one of wait, now, not "fast"`},
		{"set preferences=perhaps", `s.txt:1: set: preferences: expected one of respect, ignore, priced, not "perhaps"`},
		{"delete n", `s.txt:1: there is no node "n" so far`},
		{"at soon", `s.txt:1: at: expected a duration such as 15s or 2h, not "soon"`},
		{"at 1m\nat 5s", "s.txt:2: at: 5s has passed already"},
		{"done c1", "s.txt:1: done: c1 has not started, or has ended"},
		{"pass sleep", `s.txt:1: work "sleep" is not known`},
		{"limit p", `s.txt:1: limit: expected a name after "limit"`},
		{"plan now", `s.txt:1: plan takes no arguments, not "now"`},
	} {
		if _, err := scripttest.Run("s.txt", tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
}
