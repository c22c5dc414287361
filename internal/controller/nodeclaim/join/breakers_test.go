package join

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

var (
	scopes  = []string{"nodeclass/x", "role/node"}
	untrust = cloudprovider.Finding{Cause: "EndpointUntrusted", Certainty: cloudprovider.Certain, Scope: "nodeclass/x", Message: "m"}
)

// watched are breakers with a clock of their own and a count of changes.
type watched struct {
	*Breakers
	clock   time.Time
	changes int
}

func newWatched() *watched {
	w := &watched{clock: time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)}
	w.Breakers = NewBreakers(func() time.Time { return w.clock }, func() { w.changes++ })
	return w
}

func (w *watched) held() bool {
	_, _, held := w.Held(scopes)
	return held
}

// What is neither certain nor shared keeps nobody else from being launched.
func TestWhatOpensABreaker(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*cloudprovider.Finding)
		opens  bool
	}{
		"certain and shared":    {func(*cloudprovider.Finding) {}, true},
		"likely":                {func(f *cloudprovider.Finding) { f.Certainty = cloudprovider.Likely }, false},
		"not checked":           {func(f *cloudprovider.Finding) { f.Certainty = cloudprovider.Unchecked }, false},
		"one instance's affair": {func(f *cloudprovider.Finding) { f.Scope = "" }, false},
		"checked by itself":     {func(f *cloudprovider.Finding) { f.FromConfiguration = true }, false},
		"another class's":       {func(f *cloudprovider.Finding) { f.Scope = "nodeclass/y" }, false},
	} {
		w, f := newWatched(), untrust
		tt.change(&f)
		w.Report(f)
		if w.held() != tt.opens {
			t.Errorf("%s: held %v, want %v", name, w.held(), tt.opens)
		}
	}
}

// A probe without a result, for example because its node has joined and never becomes ready, does not block the others
// forever.
func TestProbeEndsByItself(t *testing.T) {
	w := newWatched()
	w.Report(untrust)
	w.clock = w.clock.Add(firstProbe)
	if _, admitted := w.Admit(scopes, "a"); !admitted {
		t.Fatal("the probe is not admitted")
	}
	w.clock = w.clock.Add(probeTime)
	if _, admitted := w.Admit(scopes, "b"); admitted || !w.held() {
		t.Error("the next is tried at once, as if the first had not failed")
	}
	w.clock = w.clock.Add(2 * firstProbe)
	if w.held() {
		t.Error("held by a probe without a result")
	}
	if _, admitted := w.Admit(scopes, "b"); !admitted {
		t.Error("the next probe is not admitted")
	}
	if _, admitted := w.Admit(scopes, "c"); admitted {
		t.Error("two are tried at a time")
	}
}

// One instance at a time is tried, ever more seldom, until one joins.
func TestProbes(t *testing.T) {
	w := newWatched()
	w.Report(untrust)
	if _, admitted := w.Admit(scopes, "early"); admitted {
		t.Error("a claim is launched at once after the failure")
	}
	wait := time.Minute
	for _, claim := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		w.clock = w.clock.Add(wait - time.Second)
		if !w.held() {
			t.Fatalf("probe %s may launch after %v, want %v", claim, wait-time.Second, wait)
		}
		w.clock = w.clock.Add(time.Second)
		if w.held() {
			t.Fatalf("probe %s may not launch after %v", claim, wait)
		}
		if _, admitted := w.Admit(scopes, uid("probe-"+claim)); !admitted {
			t.Fatalf("probe %s is not admitted", claim)
		}
		if _, admitted := w.Admit(scopes, uid("probe-"+claim)); !admitted {
			t.Errorf("probe %s is not admitted when it tries again", claim)
		}
		if _, admitted := w.Admit(scopes, "other"); admitted || !w.held() {
			t.Errorf("beside probe %s another claim may launch", claim)
		}
		w.Failed(uid("probe-" + claim))
		w.Failed(uid("probe-" + claim)) // it stays late
		wait = min(2*wait, 30*time.Minute)
	}
	w.clock = w.clock.Add(wait)
	if _, admitted := w.Admit(scopes, "last"); !admitted {
		t.Fatal("the last probe is not admitted")
	}
	w.clock = w.clock.Add(10 * time.Second)
	changes := w.changes
	w.Joined(scopes, w.clock)
	if w.held() || len(w.Open()) > 0 || w.changes != changes+1 {
		t.Error("a probe has joined, and the breaker is still open")
	}
}

// A claim that is deleted before it has a result stops its probe.
func TestProbeThatGoes(t *testing.T) {
	w := newWatched()
	w.Report(untrust)
	w.clock = w.clock.Add(time.Minute)
	w.Admit(scopes, "a")
	w.Gone("a")
	if !w.held() {
		t.Error("the next probe follows at once")
	}
	w.clock = w.clock.Add(time.Minute)
	if _, admitted := w.Admit(scopes, "b"); !admitted {
		t.Error("a probe that is gone keeps its place")
	}
}

// A node that joined before things went wrong proves nothing.
func TestJoinedBefore(t *testing.T) {
	w := newWatched()
	w.clock = w.clock.Add(900 * time.Millisecond)
	w.Report(untrust)
	w.Joined(scopes, w.clock.Truncate(time.Second))
	if !w.held() {
		t.Error("closed by a node that joined in the second of the failure")
	}
	w.Joined(scopes, w.clock.Truncate(time.Second).Add(time.Second))
	if w.held() {
		t.Error("not closed by a node that joined after it")
	}
}

func TestTimes(t *testing.T) {
	times := NewTimes(time.Minute)
	if got := times.GracePeriod("x"); got != time.Minute {
		t.Errorf("before anything is learned: %v", got)
	}
	for i, took := range []time.Duration{40 * time.Second, 20 * time.Second} {
		times.Observe("x", uid2(i), took)
		times.Observe("x", uid2(i), 9*time.Minute) // given again
	}
	for class, want := range map[string]time.Duration{"x": 80 * time.Second, "y": time.Minute} {
		if got := times.GracePeriod(class); got != want {
			t.Errorf("class %s: %v, want %v", class, got, want)
		}
	}
	times.Observe("fast", "f", 2*time.Second)
	times.Observe("slow", "s", time.Hour)
	if fast, slow := times.GracePeriod("fast"), times.GracePeriod("slow"); fast != 30*time.Second || slow != 10*time.Minute {
		t.Errorf("bounds: %v and %v", fast, slow)
	}
	for i := range 20 {
		times.Observe("x", uid2(100+i), 15*time.Second)
	}
	if got := times.GracePeriod("x"); got != 30*time.Second {
		t.Errorf("after 20 faster ones: %v", got)
	}
}
