package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

func decoded[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return out
}

func TestAnswersAreAsTheDocumentHasThem(t *testing.T) {
	c := newWorld(t).console()
	all, _ := api(c)
	asked := map[string]string{
		clustersPath: "", apiRoot + "/about": "", apiRoot + "/fleet": "", apiRoot + "/pods": "?node=claim-a,claim-b", apiRoot + "/pending": "",
		apiRoot + "/nodes/{name}": "/nodes/ip-10-0-0-1.ec2.internal", apiRoot + "/nodepools/{name}": "/nodepools/general",
		apiRoot + "/nodes/{name}/explain":            "/nodes/ip-10-0-0-1.ec2.internal/explain",
		apiRoot + "/pods/{namespace}/{name}/explain": "/pods/search/indexer-5d8f-bbbbb/explain",
		apiRoot + "/nodepools":                       "", apiRoot + "/doctor": "",
		apiRoot + "/nodepools/{name}/explain":  "/nodepools/general/explain",
		apiRoot + "/nodepools/{name}/manifest": "/nodepools/general/manifest",
		apiRoot + "/nodeclasses/{name}":        "/nodeclasses/default",
		apiRoot + "/assessment":                "",
		whatIfPath + "/choices":                "",
		apiRoot + "/costs":                     "",
		apiRoot + "/nodeclaims/{name}":         "/nodeclaims/general-a",
		apiRoot + "/spend":                     "", apiRoot + "/past": "?at=2026-11-28T19:13:50Z", apiRoot + "/search": "?text=indexer",
	}
	for _, r := range c.routes() {
		path, known := asked[r.Path]
		known = known || r.Path == whatIfPath
		if strings.HasPrefix(r.Path, apiRoot+"/decisions") {
			continue // the recorder's types have tests of their own, and this console has no recording
		}
		if !known {
			t.Errorf("%s has no example here", r.Path)
			continue
		}
		if !strings.HasPrefix(path, "/") {
			path = strings.TrimPrefix(r.Path, apiRoot) + path
		}
		asks := c
		if r.Path == apiRoot+"/past" {
			asks = recordedWorld(t).console()
		}
		answer := get(asks, apiRoot+path)
		if r.Path == whatIfPath {
			answer = post(c, whatIfPath, edited("general", strings.Replace(manifestOf(t, c, "general"), "arm64", "amd64", 1)))
		}
		if answer.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
			continue
		}
		if wrong := all.conforms(all.of(reflect.TypeOf(r.Answer)), decoded[any](t, answer), r.Path); wrong != "" {
			t.Error(wrong)
		}
	}
}

func TestTheFleetHasNodesInFlightAndTheirStates(t *testing.T) {
	fleet := decoded[Fleet](t, get(newWorld(t).console(), apiRoot+"/fleet"))
	got := map[string]string{}
	for _, n := range fleet.Nodes {
		got[n.ID] = n.Name + " " + string(n.State)
	}
	want := map[string]string{"claim-a": "ip-10-0-0-1.ec2.internal drifted", "claim-b": "general-b in flight"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
	if fleet.Summary.Pods != 3 || fleet.Summary.Pending != 1 || fleet.Summary.Stuck != 1 || fleet.Summary.Spend.HourlyCost <= 0 {
		t.Errorf("summary is %+v", fleet.Summary)
	}
}

func TestPodsOfNodesAreNamedByWorkload(t *testing.T) {
	pods := decoded[NodePods](t, get(newWorld(t).console(), apiRoot+"/pods?node=claim-a&node=gone"))
	want := []Pod{
		{Namespace: "kube-system", Name: "aws-node-x", Workload: "aws-node", CPU: 50, Daemon: true},
		{Namespace: "shop", Name: "web-7c9f6d5b4-aaaaa", Workload: "web", CPU: 1000, Memory: 1 << 30},
	}
	if got := pods.Nodes["claim-a"]; !slices.Equal(got, want) {
		t.Errorf("pods are %+v, want %+v", got, want)
	}
	if _, has := pods.Nodes["gone"]; has {
		t.Error("there is an answer for a node that does not exist")
	}
}

func TestPendingPodsHaveTheirCauseAndFix(t *testing.T) {
	c := newWorld(t).console()
	pending := decoded[Pending](t, get(c, apiRoot+"/pending"))
	if len(pending.Groups) != 1 {
		t.Fatalf("groups are %+v", pending.Groups)
	}
	g := pending.Groups[0]
	if g.Kind != "Deployment" || g.Name != "indexer" || g.Count != 1 || g.Fits || !strings.Contains(g.Why, "us1-az1") {
		t.Errorf("the group is %+v", g)
	}
	var report struct {
		Change struct {
			Summary string `json:"summary"`
		} `json:"change"`
	}
	answer := get(c, apiRoot+"/pods/search/"+g.Pods[0]+"/explain")
	if err := json.Unmarshal(answer.Body.Bytes(), &report); err != nil || !strings.Contains(report.Change.Summary, "use1-az1") {
		t.Errorf("the smallest change is %q (%v)", report.Change.Summary, err)
	}
}

func TestProblemsNameWhatIsWrong(t *testing.T) {
	forbidden := apierrors.NewForbidden(kubeschema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "", nil)
	tests := []struct {
		name, path string
		view       error
		status     int
		want       Problem
	}{
		{"an unknown node", "/nodes/nix/explain", nil, 404, Problem{Code: CodeNotFound, Message: `the cluster has no Node "nix"`}},
		{"a NodeClaim", "/nodes/general-b/explain", nil, 200, Problem{}},
		{"an unknown path", "/nix", nil, 404, Problem{Code: CodeNotFound}},
		{"a time that is none", "/decisions?since=now", nil, 400, Problem{Code: CodeInvalid, Field: "since"}},
		{"no recording", "/decisions", nil, 404, Problem{Code: CodeNotFound}},
		{"a flag that is none", "/doctor?fresh=yes", nil, 400, Problem{Code: CodeInvalid, Field: "fresh"}},
		{"too many nodes", "/pods?node=" + manyIDs(maxAsked+1), nil, 400, Problem{Code: CodeInvalid, Field: "node"}},
		{"a cluster that is being read", "/nodepools", live.ErrLoading, 503, Problem{Code: CodeLoading}},
		{"an API server that is away", "/nodepools", errAway, 503, Problem{Code: CodeAway, Message: errAway.Error()}},
		{
			"a kind that is watched and may not be read", "/nodepools", &live.ForbiddenError{Resource: "nodeclaims.karpenter.sh"}, 403,
			Problem{Code: CodeForbidden, Rule: "- apiGroups: [\"karpenter.sh\"]\n  resources: [nodeclaims]\n  verbs: [list, watch]\n"},
		},
		{
			"another kind that may not be read", "/nodepools", fmt.Errorf("list: %w", forbidden), 403,
			Problem{Code: CodeForbidden, Rule: "- apiGroups: [\"policy\"]\n  resources: [poddisruptionbudgets]\n  verbs: [list, watch]\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.view != nil {
				w.View = func(context.Context) (*inspect.View, error) { return nil, tt.view }
			}
			answer := get(w.console(), apiRoot+tt.path)
			if answer.Code != tt.status {
				t.Fatalf("%d %s, want %d", answer.Code, answer.Body, tt.status)
			}
			if tt.status == http.StatusOK {
				return
			}
			got := decoded[Problem](t, answer)
			if got.Code != tt.want.Code || got.Field != tt.want.Field || got.Rule != tt.want.Rule || got.Status != tt.status {
				t.Errorf("the problem is %+v", got)
			}
			if tt.want.Message != "" && got.Message != tt.want.Message {
				t.Errorf("the message is %q, want %q", got.Message, tt.want.Message)
			}
		})
	}
}

// manyIDs are so many different IDs.
func manyIDs(n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return strings.Join(ids, ",")
}

func TestOnlyThePageIsAnswered(t *testing.T) {
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	tests := []struct {
		name, path string
		edit       func(*http.Request)
		status     int
	}{
		{"a program of this machine", "/api/v1/fleet", header(), 200},
		{"the page", "/api/v1/fleet", header("Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:8484"), 200},
		{"localhost, forwarded to another port", "/api/v1/fleet", host("localhost:9000"), 200},
		{"IPv6", "/api/v1/fleet", host("[::1]:8484"), 200},
		{"a name that resolves to this machine", "/api/v1/fleet", host("rebound.example.com:8484"), 403},
		{"an address of this machine in its network", "/api/v1/fleet", host("192.168.0.7:8484"), 403},
		{"a request of another site", "/api/v1/fleet", header("Sec-Fetch-Site", "cross-site"), 403},
		{"a request of another port", "/api/v1/fleet", header("Sec-Fetch-Site", "same-site"), 403},
		{"another origin, in an old browser", "/api/v1/fleet", header("Origin", "http://127.0.0.1:3000"), 403},
		{"an opaque origin", "/api/v1/events", header("Origin", "null"), 403},
		{"another site's script element", "/console.js", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"), 403},
		{
			"another site's frame", "/", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), 403,
		},
		{"a link", "/", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 200},
		{
			"a link to the API", "/api/v1/fleet",
			header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 403,
		},
		{"a write", "/api/v1/fleet", func(r *http.Request) { r.Method = http.MethodPost }, 405},
	}
	c := newWorld(t).console()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := get(c, tt.path, tt.edit)
			if answer.Code != tt.status {
				t.Errorf("%d, want %d", answer.Code, tt.status)
			}
			if tt.status == http.StatusForbidden && strings.Contains(answer.Body.String(), "ip-10-0-0-1") {
				t.Error("the refusal shows a node")
			}
			if answer.Header().Get("Set-Cookie") != "" || answer.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers are %v", answer.Header())
			}
			if csp := answer.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") ||
				strings.Contains(csp, "unsafe") {
				t.Errorf("the policy is %q", csp)
			}
		})
	}
}

// events reads server-sent events.
type events struct{ *bufio.Scanner }

func (e events) next(t *testing.T) (name, data string) {
	t.Helper()
	for e.Scan() {
		switch line := e.Text(); {
		case strings.HasPrefix(line, "event: "):
			name = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			return name, strings.TrimPrefix(line, "data: ")
		}
	}
	t.Fatalf("the stream has ended: %v", e.Err())
	return "", ""
}

func open(t *testing.T, url string) events {
	t.Helper()
	answer, err := http.Get(url + apiRoot + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return events{lines}
}

func TestAStreamHasTheFleetAndThenWhatChanges(t *testing.T) {
	w := newWorld(t)
	c := New(w.Sources)
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.hub.close()
	stream := open(t, server.URL)
	if name, data := stream.next(t); name != "fleet" || !strings.Contains(data, `"nodes":null`) {
		t.Fatalf("before anything is read: %s %s", name, data)
	}
	c.hub.receive(w.observed)
	if name, data := stream.next(t); name != "fleet" || !strings.Contains(data, `"name":"general-b"`) {
		t.Fatalf("once it is read: %s %s", name, data)
	}
	gone := w.observed
	fleet := *gone.Fleet
	moved := *fleet.Nodes[1]
	moved.Zone = "us-east-1c"
	fleet.Nodes = []*top.Node{&moved}
	gone.Fleet = &fleet
	c.hub.receive(gone)
	name, data := stream.next(t)
	var change Change
	if err := json.Unmarshal([]byte(data), &change); err != nil || name != "change" {
		t.Fatalf("%s %s: %v", name, data, err)
	}
	if !slices.Equal(change.Removed, []string{"claim-b"}) || len(change.Changed) != 1 || change.Changed[0].Zone != "us-east-1c" {
		t.Errorf("the change is %+v", change)
	}
}

// Hundreds of planned changes are sent once, and not with each pod that comes or goes.
func TestAStreamSendsAPlanOnce(t *testing.T) {
	w := newWorld(t)
	c := w.console()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.hub.close()
	stream := open(t, server.URL)
	stream.next(t)
	next := func() (out Change) {
		t.Helper()
		if name, data := stream.next(t); name != "change" || json.Unmarshal([]byte(data), &out) != nil {
			t.Fatalf("%s %s", name, data)
		}
		return out
	}
	c.hub.receive(w.observed)
	if change := next(); change.Summary.Changes != nil || change.Summary.Notes != nil || change.Summary.Planned == nil {
		t.Errorf("without a new plan, a change has %+v", change.Summary)
	}
	again := *w.forecast
	again.At = again.At.Add(time.Minute)
	c.hub.receive(top.Predicted{Forecast: &again})
	if change := next(); change.Summary.Changes == nil || change.Summary.Notes == nil || !change.Summary.Planned.Equal(again.At) {
		t.Errorf("with a new plan, a change has %+v", change.Summary)
	}
}

// A browser that does not read keeps neither the pods of an old state nor the streams of others waiting.
func TestAStreamThatIsNotReadDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	c := w.console()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.hub.close()
	open(t, server.URL) // and is not read
	reader := open(t, server.URL)
	reader.next(t)
	for range 5 {
		c.hub.receive(w.observed)
		if name, _ := reader.next(t); name != "change" {
			t.Fatalf("the stream has %s", name)
		}
	}
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	c := newWorld(t).console()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.hub.close()
	for range maxStreams {
		open(t, server.URL).next(t)
	}
	answer, err := http.Get(server.URL + apiRoot + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stream %d is answered with %d", maxStreams+1, answer.StatusCode)
	}
}

func TestAViewIsSharedUntilTheClusterChanges(t *testing.T) {
	w := newWorld(t)
	reads, revision, view := 0, 1, w.view
	now := w.Now()
	w.Now = func() time.Time { return now }
	w.Revision = func() int { return revision }
	w.View = func(context.Context) (*inspect.View, error) { reads++; return view, nil }
	c := w.console()
	ask := func() { get(c, apiRoot+"/nodepools") }
	ask()
	ask()
	if reads != 1 {
		t.Errorf("two requests read the cluster %d times", reads)
	}
	revision, now = 2, now.Add(viewAge)
	ask()
	if reads != 2 {
		t.Errorf("after a change, the cluster has been read %d times", reads)
	}
	now = now.Add(viewAge)
	ask()
	if reads != 2 {
		t.Errorf("without a change, the cluster has been read %d times", reads)
	}
	now = now.Add(unwatchedAge)
	ask()
	if reads != 3 {
		t.Errorf("after %s, the cluster has been read %d times", unwatchedAge, reads)
	}
}

// While the engine plans, a page shows what is known of a node and of its NodePool.
func TestWhatIsKnownWaitsForNoPlan(t *testing.T) {
	c := newWorld(t).console()
	planning, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := c.views.explain(t.Context(), "slow", func(*planned) (any, error) {
			close(planning)
			<-release
			return "planned", nil
		})
		done <- err
	}()
	<-planning
	for path, computing := range map[string]bool{"/nodes/ip-10-0-0-1.ec2.internal": true, "/nodepools/general": true} {
		answer := decoded[struct{ Computing bool }](t, get(c, apiRoot+path))
		if answer.Computing != computing {
			t.Errorf("%s: computing is %t while the engine plans", path, answer.Computing)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/nodes/ip-10-0-0-1.ec2.internal/explain", "/nodepools/general/explain"} {
		if decoded[struct{ Computing bool }](t, get(c, apiRoot+path)).Computing {
			t.Errorf("%s is not whole", path)
		}
	}
}

// A page that is left open over a large cluster must not keep a core busy.
func TestAViewThatIsExpensiveToReadIsSharedLonger(t *testing.T) {
	const cost = 20 * time.Second
	w := newWorld(t)
	reads, view := 0, w.view
	now := w.Now()
	w.Now = func() time.Time { return now }
	w.Revision = func() int { return reads + 1 }
	w.View = func(context.Context) (*inspect.View, error) {
		reads++
		now = now.Add(cost)
		return view, nil
	}
	c := w.console()
	for _, path := range []string{"/nodepools", "/nodes/nowhere/explain", "/nodepools"} {
		get(c, apiRoot+path)
		now = now.Add(unwatchedAge / 2)
	}
	if reads != 1 { // a node that is not there is not worth a second
		t.Errorf("within %s, the cluster has been read %d times", cost+unwatchedAge, reads)
	}
	now = now.Add(viewShare * cost)
	get(c, apiRoot+"/nodepools")
	if reads != 2 {
		t.Errorf("after %s, the cluster has been read %d times", viewShare*cost, reads)
	}
}

// While the API server is away, explanations are those of the last View, and it is not queried with each request.
func TestTheLastViewStaysWhileTheAPIServerIsAway(t *testing.T) {
	w := newWorld(t)
	reads, view, now := 0, w.view, w.Now()
	var away error
	w.Now = func() time.Time { return now }
	w.Revision = func() int { return reads + 1 }
	w.View = func(context.Context) (*inspect.View, error) { reads++; return view, away }
	c := w.console()
	away = errAway
	if answer := get(c, apiRoot+"/nodepools"); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("before the first View: %d", answer.Code)
	}
	away = nil
	get(c, apiRoot+"/nodepools")
	away = errAway
	now = now.Add(time.Hour)
	for range 3 {
		if answer := get(c, apiRoot+"/nodes/ip-10-0-0-1.ec2.internal/explain"); answer.Code != http.StatusOK {
			t.Errorf("while the API server is away: %d %s", answer.Code, answer.Body)
		}
	}
	if reads != 3 {
		t.Errorf("it has been asked %d times, want 3", reads)
	}
	away = &live.ForbiddenError{Resource: "pods"}
	now = now.Add(viewAge)
	if answer := get(c, apiRoot+"/nodepools"); answer.Code != http.StatusForbidden {
		t.Errorf("once it refuses: %d", answer.Code)
	}
}

func TestANameThatIsNewerThanTheViewIsFound(t *testing.T) {
	w := newWorld(t)
	revision, full := 1, w.view
	empty := *full
	state := *full.ClusterState
	state.Pods = nil
	empty.ClusterState = &state
	view := &empty
	w.Revision = func() int { return revision }
	w.View = func(context.Context) (*inspect.View, error) { return view, nil }
	c := w.console()
	const path = apiRoot + "/pods/search/indexer-5d8f-bbbbb/explain"
	if answer := get(c, path); answer.Code != http.StatusNotFound {
		t.Fatalf("a pod that does not exist: %d", answer.Code)
	}
	revision, view = 2, full
	if answer := get(c, path); answer.Code != http.StatusOK {
		t.Errorf("a pod that has been created since the last view: %d %s", answer.Code, answer.Body)
	}
}
