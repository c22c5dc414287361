package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

var start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

const drifted, underutilized = karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized

// replacement is a claim, launched at a minute of the test.
func replacement(name string, minute int, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{}
	c.Name, c.UID = name, types.UID("uid-"+name)
	c.CreationTimestamp = metav1.NewTime(at(minute))
	c.Annotations = map[string]string{karpv1.AnnotationLaunchReason: string(drifted)}
	c.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a"}
	c.Status.ImageID = "ami-bad"
	condition.SetTrue(c, karpv1.ConditionLaunched, at(minute))
	for _, f := range change {
		f(c)
	}
	return c
}

func at(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }

func up(minute int) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		condition.SetTrue(c, karpv1.ConditionRegistered, at(minute))
		condition.SetTrue(c, karpv1.ConditionInitialized, at(minute))
	}
}

func deleted(minute int) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: at(minute)} }
}

func image(id string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) { c.Status.ImageID = id }
}

func without(typ string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		condition.SetUnknown(c, typ, condition.Because("LaunchFailed", ""), at(0))
	}
}

func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		claim   *karpv1.NodeClaim
		minute  int
		decided bool
		why     string
		again   int // minute, 0 for never
	}{
		{"under way", replacement("a", 0), 9, false, "", 10},
		{"late to register", replacement("a", 0), 10, true, "not registered", 0},
		{"late to register, for a known cause", replacement("a", 0, func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("NodeRoleNotMapped", ""), at(2))
		}), 10, true, "not registered (NodeRoleNotMapped)", 0},
		{"a cause is known early", replacement("a", 0, func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("BootFailed", ""), at(1))
		}), 2, false, "", 3},
		{"a cause is known, and some time has passed", replacement("a", 0, func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("BootFailed", ""), at(1))
		}), 3, true, "not registered (BootFailed)", 0},
		{"registered, late to initialize", replacement("a", 0, func(c *karpv1.NodeClaim) {
			condition.SetTrue(c, karpv1.ConditionRegistered, at(1))
			condition.SetUnknown(c, karpv1.ConditionInitialized, condition.Because("NodeNotReady", ""), at(1))
		}), 10, true, "not initialized (NodeNotReady)", 0},
		{"initialized, in its soak", replacement("a", 0, up(3)), 5, false, "", 6},
		{"came up", replacement("a", 0, up(3)), 6, true, "", 0},
		{"came up late", replacement("a", 0, up(14)), 17, true, "", 0},
		{"its instance ended before it came up", replacement("a", 0, deleted(2), func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("InstanceEnded", ""), at(1))
		}), 3, true, "not registered (InstanceEnded)", 0},
		{"given back, another of its command having failed: says nothing", replacement("a", 0, deleted(2), func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionRegistered, condition.Because("NodeNotFound", ""), at(1))
		}), 3, false, "", 0},
		{"given back when it was as good as late", replacement("a", 0, func(c *karpv1.NodeClaim) {
			c.DeletionTimestamp = &metav1.Time{Time: at(10).Add(-2 * time.Second)}
		}), 10, true, "not registered", 0},
		{"given back while it was starting up: says nothing", replacement("a", 0, deleted(2), func(c *karpv1.NodeClaim) {
			condition.SetTrue(c, karpv1.ConditionRegistered, at(1))
		}), 3, false, "", 0},
		{"no capacity: says nothing", replacement("a", 0, without(karpv1.ConditionLaunched), deleted(1)), 2, false, "", 0},
		{"launch timed out", replacement("a", 0, without(karpv1.ConditionLaunched), deleted(5)), 6, true, "not launched (LaunchFailed)", 0},
		{"taken back by spot: says nothing", replacement("a", 0, deleted(2), func(c *karpv1.NodeClaim) {
			condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("SpotInterrupted", ""), at(2))
		}), 3, false, "", 0},
		{"taken back by spot when it was late already", replacement("a", 0, deleted(12), func(c *karpv1.NodeClaim) {
			condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("SpotInterrupted", ""), at(12))
		}), 13, true, "not registered", 0},
		{"came up and is gone since", replacement("a", 0, up(3), deleted(30)), 31, true, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, decided, next := Windows{}.OutcomeOf(tt.claim, Health{}, at(tt.minute))
			if decided != tt.decided || o.Why != tt.why {
				t.Errorf("decided %v, why %q; want %v, %q", decided, o.Why, tt.decided, tt.why)
			}
			if want := (tt.again != 0); want != !next.IsZero() || want && !next.Equal(at(tt.again)) {
				t.Errorf("next look at %v, want minute %d", next, tt.again)
			}
		})
	}
}

// bookOf notes what becomes of claims c0, c1, ...: x failed, o came up. The n-th is launched in minute n and decided
// ten later.
func bookOf(outcomes string, threshold int) (*History, int) {
	b := &History{}
	b.ResetIfChanged(Cause{Pool: 1, Class: 1}, []string{"ami-bad"}, start)
	for n, c := range outcomes {
		claim := replacement(fmt.Sprint("c", n), n)
		if c == 'o' {
			up(n + 10)(claim)
		}
		o, _, _ := Windows{}.OutcomeOf(claim, Health{}, at(n+13))
		b.AddOutcome(drifted, o, threshold)
	}
	return b, len(outcomes) + 10
}

func TestWhenAReasonPauses(t *testing.T) {
	for _, tt := range []struct {
		name, outcomes string
		threshold      int
		paused         bool
	}{
		{"nothing", "", 3, false},
		{"two failures", "xx", 3, false},
		{"three failures", "xxx", 3, true},
		{"three failures among as many that came up", "oxoxox", 3, false},
		{"more failures than not", "oxoxxx", 3, true},
		{"a bad image after many good nodes", "oooooooooooooxxxxxx", 3, true},
		{"three that came up after as many failures", "xxxooo", 3, false},
		{"a threshold of one", "x", 1, true},
		{"a high threshold", strings.Repeat("x", 11), 12, false},
		{"a high threshold, reached", strings.Repeat("x", 12), 12, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, now := bookOf(tt.outcomes, tt.threshold)
			if got := b.State(drifted, nil, at(now)); (got == Open) != tt.paused {
				t.Errorf("standing %d, want paused: %v", got, tt.paused)
			}
			if got := b.State(underutilized, nil, at(now)); got != Closed {
				t.Errorf("another reason: standing %d", got)
			}
		})
	}
}

func TestTheSameOutcomeCountsOnce(t *testing.T) {
	b := &History{}
	b.ResetIfChanged(Cause{Pool: 1}, nil, start)
	late := replacement("a", 0)
	for _, minute := range []int{10, 11, 30} {
		o, _, _ := Windows{}.OutcomeOf(late, Health{}, at(minute))
		b.AddOutcome(drifted, o, 3)
	}
	deleted(15)(late)
	o, _, _ := Windows{}.OutcomeOf(late, Health{}, at(16))
	if b.AddOutcome(drifted, o, 3) || b.Reasons[drifted].failed() != 1 {
		t.Error("one claim has failed twice")
	}
	up(20)(late)
	if o, _, _ = (Windows{}).OutcomeOf(late, Health{}, at(23)); !b.AddOutcome(drifted, o, 3) || b.Reasons[drifted].failed() != 0 {
		t.Error("a claim that came up late still counts as failed")
	}
	// Nodes that came up stay for months; what is not remembered of them any more is not news either.
	old := replacement("old", 1, up(2))
	for n := range 3 * minOutcomes {
		o, _, _ := Windows{}.OutcomeOf(replacement(fmt.Sprint("n", n), 30+n, up(31+n)), Health{}, at(34+n))
		b.AddOutcome(drifted, o, 3)
	}
	if o, _, _ := (Windows{}).OutcomeOf(old, Health{}, at(200)); b.AddOutcome(drifted, o, 3) {
		t.Error("an outcome of long ago is news")
	}
}

func TestProbes(t *testing.T) {
	b, _ := bookOf("xxx", 3) // the third has failed in minute 12
	first := 12 + 15
	if got := b.State(drifted, nil, at(first-1)); got != Open {
		t.Errorf("before its time: %d", got)
	}
	if got := b.State(drifted, []time.Time{at(5)}, at(first)); got != HalfOpen {
		t.Errorf("one of the first is still under way: %d, want %d", got, HalfOpen)
	}
	if got := b.State(drifted, []time.Time{at(first)}, at(first+1)); got != Probing {
		t.Errorf("while one is tried: %d", got)
	}
	failed, _, _ := Windows{}.OutcomeOf(replacement("probe", first), Health{}, at(first+10))
	b.AddOutcome(drifted, failed, 3)
	second := first + 10 + 30
	if b.State(drifted, nil, at(second-1)) != Open || b.State(drifted, nil, at(second)) != HalfOpen {
		t.Errorf("after a probe that failed the next is due at %v", b.Reasons[drifted].Next)
	}
	for range 10 { // ever more seldom, but forever
		r := b.Reasons[drifted]
		minute := int(r.Next.Sub(start) / time.Minute)
		o, _, _ := Windows{}.OutcomeOf(replacement(fmt.Sprint("p", minute), minute), Health{}, at(minute+10))
		b.AddOutcome(drifted, o, 3)
		if wait := b.Reasons[drifted].Next.Sub(o.At.Time); wait > maxProbe {
			t.Fatalf("the next is tried after %v", wait)
		}
	}
	minute := int(b.Reasons[drifted].Next.Sub(start) / time.Minute)
	good, _, _ := Windows{}.OutcomeOf(replacement("good", minute, up(minute+2)), Health{}, at(minute+5))
	b.AddOutcome(drifted, good, 3)
	if got := b.State(drifted, nil, at(minute+3)); got != Closed {
		t.Errorf("after a probe that came up: %d", got)
	}
	for n := range 3 { // those of before do not come back
		o, _, _ := Windows{}.OutcomeOf(replacement(fmt.Sprint("c", n), n), Health{}, at(minute+4))
		if b.AddOutcome(drifted, o, 3) {
			t.Errorf("claim c%d counts again", n)
		}
	}
}

func TestWhenTheCauseIsGone(t *testing.T) {
	same := Cause{Pool: 1, Class: 1}
	for _, tt := range []struct {
		name   string
		cause  Cause
		images []string
		want   State
	}{
		{"nothing has changed", same, []string{"ami-bad", "ami-other"}, Open},
		{"pool edited", Cause{Pool: 2, Class: 1}, []string{"ami-bad"}, Closed},
		{"node class edited", Cause{Pool: 1, Class: 2}, []string{"ami-bad"}, Closed},
		{"another node class of its name", Cause{Pool: 1, Class: 1, ClassUID: "other"}, []string{"ami-bad"}, Closed},
		{"another image", same, []string{"ami-good"}, Closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, now := bookOf("xxx", 3)
			b.ResetIfChanged(tt.cause, tt.images, at(now))
			if got := b.State(drifted, nil, at(now)); got != tt.want {
				t.Fatalf("standing %d, want %d", got, tt.want)
			}
			if tt.want == Open {
				return
			}
			for n := range 3 { // what was launched for the cause before states nothing of this one
				o, _, _ := Windows{}.OutcomeOf(replacement(fmt.Sprint("late", n), now-1), Health{}, at(now+30))
				b.AddOutcome(drifted, o, 3)
			}
			if got := b.State(drifted, nil, at(now+30)); got != Closed {
				t.Errorf("claims of the former cause have paused it again")
			}
		})
	}
}

func TestWhatIsSaid(t *testing.T) {
	b := &History{}
	b.ResetIfChanged(Cause{Pool: 1}, []string{"ami-bad"}, start)
	for n, claim := range []*karpv1.NodeClaim{
		replacement("a", 0, image("ami-good"), up(2)),
		replacement("b", 1, func(c *karpv1.NodeClaim) { c.Labels[corev1.LabelTopologyZone] = "us-east-1b" }),
		replacement("c", 2),
		replacement("d", 3, func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionRegistered, at(4)) }),
	} {
		o, _, _ := Windows{}.OutcomeOf(claim, Health{}, at(20+n))
		b.AddOutcome(drifted, o, 3)
	}
	const want = "3 of the last 4 nodes launched to replace others for reason Drifted did not come up, all of image ami-bad: " +
		"1 not initialized, 2 not registered. Replacement resumes when you edit the NodePool or its EC2NodeClass, when another image is used, " +
		"or when a single node launched after 2026-03-14T12:28:00Z comes up"
	if got := b.PauseMessage(drifted); got != want {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
	if got := b.PauseMessage(underutilized); got != "" {
		t.Errorf("of a reason that does not pause: %q", got)
	}
}

func TestBooksSurvive(t *testing.T) {
	pool := &karpv1.NodePool{}
	b, now := bookOf("oxxx", 3)
	if changed, err := b.Write(pool, false); !changed || err != nil {
		t.Fatal(changed, err)
	}
	next := Read(pool)
	if next.PauseMessage(drifted) != b.PauseMessage(drifted) || next.State(drifted, nil, at(now)) != Open || next.Since != b.Since {
		t.Errorf("read back: %+v", next)
	}
	if changed, _ := next.Write(pool, false); changed {
		t.Error("what is read differs from what was written")
	}
	if size := len(pool.Annotations[karpv1.AnnotationReplacementOutcomes]); size > 4096 {
		t.Errorf("the book takes %d bytes", size)
	}
	for _, text := range []string{"", "nonsense", "null", `{"reasons":{"Drifted":null}}`, `{"reasons":[]}`} {
		pool.Annotations[karpv1.AnnotationReplacementOutcomes] = text
		b := Read(pool)
		if b.State(drifted, nil, start) != Closed {
			t.Errorf("%q holds something back", text)
		}
	}
}
