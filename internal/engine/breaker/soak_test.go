package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func fault(since time.Time) Health {
	return Health{Fault: "Ready is Unknown (NodeStatusUnknown)", Since: since}
}

func disrupted(reason string, minute int) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because(reason, ""), at(minute))
	}
}

// The node is initialized in minute 1; its soak finishes in minute 4.
func TestJudge(t *testing.T) {
	sec := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	const ready = 60
	for _, tt := range []struct {
		name   string
		claim  *karpv1.NodeClaim
		health Health
		now    int // seconds
		stage  Stage
		after  int64
		next   int // seconds; 0 for never
	}{
		{"not up yet", replacement("a", 0), Health{}, 59, Soaking, 0, 0},
		{"deleted before it was up", replacement("a", 0, deleted(1)), Health{}, 61, Silent, 0, 0},
		{"in its soak", replacement("a", 0, up(1)), Health{Since: sec(50)}, 61, Soaking, 0, 240},
		{"a second before the end", replacement("a", 0, up(1)), Health{}, 239, Soaking, 0, 240},
		{"survived", replacement("a", 0, up(1)), Health{Since: sec(50)}, 240, Survived, 0, 0},
		{"not ready for a moment", replacement("a", 0, up(1)), fault(sec(ready + 45)), ready + 74, Soaking, 0, ready + 75},
		{"not ready", replacement("a", 0, up(1)), fault(sec(ready + 45)), ready + 75, FailedInSoak, 45, 0},
		{"not ready, looked at much later", replacement("a", 0, up(1)), fault(sec(ready + 45)), 9000, FailedInSoak, 45, 0},
		{"a fault after the soak", replacement("a", 0, up(1)), fault(sec(240)), 9000, Survived, 0, 0},
		{"ready again: the soak begins anew", replacement("a", 0, up(1)), Health{Since: sec(200)}, 300, Soaking, 0, 380},
		{"ready again, and a soak has passed", replacement("a", 0, up(1)), Health{Since: sec(200)}, 380, Survived, 0, 0},
		{"its Node is gone", replacement("a", 0, up(1)), Health{Gone: true, Fault: "its Node is gone", Since: sec(90)}, 90, FailedInSoak, 30, 0},
		{"its Node is gone, after the soak", replacement("a", 0, up(1)), Health{Gone: true, Fault: "its Node is gone", Since: sec(900)}, 900, Survived, 0, 0},
		{"consolidated", replacement("a", 0, up(1), deleted(2), disrupted("Underutilized", 2)), Health{}, 130, Silent, 0, 0},
		{"taken back by spot", replacement("a", 0, up(1), deleted(2), disrupted(karpv1.ReasonSpotInterrupted, 2)), fault(sec(125)), 130, Silent, 0, 0},
		{"deleted while not ready", replacement("a", 0, up(1), deleted(2)), fault(sec(100)), 130, FailedInSoak, 40, 0},
		{"its instance ended", replacement("a", 0, up(1), deleted(2), disrupted("InstanceTerminating", 2)), Health{}, 130, FailedInSoak, 60, 0},
		{"its instance fails its checks", replacement("a", 0, up(1), deleted(2), disrupted("InstanceUnhealthy", 2)), Health{}, 130, FailedInSoak, 60, 0},
		{"repaired", replacement("a", 0, up(1), deleted(2), disrupted("Unhealthy", 2)), Health{}, 130, FailedInSoak, 60, 0},
		{"deleted after its soak", replacement("a", 0, up(1), deleted(5)), fault(sec(310)), 400, Survived, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Windows{}.Judge(tt.claim, tt.health, sec(tt.now))
			if v.Stage != tt.stage || v.After != tt.after || v.Failed() != (tt.stage == FailedInSoak) {
				t.Errorf("stage %d after %d s, why %q; want %d, %d s", v.Stage, v.After, v.Why, tt.stage, tt.after)
			}
			if (tt.next == 0) != v.Next.IsZero() || tt.next != 0 && !v.Next.Equal(sec(tt.next)) {
				t.Errorf("next look at %v, want second %d", v.Next, tt.next)
			}
		})
	}
}

// verdictsOf returns those on claims c0, c1, ..., the n-th launched in minute n: o survived, x failed after 45 s, . soaks, p was launched
// for pods and survived. Upper case has another image.
func verdictsOf(outcomes string) []Verdict {
	var out []Verdict
	for n, c := range outcomes {
		claim, health, now := replacement(fmt.Sprint("c", n), n, up(n)), Health{}, at(n+10)
		switch strings.ToLower(string(c)) {
		case "x":
			health = fault(at(n).Add(45 * time.Second))
		case ".":
			now = at(n).Add(time.Second)
		case "p":
			delete(claim.Annotations, karpv1.AnnotationLaunchReason)
		}
		if strings.ToUpper(string(c)) == string(c) && c != '.' {
			claim.Status.ImageID = "ami-other"
		}
		out = append(out, Windows{}.Judge(claim, health, now))
	}
	return out
}

func TestNodesThatFailInTheirSoakPause(t *testing.T) {
	for _, tt := range []struct {
		name, outcomes string
		threshold      int
		image          string
	}{
		{"one failure", "x", 2, ""},
		{"two failures", "xx", 2, "ami-bad"},
		{"two failures among as many that survive", "oxox", 2, ""},
		{"more failures than not", "oxxx", 2, "ami-bad"},
		{"good nodes of another image say nothing", "OOOOOOOOxx", 2, "ami-bad"},
		{"two of a hundred", strings.Repeat("o", 98) + "xx", 2, ""},
		{"all of the last ones, after a hundred", strings.Repeat("o", 98) + "xxxxxx", 2, "ami-bad"},
		{"failures of two images", "xX", 2, ""},
		{"nodes for pods that survive", "ppxx", 2, ""},
		{"a threshold of three", "xx", 3, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &History{}
			b.AddVerdicts(verdictsOf(tt.outcomes), tt.threshold)
			image, fail := b.NewNodesFail()
			if fail != (tt.image != "") || image != tt.image {
				t.Errorf("fail %v, image %q", fail, image)
			}
			now := at(len(tt.outcomes))
			for _, reason := range []karpv1.DisruptionReason{drifted, underutilized, karpv1.DisruptionEmpty} {
				if got := b.SoakState(reason, nil, now); (got == Open) != fail {
					t.Errorf("%s: state %d", reason, got)
				}
			}
			if b.SoakState(karpv1.DisruptionUnhealthy, nil, now) != Closed {
				t.Error("unhealthy nodes are not repaired")
			}
		})
	}
}

func TestSoakProbes(t *testing.T) {
	b := &History{}
	if added := b.AddVerdicts(verdictsOf("xx"), 2); len(added) != 2 {
		t.Fatalf("added %v", added)
	}
	if added := b.AddVerdicts(verdictsOf("xx"), 2); len(added) != 0 {
		t.Errorf("added again: %v", added)
	}
	next := b.Soaks.Next.Time
	if want := at(1).Add(45*time.Second + 15*time.Minute); !next.Equal(want) {
		t.Errorf("next %v, want %v", next, want)
	}
	if b.SoakState(drifted, nil, next) != HalfOpen || b.SoakState(drifted, []time.Time{next}, next) != Probing {
		t.Error("when a probe is due")
	}
	if !b.Blocks(drifted, at(1)) || b.Blocks(drifted, next) || b.Blocks(karpv1.DisruptionUnhealthy, at(1)) {
		t.Error("commands in flight")
	}
	minute := int(next.Sub(start)/time.Minute) + 1
	probe := func(name string, minute int, h Health) Verdict {
		return Windows{}.Judge(replacement(name, minute, up(minute)), h, at(minute+5))
	}
	b.AddVerdicts([]Verdict{probe("p1", minute, fault(at(minute+1)))}, 2)
	if want := at(minute + 1 + 30); !b.Soaks.Next.Time.Equal(want) {
		t.Errorf("after a probe that failed the next is due at %v, want %v", b.Soaks.Next, want)
	}
	minute += 32
	b.AddVerdicts(append(verdictsOf("xx"), probe("p2", minute, Health{})), 2)
	if _, fail := b.NewNodesFail(); fail {
		t.Error("paused after a probe that survived")
	}
	if b.AddVerdicts(verdictsOf("xx"), 2); len(b.Soaks.Failures) > 0 {
		t.Error("failures of before count again")
	}
}

// A node that recovers counts once it has been healthy for a whole soak.
func TestNodesThatRecover(t *testing.T) {
	b := &History{}
	b.AddVerdicts(verdictsOf("xx"), 2)
	back := func(now int) []Verdict {
		out := verdictsOf("xx")
		for i := range out {
			out[i] = Windows{}.Judge(replacement(fmt.Sprint("c", i), i, up(i)), Health{Since: at(20)}, at(now))
		}
		return out
	}
	if b.AddVerdicts(back(21), 2); b.SoakState(drifted, nil, at(1)) != Open {
		t.Error("resumed as soon as they are ready again")
	}
	if b.AddVerdicts(back(23), 2); b.SoakState(drifted, nil, at(1)) != Closed {
		t.Error("still paused when they have been healthy for a soak")
	}
}

func TestAnotherImageResumesAfterSoaks(t *testing.T) {
	b := &History{}
	b.ResetIfChanged(Cause{Pool: 1}, []string{"ami-bad"}, start)
	b.AddVerdicts(verdictsOf("xx"), 2)
	if b.ResetIfChanged(Cause{Pool: 1}, []string{"ami-bad", "ami-good"}, at(5)); b.SoakState(drifted, nil, at(5)) != Open {
		t.Error("resumed while the image is still used")
	}
	if b.ResetIfChanged(Cause{Pool: 1}, []string{"ami-good"}, at(5)); b.SoakState(drifted, nil, at(5)) != Closed {
		t.Error("paused although the image is no longer used")
	}
	if b.AddVerdicts(verdictsOf("xx"), 2); b.SoakState(drifted, nil, at(5)) != Closed {
		t.Error("failures of before pause again")
	}
}

func TestFirstBatch(t *testing.T) {
	for _, tt := range []struct {
		name, outcomes string
		batch          Batch
		wait           bool
	}{
		{"nothing yet", "", Batch{Rollout: true, Size: 2}, false},
		{"one soaks", ".", Batch{Rollout: true, Size: 2}, false},
		{"two soak", "..", Batch{Rollout: true, Size: 2}, true},
		{"one soaks, one was started", ".", Batch{Rollout: true, Size: 2, Unseen: 1}, true},
		{"two were started", "", Batch{Rollout: true, Size: 2, Unseen: 2}, true},
		{"the first have survived: only budgets limit the others", "oo" + strings.Repeat(".", 20), Batch{Rollout: true, Size: 2, Unseen: 9}, false},
		{"one has survived", "o..", Batch{Rollout: true, Size: 2}, false},
		{"one has failed, one has survived", "xo..", Batch{Rollout: true, Size: 2}, true},
		{"one has failed", "x.", Batch{Rollout: true, Size: 2}, false},
		{"a node for pods has survived", "p...", Batch{Rollout: true, Size: 2}, false},
		{"a good image says nothing of another", "OO..", Batch{Rollout: true, Size: 2}, true},
		{"nothing is rolled out", "....", Batch{Size: 2}, false},
		{"turned off", "....", Batch{Rollout: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, verdicts := &History{}, verdictsOf(tt.outcomes)
			b.AddVerdicts(verdicts, 3)
			why, wait := b.FirstBatch(verdicts, tt.batch)
			if wait != tt.wait || wait != strings.Contains(why, "must stay ready for 3m0s") {
				t.Errorf("wait %v: %s", wait, why)
			}
		})
	}
}

func TestSoakMessage(t *testing.T) {
	b := &History{}
	verdicts := verdictsOf("oxxx")
	verdicts[1].After, verdicts[2].Why = 52, "KernelReady is False (Oops)"
	b.AddVerdicts(verdicts, 2)
	const want = "3 of the last 4 new nodes of NodePool general, EC2NodeClass default and image ami-bad became ready and failed 45s to 52s later: " +
		"Ready is Unknown (NodeStatusUnknown) (NodeClaim c1), KernelReady is False (Oops) (NodeClaim c2). " +
		"No healthy node is replaced by such a node, for drift, consolidation or expiration; pending pods still get nodes. " +
		"Find out why on a node that failed, then correct the EC2NodeClass or the image. Replacement resumes when you edit the NodePool or its EC2NodeClass, " +
		"when another image is used, or when a single node launched after 2026-03-14T12:18:45Z stays ready for 3m0s"
	if got := b.SoakMessage("general", "default"); got != want {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
	if got := (&History{}).SoakMessage("general", "default"); got != "" {
		t.Errorf("without failures: %s", got)
	}
}

func TestSoaksSurviveInTheAnnotation(t *testing.T) {
	pool := &karpv1.NodePool{}
	b := &History{}
	b.AddVerdicts(verdictsOf("xx"), 2)
	if changed, err := b.Write(pool, false); !changed || err != nil {
		t.Fatal(changed, err)
	}
	next := Read(pool)
	if next.SoakMessage("a", "b") != b.SoakMessage("a", "b") || next.SoakState(drifted, nil, at(2)) != Open {
		t.Errorf("read back: %+v", next.Soaks)
	}
	next.AddVerdicts(nil, 2) // the claims are gone, too
	if changed, _ := next.Write(pool, false); changed || next.SoakState(drifted, nil, at(2)) != Open {
		t.Error("forgotten with the claims")
	}
}

func TestWindowsThatAreShorterEndTheSoakAndTheWaitSooner(t *testing.T) {
	short := Windows{Soak: time.Second, LateAfter: 2 * time.Second}
	soaking := replacement("a", 0, up(1))
	if v := short.Judge(soaking, Health{}, at(1).Add(time.Second)); v.Stage != Survived {
		t.Errorf("a second after it became ready, a node with a soak of one is %+v", v)
	}
	if v := (Windows{}).Judge(soaking, Health{}, at(1).Add(time.Second)); v.Stage != Soaking {
		t.Errorf("a second after it became ready, a node is %+v", v)
	}
	late := replacement("b", 0, func(c *karpv1.NodeClaim) {
		condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("BootFailed", ""), at(0))
	})
	for windows, want := range map[Windows]bool{short: true, {}: false} {
		if _, decided, _ := windows.OutcomeOf(late, Health{}, at(0).Add(2*time.Second)); decided != want {
			t.Errorf("two seconds after its creation, with %+v: decided is %t, want %t", windows, decided, want)
		}
	}
}
