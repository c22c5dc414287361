package v1

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func poolWithExpiration(text string) *NodePool {
	p := &NodePool{}
	p.Annotations = map[string]string{AnnotationExpiration: text}
	p.Spec.Template.Spec.ExpireAfter = After(240 * time.Hour)
	return p
}

func TestExpirationNamesTheFieldThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		``:                                             "it is not JSON",
		`true`:                                         "it is not JSON",
		`{"mode":"x"}`:                                 `mode "x" is neither Forceful nor Graceful`,
		`{"lead":"1h"}`:                                `mode "" is neither`,
		`{"mode":"Graceful","leed":"1h"}`:              `unknown field "leed"`,
		`{"mode":"Graceful"} {}`:                       "more than one JSON object",
		`{"mode":"Graceful","lead":"2 days"}`:          `lead "2 days" is not a duration`,
		`{"mode":"Graceful","lead":"0s"}`:              `lead "0s" is not a duration above 0`,
		`{"mode":"Graceful","lead":"240h"}`:            `lead 240h is not shorter than expireAfter`,
		`{"mode":"Graceful","grace":"-1s"}`:            `grace "-1s" is not a duration`,
		`{"mode":"Graceful","jitter":"0.1"}`:           `jitter "0.1" is not a share`,
		`{"mode":"Graceful","jitter":"NaN%"}`:          `jitter "NaN%" is not a share`,
		`{"mode":"Graceful","jitter":"101%"}`:          `jitter "101%" is not a share`,
		`{"mode":"Graceful","budgetReason":"Expired"}`: `budgetReason "Expired" is none of`,
		`{"mode":"Graceful","lead":48}`:                "lead",
	} {
		pool := poolWithExpiration(text)
		e, err := pool.Expiration()
		if err == nil || !strings.Contains(err.Error(), want) || e != nil || pool.Graceful() != nil {
			t.Errorf("%s: %+v, error %v, want %q", text, e, err, want)
		}
	}
}

func TestExpirationDefaults(t *testing.T) {
	none := &NodePool{}
	if e, err := none.Expiration(); e != nil || err != nil || none.Graceful() != nil {
		t.Errorf("without the annotation: %+v, %v", e, err)
	}
	if e := poolWithExpiration(`{"mode":"Forceful"}`).Graceful(); e != nil {
		t.Errorf("Forceful is graceful: %+v", e)
	}
	e := poolWithExpiration(`{"mode":"Graceful"}`).Graceful()
	if e == nil || e.BudgetReason != DisruptionDrifted || e.Grace != 0 || e.Jitter != 0.1 {
		t.Fatalf("%+v", e)
	}
	for after, lead := range map[time.Duration]time.Duration{
		720 * time.Hour: 144 * time.Hour, 2 * time.Hour: time.Hour, time.Hour: 30 * time.Minute, time.Minute: 30 * time.Second,
	} {
		if got := e.leadOf(after); got != lead {
			t.Errorf("lead of %s is %s, want %s", after, got, lead)
		}
	}
	e.Lead = 48 * time.Hour
	if got := e.leadOf(24 * time.Hour); got != 24*time.Hour/5 {
		t.Errorf("a node with a shorter expireAfter than the lead has the lead %s", got)
	}
}

// Nodes of one age are spread, each over the same part of the lead at any time, and within its first half.
func TestDueIsSpreadAndStays(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const after = 100 * time.Hour
	e := &Expiration{Lead: 20 * time.Hour, Jitter: 0.05, Grace: time.Hour}
	if got, want := e.Due("a", created, after).Sub(created), 80*time.Hour+time.Duration(0.05*float64(after)*fractionOf("a")); got != want {
		t.Errorf("due after %s, want %s", got, want)
	}
	if got := fractionOf("a"); got < 0.7913 || got > 0.7914 { // SHA-256 of "a" begins with ca978112
		t.Errorf("the fraction of a is %v", got)
	}
	first, last := after, time.Duration(0)
	for i := range 1000 {
		at := e.Due(types.UID(rune(i)), created, after).Sub(created)
		first, last = min(first, at), max(last, at)
	}
	if first < 80*time.Hour || first > 80*time.Hour+time.Minute || last < 85*time.Hour-time.Minute || last >= 85*time.Hour {
		t.Errorf("due from %s to %s", first, last)
	}
	e.Jitter = 1
	for i := range 1000 {
		if at := e.Due(types.UID(rune(i)), created, after).Sub(created); at > 90*time.Hour {
			t.Fatalf("due after %s, later than half of the lead", at)
		}
	}
	if got := e.Deadline(created, after).Sub(created); got != 101*time.Hour {
		t.Errorf("deadline after %s", got)
	}
}
