package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// tokens are an API server that knows the tokens of two users, one of whom may read the console.
type tokens struct {
	reviews atomic.Int64
	revoked atomic.Bool
	err     error
}

func (r *tokens) User(_ context.Context, token string) (*authenticationv1.UserInfo, error) {
	r.reviews.Add(1)
	if name, known := strings.CutPrefix(token, "of-"); known && !r.revoked.Load() {
		return &authenticationv1.UserInfo{Username: name}, r.err
	}
	return nil, r.err
}

func (*tokens) May(_ context.Context, user *authenticationv1.UserInfo) (bool, error) {
	return user.Username == "ann", nil
}

// protected is the answer of a console that is reached from other computers.
func protected(handler http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "https://dovetail.kube-system.svc:8484"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestOnlyUsersWithTheRightReadAProtectedConsole(t *testing.T) {
	handler := newWorld(t).console().ProtectedHandler(&tokens{})
	const authorization = "Authorization"
	for _, tt := range []struct {
		name, path string
		headers    []string
		status     int
		code       Code
	}{
		{"no token", "/api/v1/fleet", nil, 401, CodeUnauthenticated},
		{"no token, an unknown path", "/api/v1/nix", nil, 401, CodeUnauthenticated},
		{"no token, the stream", "/api/v1/events", nil, 401, CodeUnauthenticated},
		{"a token of nobody", "/api/v1/fleet", []string{authorization, "Bearer made-up"}, 401, CodeUnauthenticated},
		{"a token that is too long", "/api/v1/fleet", []string{authorization, "Bearer of-ann" + strings.Repeat("n", maxToken)}, 401, CodeUnauthenticated},
		{"a password", "/api/v1/fleet", []string{authorization, "Basic of-ann"}, 401, CodeUnauthenticated},
		{"a user without the right", "/api/v1/fleet", []string{authorization, "Bearer of-bob"}, 403, CodeNotAllowed},
		{"a user with the right", "/api/v1/fleet", []string{authorization, "Bearer of-ann"}, 200, ""},
		{
			"the page, with the right", "/api/v1/fleet",
			[]string{authorization, "Bearer of-ann", "Sec-Fetch-Site", "same-origin", "Origin", "https://dovetail.kube-system.svc:8484"},
			200, "",
		},
		{
			"another site, with the right", "/api/v1/fleet",
			[]string{authorization, "Bearer of-ann", "Sec-Fetch-Site", "cross-site"},
			403, CodeCrossSite,
		},
		{
			"another origin, with the right", "/api/v1/fleet",
			[]string{authorization, "Bearer of-ann", "Origin", "https://example.com"},
			403, CodeCrossSite,
		},
		{"another site's frame of the page", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe"}, 403, CodeCrossSite},
		{"the page, which has nothing of the cluster", "/", nil, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := protected(handler, tt.path, tt.headers...)
			if answer.Code != tt.status {
				t.Fatalf("%d %s, want %d", answer.Code, answer.Body, tt.status)
			}
			if tt.code != "" && decoded[Problem](t, answer).Code != tt.code {
				t.Errorf("the problem is %s, want %s", answer.Body, tt.code)
			}
			if tt.code != "" && strings.Contains(answer.Body.String(), "ip-10-0-0-1") {
				t.Error("the refusal shows a node")
			}
			if tt.code == CodeNotAllowed && decoded[Problem](t, answer).Rule != readerRule {
				t.Errorf("the rule is %q", decoded[Problem](t, answer).Rule)
			}
			if answer.Header().Get("Set-Cookie") != "" || !strings.HasPrefix(answer.Header().Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("headers are %v", answer.Header())
			}
		})
	}
}

func TestDecisionsAreKeptForAMomentAndTheirNumberIsBounded(t *testing.T) {
	reviewer, now := &tokens{}, time.Unix(0, 0)
	a := newAccess(reviewer, func() time.Time { return now })
	ask := func(token string) *Problem { return a.check(t.Context(), token) }
	for range 3 {
		if refused := ask("of-ann"); refused != nil {
			t.Fatal(refused)
		}
	}
	if n := reviewer.reviews.Load(); n != 1 {
		t.Errorf("3 requests needed %d reviews", n)
	}
	reviewer.revoked.Store(true)
	now = now.Add(allowedAge)
	if refused := ask("of-ann"); refused == nil || refused.Status != http.StatusUnauthorized {
		t.Errorf("a token that was revoked is answered with %v", refused)
	}
	reviewer.revoked.Store(false)
	now = now.Add(refusedAge)
	if refused := ask("of-ann"); refused != nil {
		t.Errorf("a token that is valid again is refused: %v", refused)
	}
	for i := range 2 * maxDecisions {
		ask(fmt.Sprint("made-up-", i))
	}
	if len(a.decisions) > maxDecisions {
		t.Errorf("%d decisions are kept", len(a.decisions))
	}
	reviewer.err = errors.New("no route")
	if refused := ask("of-carl"); refused == nil || refused.Status != http.StatusServiceUnavailable || refused.Code != CodeAway {
		t.Errorf("without an answer of the API server: %v", refused)
	}
	reviewer.err = nil
	if refused := ask("of-carl"); refused == nil || refused.Code != CodeNotAllowed {
		t.Errorf("an error is kept: %v", refused)
	}
}

func TestTooManyReviewsAtOnceAreRefused(t *testing.T) {
	a := newAccess(&tokens{}, time.Now)
	for range maxReviews {
		a.reviews <- struct{}{}
	}
	if refused := a.check(t.Context(), "of-ann"); refused == nil || refused.Code != CodeBusy {
		t.Errorf("the answer is %v", refused)
	}
}

// A stream lasts for hours; a right that is taken away must end it.
func TestAStreamEndsWithTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer, w := &tokens{}, newWorld(t)
		w.Now = time.Now
		c := w.console()
		done := make(chan struct{})
		r := httptest.NewRequest(http.MethodGet, "https://dovetail/api/v1/events", nil).WithContext(t.Context())
		r.Header.Set("Authorization", "Bearer of-ann")
		go func() {
			defer close(done)
			c.ProtectedHandler(reviewer).ServeHTTP(httptest.NewRecorder(), r)
		}()
		time.Sleep(10 * allowedAge)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the stream has ended although the right is there")
		default:
		}
		reviewer.revoked.Store(true)
		time.Sleep(3 * allowedAge)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the stream goes on")
		}
	})
}

// On a controller, the console costs something only while somebody looks.
func TestAConsoleOnDemandWatchesWhileSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var watching atomic.Int64
		w.OnDemand = true
		w.Watch = func(ctx context.Context, send func(any)) {
			watching.Add(1)
			send(w.observed)
			send(top.Predicted{Forecast: w.forecast})
			<-ctx.Done()
			watching.Add(-1)
		}
		c := New(w.Sources)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		expect := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if got := watching.Load(); got != want {
				t.Errorf("%s: %d watch, want %d", when, got, want)
			}
		}
		expect("before a request", 0)
		get(c, "/index.html")
		expect("after the page was loaded", 0)
		get(c, apiRoot+"/fleet")
		expect("after a request", 1)
		time.Sleep(lookedAway / 2)
		get(c, apiRoot+"/fleet")
		time.Sleep(lookedAway / 2)
		expect("while requests come", 1)
		leave, _ := c.hub.join()
		time.Sleep(5 * lookedAway)
		expect("while a stream is open", 1)
		leave()
		time.Sleep(3 * lookedAway)
		expect("after all have gone", 0)
		if s, _ := c.hub.current(); s.Nodes != nil {
			t.Error("what was seen is kept")
		}
		get(c, apiRoot+"/fleet")
		expect("when somebody looks again", 1)
		stop()
		<-ended
	})
}

// After nobody has looked for a while, prices are read anew: until they are, there is neither a bound nor a plan of before beside nodes
// without prices.
func TestAfterIdlePricesAreReadBeforeThereIsABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.OnDemand = true
		plan := make(chan struct{})
		w.Watch = func(ctx context.Context, send func(any)) {
			unpriced := w.observed
			unpriced.Prices = ""
			send(unpriced)
			select {
			case <-plan:
				send(w.observed)
				send(top.Predicted{Forecast: w.forecast})
			case <-ctx.Done():
			}
			<-ctx.Done()
		}
		c := New(w.Sources)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		look := func() Summary {
			get(c, apiRoot+"/fleet")
			synctest.Wait()
			return decoded[Fleet](t, get(c, apiRoot+"/fleet")).Summary
		}
		for _, when := range []string{"at first", "after idle"} {
			if s := look(); s.Spend.Prices != "" || s.Spend.LowerBound != nil || s.Spend.PlannedHourlyCost != nil || s.Planned != nil {
				t.Errorf("%s, while prices are read: %+v", when, s)
			}
			plan <- struct{}{}
			if s := look(); s.Spend.Prices == "" || s.Spend.LowerBound == nil || s.Planned == nil {
				t.Errorf("%s, once prices are read: %+v", when, s)
			}
			time.Sleep(3 * lookedAway)
			synctest.Wait()
		}
		stop()
		<-ended
	})
}

// What is computed for those who look is larger than all that is watched: a minute after the last one has gone, none of it is kept.
func TestNothingIsKeptForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Now = time.Now
		w.Watch = func(ctx context.Context, _ func(any)) { <-ctx.Done() }
		c := New(w.Sources)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		for _, path := range []string{"/nodes/ip-10-0-0-1.ec2.internal/explain", "/nodepools/general/explain"} {
			if answer := get(c, apiRoot+path); answer.Code != http.StatusOK {
				t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
			}
		}
		text := manifestOf(t, c, "general")
		if answer := post(c, whatIfPath, edited("general", text)); answer.Code != http.StatusOK {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		synctest.Wait()
		if c.views.view == nil || c.whatIfs.base == nil {
			t.Error("nothing is kept for the next request")
		}
		time.Sleep(2*lookedAway + time.Second)
		synctest.Wait()
		if c.views.view != nil || c.views.explains != nil || c.whatIfs.base != nil {
			t.Error("a View, explanations or a baseline are kept although nobody looks")
		}
		if answer := get(c, apiRoot+"/nodepools"); answer.Code != http.StatusOK {
			t.Errorf("when somebody looks again: %d", answer.Code)
		}
		stop()
		<-ended
	})
}

func TestAReplicaOnStandbyAnswersThatItIs(t *testing.T) {
	w := newWorld(t)
	w.Standby = func() bool { return true }
	c := w.console()
	answer := get(c, apiRoot+"/fleet")
	if answer.Code != http.StatusServiceUnavailable || decoded[Problem](t, answer).Code != CodeStandby {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if answer := protected(c.ProtectedHandler(&tokens{}), apiRoot+"/fleet"); answer.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", answer.Code)
	}
}
