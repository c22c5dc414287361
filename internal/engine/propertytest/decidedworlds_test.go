package propertytest

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/decisiontext"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// worldsPerBatch are the worlds of one line of digests.
	worldsPerBatch = 50
	// shortDigest sets how many digits each world has. They only show which worlds of a batch differ.
	shortDigest = 4
)

// writeDecisions writes the plan of a world for its pods, and what would be done to its nodes.
func writeDecisions(w io.Writer, seed uint64) {
	d := seeded(seed)
	s, budget := d.anyWorld(), d.budget()
	p := schedule.Solve(s, budget)
	decisiontext.Plan(w, &p)
	if len(s.Nodes) == 0 {
		return
	}
	// The facts about nodes come from other bytes, so that the world is the one that TestWorlds has checked.
	writeDisruption(w, seeded(seed+disruptionSeeds).disruptable(s))
}

// writeDisruption writes what each method of disruption decides, each as if it were the only one.
func writeDisruption(w io.Writer, s *snapshot.Snapshot) {
	v := disrupt.NewView(s)
	decisiontext.Blocked(w, v.BlockedNodes)
	problem := consolidate.Compile(s)
	writeRepairs(w, v, problem)
	writeEmptyNodes(w, v)
	writeDrift(w, v, problem)
	totals, _ := new(disrupt.PoolCosts).Update(v)
	found := consolidate.Find(consolidate.Input{
		Problem: problem, Snapshot: s, Candidates: v.Candidates,
		Budgets: disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
		Totals:  consolidate.PoolTotals(s, v.Candidates, totals),
	}, consolidate.Settings{MaxSteps: maxHostileSteps, SpotToSpot: len(s.Nodes)%2 == 0})
	writeFound(w, &found)
}

// writeFound writes the result of a search for consolidations.
func writeFound(w io.Writer, found *consolidate.Result) {
	for i := range found.Commands {
		decisiontext.Command(w, &found.Commands[i])
		_, _ = fmt.Fprintf(w, "explained: %s\n", strings.Join(consolidate.Explain(&found.Commands[i]), "; "))
	}
	for i := range found.Rejected {
		_, _ = fmt.Fprint(w, "declined ")
		decisiontext.Command(w, &found.Rejected[i])
	}
	decisiontext.Unconsolidatable(w, found.Unconsolidatable)
	_, _ = fmt.Fprintf(w, "over budget %v, timed out %q, unexamined %q", found.OverBudget, found.TimedOut, found.Unexamined)
	if !found.NextChange.IsZero() {
		_, _ = fmt.Fprintf(w, ", next change %s", found.NextChange.UTC().Format(time.RFC3339))
	}
	_, _ = fmt.Fprintln(w)
}

func writeEmptyNodes(w io.Writer, v *disrupt.View) {
	empty, kept := v.Empty()
	decisiontext.Blocked(w, kept)
	room := v.RemainingBudgets(disrupt.Allowances(v.Snapshot, karpv1.DisruptionEmpty))
	for _, c := range empty {
		allowed := room.Allow([]*disrupt.Candidate{c})
		_, _ = fmt.Fprintf(w, "empty %s, allowed %v\n", c.Node.Name, allowed)
		if allowed {
			room.Use([]*disrupt.Candidate{c})
		}
	}
}

func writeDrift(w io.Writer, v *disrupt.View, problem *schedule.Problem) {
	room := v.RemainingBudgets(disrupt.Allowances(v.Snapshot, karpv1.DisruptionDrifted))
	backoff := &disrupt.DriftBackoff{}
	for _, batch := range backoff.StaticDrift(v, room) {
		_, _ = fmt.Fprintf(w, "static drift of %s:", batch.Pool.Name)
		for _, c := range batch.Candidates {
			_, _ = fmt.Fprintf(w, " %s", c.Node.Name)
		}
		_, _ = fmt.Fprintln(w)
	}
	cmd, stay := replace.Drift(problem, v, replace.DriftSearch{
		Order: backoff.DriftOrder(v.Drifted(false), v.Snapshot.Now), Remaining: room, MaxRejections: 5,
		Freed: &replace.FreedSlots{View: v, Compile: schedule.Compile, Remaining: room},
	})
	if cmd != nil {
		decisiontext.Command(w, cmd)
	}
	decisiontext.Unconsolidatable(w, stay)
}

func writeRepairs(w io.Writer, v *disrupt.View, problem *schedule.Problem) {
	due, blocked := v.Unhealthy()
	decisiontext.Blocked(w, blocked)
	room := v.RemainingBudgets(disrupt.Allowances(v.Snapshot, karpv1.DisruptionUnhealthy))
	search := replace.RepairSearch{View: v, Remaining: room, Breaker: v.NewBreaker(due), Reboots: len(due)%2 == 0}
	for _, c := range due {
		cmd, held := search.Evaluate(func() *schedule.Problem { return problem }, c)
		switch {
		case cmd != nil:
			decisiontext.Command(w, cmd)
			room.Use(cmd.Candidates)
		case held.Breaker != nil:
			_, _ = fmt.Fprintf(w, "held back %s: %+v\n", c.Node.Name, *held.Breaker)
		default:
			_, _ = fmt.Fprintf(w, "held back %s: %s (simulated %v)\n", c.Node.Name, held.Message, held.Simulated)
		}
	}
}

// decidedWorlds returns the text of each world, by its number. The tests of decisions and of messages share it.
var decidedWorlds = sync.OnceValue(func() [][]byte {
	out := make([][]byte, worlds)
	var next atomic.Uint64
	var group sync.WaitGroup
	for range min(2, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for k := next.Add(1) - 1; k < worlds; k = next.Add(1) - 1 {
				out[k] = textOf(func(w io.Writer) { writeDecisions(w, k) })
			}
		})
	}
	group.Wait()
	return out
})

// Each world decides as it did: the plan for its pods, and for its nodes the commands of each method and the reasons why
// nodes stay.
func TestDecisionsOfWorlds(t *testing.T) {
	texts := decidedWorlds()
	commands := 0
	lines := make([]string, 0, worlds/worldsPerBatch)
	for first := 0; first < worlds; first += worldsPerBatch {
		batch := texts[first : first+worldsPerBatch]
		lines = append(lines, batchLine(first, batch))
		for i, text := range batch {
			commands += bytes.Count(text, []byte("\ncommand "))
			keepOrCompare(t, fmt.Sprintf("world-%04d", first+i), text)
		}
	}
	if commands < worlds/10 {
		t.Errorf("%d commands in %d worlds are too few to prove much", commands, worlds)
	}
	compareLines(t, "decisions-worlds.txt", lines, func(line int, want string) string {
		return differentWorlds(lines[line], want) + howToCompare
	})
}

// batchLine has the range of worlds, the digest of them all, and a few digits of each.
func batchLine(first int, texts [][]byte) string {
	var all bytes.Buffer
	short := make([]string, len(texts))
	for i, text := range texts {
		all.Write(text)
		short[i] = digest(text)[:shortDigest]
	}
	return fmt.Sprintf("%04d-%04d %s %s", first, first+len(texts)-1, digest(all.Bytes()), strings.Join(short, ""))
}

// differentWorlds names the worlds of two lines that differ.
func differentWorlds(got, want string) string {
	a, b := strings.Fields(got), strings.Fields(want)
	if len(a) != 3 || len(b) != 3 || a[0] != b[0] || len(a[2]) != len(b[2]) {
		return fmt.Sprintf("the line is %q, want %q", got, want)
	}
	var first int
	if _, err := fmt.Sscanf(a[0], "%d-", &first); err != nil {
		return err.Error()
	}
	var out []string
	for i := 0; i < len(a[2]); i += shortDigest {
		if a[2][i:i+shortDigest] != b[2][i:i+shortDigest] {
			out = append(out, fmt.Sprint(first+i/shortDigest))
		}
	}
	if len(out) == 0 {
		return "some world of " + a[0] + " decides otherwise than before"
	}
	return fmt.Sprintf("%d worlds decide otherwise than before: %s", len(out), strings.Join(out, ", "))
}

func TestDifferentWorldsAreNamed(t *testing.T) {
	was, is := batchLine(50, [][]byte{[]byte("a"), []byte("b"), []byte("c")}), batchLine(50, [][]byte{[]byte("a"), []byte("x"), []byte("c")})
	if got := differentWorlds(is, was); got != "1 worlds decide otherwise than before: 51" {
		t.Error(got)
	}
}
