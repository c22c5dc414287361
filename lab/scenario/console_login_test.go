package scenario_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// consoleAccounts are an account that may read the console, and one that may not although it may read everything that is in it.
const consoleAccounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dovetail-console-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]
`

// console is the console of a controller.
type console struct {
	t   *testing.T
	url string
}

// get is the answer to a request with a token, if there is one, and headers.
func (c console) get(path, token string, headers ...string) *http.Response {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), runTimeout)
	c.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // signed by itself
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// body is the text of an answer.
func (c console) body(answer *http.Response) string {
	c.t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// await gets a path until its answer has a text: once, and again after each event of the console's stream. There is one with each change
// of the state, and one now and then if nothing changes.
func (c console) await(path, token, want string) {
	c.t.Helper()
	stream := c.get("/api/v1/events", token) // it finishes with the time of a run
	defer stream.Body.Close()
	events := bufio.NewScanner(stream.Body)
	events.Buffer(nil, 1<<20)
	var text string
	for more := true; more; more = nextEvent(events) {
		if text = c.body(c.get(path, token)); strings.Contains(text, want) {
			return
		}
	}
	c.t.Fatalf("%s never has %q: %s; the stream has ended: %v", path, want, text, events.Err())
}

// nextEvent reads to the end of an event, and returns false at the end of the stream.
func nextEvent(events *bufio.Scanner) bool {
	for events.Scan() {
		if events.Text() == "" {
			return true
		}
	}
	return false
}

// The API server of the cluster decides who reads the console of its controller.
func TestTheConsoleOfAControllerIsForUsersWithTheRight(t *testing.T) {
	t.Parallel()
	s := labtest.Start(t, "up", "--console-login")
	s.Await(t, "pods: 0 pending, 5 running", runTimeout)
	line := s.Await(t, "The console of cluster ", runTimeout)
	served := console{t, strings.TrimSuffix(line[strings.Index(line, "https://"):], "/")}
	cluster := liveCluster{t, withoutAccount(environment(t, s))}
	cluster.kubectl(consoleAccounts, "apply", "-f", "-")
	token := func(account string) string { return cluster.kubectl("", "create", "token", account)[0] }
	reader, viewer := token("reader"), token("viewer")

	const fleet = "/api/v1/fleet"
	for _, tt := range []struct {
		name, path, token string
		headers           []string
		status            int
	}{
		{"nobody", fleet, "", nil, http.StatusUnauthorized},
		{"nobody, the stream", "/api/v1/events", "", nil, http.StatusUnauthorized},
		{"nobody, the description of the API", "/api/v1/openapi.json", "", nil, http.StatusUnauthorized},
		{"a token that nobody has issued", fleet, reader + "x", nil, http.StatusUnauthorized},
		{"an account without the right", fleet, viewer, nil, http.StatusForbidden},
		{"an account without the right, the stream", "/api/v1/events", viewer, nil, http.StatusForbidden},
		{"an account with the right", fleet, reader, nil, http.StatusOK},
		{"another site, with the right", fleet, reader, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"another origin, with the right", fleet, reader, []string{"Origin", "https://example.com"}, http.StatusForbidden},
		{"a name that another site has made resolve to it", fleet, "", []string{"Host", "rebound.example.com"}, http.StatusUnauthorized},
		{"another site's frame", "/", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe"}, http.StatusForbidden},
		{"the page", "/", "", nil, http.StatusOK},
	} {
		answer := served.get(tt.path, tt.token, tt.headers...)
		if answer.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, answer.StatusCode, tt.status)
			continue
		}
		policy, header := answer.Header.Get("Content-Security-Policy"), answer.Header
		if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || header.Get("Set-Cookie") != "" ||
			header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", tt.name, header)
		}
		if text := ""; tt.status != http.StatusOK {
			if text = served.body(answer); strings.Contains(text, "ec2.internal") {
				t.Errorf("%s: the refusal shows a node: %s", tt.name, text)
			}
		}
	}
	served.shows(reader)
	s.InterruptAndCheck(t, exitTimeout)
}

// shows fails the test unless the console shows the cluster: as it is, live, planned, diagnosed, and from the recording.
func (c console) shows(token string) {
	c.t.Helper()
	c.await("/api/v1/fleet", token, `"state":"steady"`)
	c.await("/api/v1/fleet", token, `"planned":"`)
	c.await("/api/v1/fleet", token, `"hourlyCost":0.`)
	var found struct {
		Nodes []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(c.body(c.get("/api/v1/fleet", token))), &found); err != nil || len(found.Nodes) == 0 {
		c.t.Fatalf("%d nodes, %v", len(found.Nodes), err)
	}
	stream := bufio.NewScanner(c.get("/api/v1/events", token).Body)
	stream.Buffer(nil, 1<<20)
	for stream.Scan() && !strings.Contains(stream.Text(), found.Nodes[0].Name) {
	}
	if stream.Err() != nil {
		c.t.Errorf("the stream has ended: %v", stream.Err())
	}
	c.await("/api/v1/nodes/"+found.Nodes[0].Name+"/explain", token, `"alternatives"`)
	c.await("/api/v1/nodepools", token, `"names":["`)
	c.await("/api/v1/doctor", token, `"checks":`)
	c.await("/api/v1/decisions", token, `"id":"`)
}
