package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// post is the answer to a request of the page with a body.
func post(c *Console, path, body string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8484"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return w
}

func manifestOf(t testing.TB, c *Console, pool string) string {
	t.Helper()
	return decoded[NodePoolManifest](t, get(c, apiRoot+"/nodepools/"+pool+"/manifest")).Manifest
}

func edited(pool, text string) string {
	data, _ := json.Marshal(WhatIfRequest{NodePool: pool, Manifest: text}) // plain strings
	return string(data)
}

func TestAManifestToEditIsWhatTheClusterHas(t *testing.T) {
	c := newWorld(t).console()
	text := manifestOf(t, c, "general")
	pool, faults, err := manifest.NewNodePoolReader().Read([]byte(text))
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v %v in %s", faults, err, text)
	}
	if !reflect.DeepEqual(pool.Spec.Template, newWorld(t).view.NodePools[0].Spec.Template) ||
		strings.Contains(text, "status") || strings.Contains(text, "uid") {
		t.Errorf("the manifest is %s", text)
	}
	if answer := get(c, apiRoot+"/nodepools/nix/manifest"); answer.Code != http.StatusNotFound {
		t.Errorf("a NodePool that does not exist: %d", answer.Code)
	}
}

func TestAnEditIsComparedWithTheClusterWithoutIt(t *testing.T) {
	c := newWorld(t).console()
	text := manifestOf(t, c, "general")
	same := decoded[WhatIf](t, post(c, whatIfPath, edited("general", text))).Comparison
	if same == nil || len(same.Drift) != 0 || same.After.HourlyCost != same.Before.HourlyCost || same.Now.HourlyCost <= 0 {
		t.Fatalf("without an edit: %+v", same)
	}
	sooner := strings.Replace(text, "720h", "24h", 1)
	other := decoded[WhatIf](t, post(c, whatIfPath, edited("general", sooner))).Comparison
	if other == nil || len(other.Drift) != 1 || other.Drift[0].Nodes == 0 ||
		other.Drift[0].Fields[0].Field != "spec.template.spec.expireAfter" ||
		!strings.Contains(other.Drift[0].Fields[0].New, "24h") && !strings.Contains(other.Drift[0].Fields[0].New, "1d") {
		t.Errorf("another expireAfter: %+v", other)
	}
	amd := decoded[WhatIf](t, post(c, whatIfPath, edited("general", strings.Replace(text, "arm64", "amd64", 1)))).Comparison
	if amd == nil || len(amd.Drift) == 0 || amd.Drift[0].Reason != "RequirementsDrifted" || amd.After.HourlyCost == amd.Before.HourlyCost {
		t.Errorf("another architecture: %+v", amd)
	}
}

// An edit of budgets alone, or of nothing, takes no plan of its own. An annotation, which no plan reads either, takes one: the numbers are
// the same, and so are those of a Baseline that is computed at the same time as the edit and of one that is known.
func TestAnEditThatNoPlanDependsOnHasTheNumbersOfItsOwnPlan(t *testing.T) {
	c := fleetConsole(t, 40)
	text := manifestOf(t, c, "general")
	annotated := func(text string) string {
		return strings.Replace(text, "metadata:", "metadata:\n  annotations: {a: b}", 1)
	}
	compared := func(text string) *assess.Comparison {
		found := decoded[WhatIf](t, post(c, whatIfPath, edited("general", text))).Comparison
		if found == nil {
			t.Fatalf("no comparison for %s", text)
		}
		return found
	}
	budgets := strings.Replace(text, "nodes: 10%", `nodes: "0"`, 1)
	if budgets == text {
		t.Fatalf("no budget to edit in %s", text)
	}
	for name, edit := range map[string]string{"nothing": text, "budgets": budgets} {
		c.whatIfs.forget()
		planned := compared(annotated(edit)) // at the same time as the Baseline
		again := compared(annotated(edit))
		shared := compared(edit)
		c.whatIfs.forget()
		first := compared(edit)
		for other, found := range map[string]*assess.Comparison{"a known Baseline": again, "no plan": shared, "no plan, as the first edit": first} {
			if !reflect.DeepEqual(planned, found) {
				t.Errorf("%s, %s: %+v, planned: %+v", name, other, found, planned)
			}
		}
		if planned.After.Steps == 0 || planned.Budget == nil {
			t.Errorf("%s: the cluster goes nowhere: %+v", name, planned)
		}
	}
}

func TestPodsThatAnEditLeavesWithoutANodeAreNamed(t *testing.T) {
	c := newWorld(t).console()
	text := strings.Replace(manifestOf(t, c, "general"), "arm64", "sparc", 1)
	found := decoded[WhatIf](t, post(c, whatIfPath, edited("general", text))).Comparison
	if found == nil || len(found.Drift) == 0 {
		t.Fatalf("%+v", found)
	}
	kept := found.After.Kept
	if len(kept) == 0 || !strings.Contains(kept[0].Why, "web-7c9f6d5b4-aaaaa") {
		t.Errorf("nodes that cannot be replaced are %+v, pods without a node %+v", kept, found.After.Stuck)
	}
}

func TestAnEditThatTheClusterWouldNotTakeHasFaults(t *testing.T) {
	c := newWorld(t).console()
	text := manifestOf(t, c, "general")
	for _, tt := range []struct{ name, text, field string }{
		{"an operator that does not exist", strings.Replace(text, "operator: In", "operator: Im", 1), "spec.template.spec.requirements[0].operator"},
		{"another name", strings.Replace(text, "name: general", "name: other", 1), "metadata.name"},
		{"another kind", strings.Replace(text, "kind: NodePool", "kind: Pod", 1), "kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decoded[WhatIf](t, post(c, whatIfPath, edited("general", tt.text)))
			if len(got.Faults) == 0 || got.Faults[0].Field != tt.field || got.Faults[0].Line == 0 || got.Comparison != nil {
				t.Errorf("the answer is %+v", got)
			}
		})
	}
}

func TestRequestsForAnEditAreBounded(t *testing.T) {
	crossSite := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	plain := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
	c := newWorld(t).console()
	text := manifestOf(t, c, "general")
	for _, tt := range []struct {
		name, body string
		edit       func(*http.Request)
		status     int
	}{
		{"too large", edited("general", strings.Repeat("a", maxRequestBytes)), nil, 413},
		{"a large manifest", edited("general", strings.Repeat("#", manifest.MaxNodePoolBytes+1)), nil, 200},
		{"no JSON", "nodePool: general", nil, 400},
		{"another type", "[1]", nil, 400},
		{"a form of another site", edited("general", text), crossSite, 403},
		{"what a form can send", edited("general", text), plain, 415},
		{"a NodePool that does not exist", edited("other", strings.Replace(text, "name: general", "name: other", 1)), nil, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var edits []func(*http.Request)
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			if answer := post(c, whatIfPath, tt.body, edits...); answer.Code != tt.status {
				t.Errorf("%d %s, want %d", answer.Code, answer.Body, tt.status)
			}
		})
	}
	if answer := get(c, whatIfPath); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "POST" {
		t.Errorf("a GET: %d, Allow: %s", answer.Code, answer.Header().Get("Allow"))
	}
}

// One edit is computed at a time, some wait, more are refused; one that is canceled while it waits is not computed.
func TestEditsThatComeTogetherTakeTurns(t *testing.T) {
	w := newWorld(t)
	release, reading := make(chan struct{}), make(chan struct{}, 1)
	reads := 0
	view := w.view
	c0 := w.console()
	text := manifestOf(t, c0, "general")
	w.View = func(context.Context) (*inspect.View, error) {
		reads++ // one at a time
		reading <- struct{}{}
		<-release
		return view, nil
	}
	c := w.console()
	ask := func(ctx context.Context) int {
		return post(c, whatIfPath, edited("general", text), func(r *http.Request) { *r = *r.WithContext(ctx) }).Code
	}
	var all sync.WaitGroup
	codes := make(chan int, maxWaiting+1)
	all.Go(func() { codes <- ask(t.Context()) })
	<-reading
	ctx, cancel := context.WithCancel(t.Context())
	for range maxWaiting {
		all.Go(func() { ask(ctx) })
	}
	full := func(context.Context) (bool, error) { return len(c.whatIfs.waiting) == cap(c.whatIfs.waiting), nil }
	if err := wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, full); err != nil {
		t.Fatal(err)
	}
	if code := ask(t.Context()); code != http.StatusServiceUnavailable {
		t.Errorf("one more request: %d", code)
	}
	cancel()
	close(release)
	all.Wait()
	if code := <-codes; code != http.StatusOK || reads != 1 || len(c.whatIfs.waiting) != 0 {
		t.Errorf("the first request: %d; the cluster was read %d times, %d wait", code, reads, len(c.whatIfs.waiting))
	}
}
