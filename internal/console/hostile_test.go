package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Pods without an owner are a group each: an answer has some of them, and counts all.
func TestTensOfThousandsOfPendingPodsAreReadInParts(t *testing.T) {
	const many = 50_000
	w := newWorld(t)
	pods := make([]top.Pod, 0, many)
	for i := range many {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: fmt.Sprintf("job-%05d", i), UID: types.UID(strconv.Itoa(i))}}
		pods = append(pods, top.PodOf(p))
	}
	w.observed.Fleet = top.Observe(top.Objects{Now: w.Now(), Pods: pods})
	c := w.console()
	seen := map[string]bool{}
	for from := 0; from < many; from += mostGroups {
		answer := get(c, fmt.Sprint(apiRoot, "/pending?from=", from))
		pending := decoded[Pending](t, answer)
		if len(pending.Groups) != mostGroups || pending.Found != many || pending.From != from || pending.Waiting != many ||
			pending.Stuck+pending.Fits != 0 {
			t.Fatalf("%d groups from %d of %d, %d pods wait, %d are stuck", len(pending.Groups), pending.From, pending.Found, pending.Waiting,
				pending.Stuck)
		}
		if size := answer.Body.Len(); size > 200_000 {
			t.Fatalf("an answer has %d bytes", size)
		}
		for _, g := range pending.Groups {
			seen[g.Name] = true
		}
	}
	if len(seen) != many {
		t.Errorf("the parts have %d of %d workloads", len(seen), many)
	}
	for query, want := range map[string][3]int{
		"?find=JOB-0499": {10, 10, many}, "?find=nothing": {0, 0, many}, "?from=60000": {0, many, many}, "?find=batch/job-49999": {1, 1, many},
	} {
		if p := decoded[Pending](t, get(c, apiRoot+"/pending"+query)); [3]int{len(p.Groups), p.Found, p.Workloads} != want {
			t.Errorf("%s: %d groups of %d that are found among %d, want %v", query, len(p.Groups), p.Found, p.Workloads, want)
		}
	}
	for _, query := range []string{"?from=-1", "?from=x", "?find=" + strings.Repeat("x", 400)} {
		if code := get(c, apiRoot+"/pending"+query).Code; code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, code)
		}
	}
}

// stalled is a browser that takes the start of an answer, and then nothing.
type stalled struct {
	http.ResponseWriter
	writes  chan struct{}
	release chan struct{}
}

func (s stalled) Write(data []byte) (int, error) {
	s.writes <- struct{}{}
	<-s.release
	return len(data), nil
}

func (stalled) Flush() {}

// The pods of a state are freed with it, although a browser has not taken the event that was made of it.
func TestABrowserThatDoesNotReadKeepsNoPods(t *testing.T) {
	w := newWorld(t)
	c := New(w.Sources)
	fleet := *w.observed.Fleet
	old := weak.Make(&fleet)
	c.hub.receive(top.Observed{Fleet: &fleet})
	browser := stalled{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.stream(browser, httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	<-browser.writes
	c.hub.receive(w.observed)
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		runtime.GC()
		return old.Value() == nil, nil
	})
	if err != nil {
		t.Error("the stream keeps the state that it sends, with all pods")
	}
	close(browser.release)
	c.hub.close()
	for {
		select {
		case <-browser.writes:
		case <-done:
			return
		}
	}
}

// What a stranger sends to the port gets an answer that names no file and costs little.
func TestHostileRequestsAreRefused(t *testing.T) {
	server := httptest.NewUnstartedServer(newWorld(t).console().Handler())
	server.Config.MaxHeaderBytes = 64 << 10
	server.Start()
	defer server.Close()
	tests := []struct {
		name, request string
		want          []int
	}{
		{"a path out of the directory", "GET /../../../../etc/passwd HTTP/1.1", []int{301, 307, 400, 404}},
		{"the same, encoded", "GET /%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1", []int{301, 307, 400, 404}},
		{"the same, encoded slashes", "GET /..%2f..%2f..%2fetc%2fpasswd HTTP/1.1", []int{301, 307, 400, 404}},
		{"a backslash", `GET /..\..\etc\passwd HTTP/1.1`, []int{301, 307, 400, 404}},
		{"a byte that ends strings in C", "GET /index.html%00.png HTTP/1.1", []int{400, 404, 500}},
		{"the sources of the page", "GET /main.tsx HTTP/1.1", []int{404}},
		{"a path as a name", "GET /api/v1/nodes/..%2f..%2fabout/explain HTTP/1.1", []int{404}},
		{"a name that is a script", "GET /api/v1/nodes/%3Cscript%3Ealert(1)%3C%2Fscript%3E/explain HTTP/1.1", []int{404}},
		{"an address of 200 kB", "GET /api/v1/pods?node=" + strings.Repeat("a", 200_000) + " HTTP/1.1", []int{431}},
		{"another host in the address than in the header", "GET http://evil.example/api/v1/fleet HTTP/1.1", []int{403}},
		{"a method that is none", "BREW / HTTP/1.1", []int{405}},
		{"another protocol", "\x16\x03\x01\x02\x00", []int{400}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			_, _ = io.WriteString(connection, test.request+"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") // it may hang up early
			answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body)
			if !slices.Contains(test.want, answer.StatusCode) || strings.Contains(string(body), "root:") {
				t.Errorf("it is answered with %d: %.200s", answer.StatusCode, body)
			}
			if kind := answer.Header.Get("Content-Type"); strings.Contains(string(body), "<script>") && strings.HasPrefix(kind, "text/html") {
				t.Errorf("the name is in a page: %.200s", body)
			}
		})
	}
}
