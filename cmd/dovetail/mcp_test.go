package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agent is a client of dovetail mcp.
type agent struct {
	*mcp.ClientSession
	// ended has what the command returned once its input is closed.
	ended chan error
}

// startMCP runs the command on pipes. Ended has what it returns.
func startMCP(ctx context.Context, args ...string) (ask io.WriteCloser, answers io.ReadCloser, ended chan error) {
	asked, write := io.Pipe()
	read, answer := io.Pipe()
	root := rootCommand()
	root.SetArgs(append([]string{"mcp"}, args...))
	root.SetIn(asked)
	root.SetOut(answer)
	root.SetErr(io.Discard)
	ended = make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = answer.CloseWithError(err) // never fails
		ended <- err
	}()
	return write, read, ended
}

// newAgent runs the command, and connects to it through pipes.
func newAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	ask, answers, ended := startMCP(t.Context(), args...)
	a := &agent{ended: ended}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: answers, Writer: ask}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.ClientSession = session
	t.Cleanup(func() { _ = session.Close() }) // tests that check how it finishes have closed it before
	return a
}

// call calls a tool, and returns its text, and whether that is an error.
func (a *agent) call(t *testing.T, tool string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	result, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil || len(result.Content) != 1 {
		t.Fatalf("%s %v: %v, %+v", tool, arguments, err, result)
	}
	content, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("%s %v returns %T", tool, arguments, result.Content[0])
	}
	return content.Text, result.IsError
}

// ofLoneNode are flags for the cluster of loneNode.
func ofLoneNode(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(loneNode), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-f", examplePool, "-f", file, "--region", "us-east-1"}
}

func TestAgentsGetTheAnswersOfExplain(t *testing.T) {
	flags := ofLoneNode(t)
	a := newAgent(t, flags...)
	if info := a.InitializeResult(); info.ServerInfo.Name != "dovetail" || !strings.Contains(info.Instructions, "only read") {
		t.Errorf("the server introduces itself as %+v", info)
	}
	for _, c := range []struct {
		tool, name, kind string
		arguments        map[string]any
	}{
		{"explain_pod", "shop/batch", "pod", map[string]any{"namespace": "shop", "name": "batch"}},
		{"explain_node", "ip-10-0-1-7", "node", map[string]any{"name": "ip-10-0-1-7"}},
		{"explain_node", "ip-10-0-1-7", "node", map[string]any{"name": "ip-10-0-1-7", "full": true}},
		{"explain_nodeclaim", "general-x", "nodeclaim", map[string]any{"name": "general-x"}},
		{"explain_nodepool", "general", "nodepool", map[string]any{"name": "general"}},
	} {
		for format, output := range map[string]string{"": "wide", "text": "wide", "json": "json"} {
			if format != "" {
				c.arguments["format"] = format
			}
			want, _, err := command("", append([]string{"explain", c.kind, c.name, "-o", output}, flags...)...)
			if err != nil {
				t.Fatal(err)
			}
			if got, failed := a.call(t, c.tool, c.arguments); failed || got != want {
				t.Errorf("%s %v: error %v, and another answer than explain's:\n%s\n\n%s", c.tool, c.arguments, failed, got, want)
			}
			delete(c.arguments, "format")
		}
	}
	want, _, err := command("", append([]string{"assess"}, flags...)...)
	if got, failed := a.call(t, "assess", nil); err != nil || failed || got != want {
		t.Errorf("assess: %v, error %v, and another answer than the command's:\n%s", err, failed, got)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-a.ended; err != nil {
		t.Errorf("the command returns %v after its input has ended", err)
	}
}

func TestToolsOnlyRead(t *testing.T) {
	files, live := ofLoneNode(t), []string{"--kubeconfig", kubeconfigOf(t, "http://127.0.0.1:1")}
	explain := []string{"assess", "explain_node", "explain_nodeclaim", "explain_nodepool", "explain_pod", "plan"}
	for _, c := range []struct{ flags, want []string }{
		{files, explain},
		{live, append([]string{"doctor"}, explain...)},
		{append(live, "--recording", firstRecording), append([]string{"decision", "decisions", "doctor"}, explain...)},
	} {
		listed, err := newAgent(t, c.flags...).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range listed.Tools {
			names = append(names, tool.Name)
			if h := tool.Annotations; !h.ReadOnlyHint || *h.DestructiveHint || *h.OpenWorldHint || !h.IdempotentHint {
				t.Errorf("%s does not say that it only reads: %+v", tool.Name, h)
			}
			schema, err := json.Marshal(tool.InputSchema)
			if err != nil || tool.Description == "" || !bytes.Contains(schema, []byte(`"description"`)) {
				t.Errorf("%s: %v, description %q, schema %s", tool.Name, err, tool.Description, schema)
			}
		}
		if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("the tools are %v, want %v", names, c.want)
		}
	}
}

// The cluster has one node. A plan is for its pending pods, and with manifests for theirs.
func TestAgentsPlanWorkloads(t *testing.T) {
	a := newAgent(t, ofLoneNode(t)...)
	deployment := func(cpu string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 3,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
{name: main, image: web, resources: {requests: {cpu: "` + cpu + `"}}}]}}}}`
	}
	for _, c := range []struct {
		name, manifests string
		want            []string
		failed          bool
	}{
		{"what is pending", "", []string{"0 without a node"}, false},
		{"a Deployment", deployment("6"), []string{"Nodes to launch", "shop/web", "2 on new nodes, 1 on existing nodes"}, false},
		{"too large for any type", deployment("4000"), []string{"3 without a node", "no instance type is that large"}, false},
		{"no manifests", "{kind: [", []string{"manifests", "line"}, true},
		{"a field that is none", strings.Replace(deployment("1"), "replicas", "replica", 1), []string{
			`manifests:1: Deployment shop/web: unknown field "spec.replica", did you mean "replicas"?`,
		}, true},
	} {
		text, failed := a.call(t, "plan", map[string]any{"manifests": c.manifests})
		for _, want := range c.want {
			if failed != c.failed || !strings.Contains(text, want) {
				t.Errorf("%s: error %v, no %q in:\n%s", c.name, failed, want, text)
			}
		}
		if strings.Contains(text, os.TempDir()) {
			t.Errorf("%s: the answer has a path of this machine:\n%s", c.name, text)
		}
	}
	var plan struct{ Claims []any }
	text, _ := a.call(t, "plan", map[string]any{"manifests": deployment("6"), "format": "json"})
	if err := json.Unmarshal([]byte(text), &plan); err != nil || len(plan.Claims) != 1 {
		t.Errorf("%v, not one NodeClaim in %s", err, text)
	}
}

func TestWrongCallsDoNotEndTheSession(t *testing.T) {
	a := newAgent(t, ofLoneNode(t)...)
	for want, c := range map[string]struct {
		tool      string
		arguments map[string]any
	}{
		`the cluster has no Node "nothing"`:                {"explain_node", map[string]any{"name": "nothing"}},
		`unexpected additional properties ["nam"]`:         {"explain_node", map[string]any{"nam": "x", "name": "y"}},
		`missing properties: ["name"]`:                     {"explain_nodepool", nil},
		`has type "integer", want "string"`:                {"explain_nodepool", map[string]any{"name": 7}},
		`format "xml" is neither text nor json`:            {"explain_nodepool", map[string]any{"name": "general", "format": "xml"}},
		`start dovetail mcp with --recording FILE`:         {"explain_nodepool", map[string]any{"name": "general", "at": "x"}},
		`namespace "" is not the name of a namespace`:      {"explain_pod", map[string]any{"namespace": "", "name": "batch"}},
		`namespace "shop/b" is not the name of a namespac`: {"explain_pod", map[string]any{"namespace": "shop/b", "name": "atch"}},
	} {
		if text, failed := a.call(t, c.tool, c.arguments); !failed || !strings.Contains(text, want) {
			t.Errorf("%s %v: error %v, no %q in %q", c.tool, c.arguments, failed, want, text)
		}
	}
	unknown := (*jsonrpc.Error)(nil)
	if _, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_node"}); !errors.As(err, &unknown) ||
		!strings.Contains(unknown.Message, "delete_node") {
		t.Errorf("a tool that is not there: %v", err)
	}
	text, failed := a.call(t, "explain_nodepool", map[string]any{"name": "general"})
	if failed || !strings.HasPrefix(text, "nodepool general") {
		t.Errorf("the session does not go on: %s", text)
	}
}

// kubeconfigOf writes a kubeconfig file for an API server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: production, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: production, context: {cluster: c}}]}`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAgentsCanWithdrawACall(t *testing.T) {
	asked, answered := make(chan struct{}, 1), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answered
		http.Error(w, "no more", http.StatusForbidden)
	}))
	defer api.Close()
	a := newAgent(t, "--kubeconfig", kubeconfigOf(t, api.URL))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "explain_nodepool", Arguments: map[string]any{"name": "general"}})
		ended <- err
	}()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the withdrawn call returns %v", err)
	}
	close(answered)
	if text, failed := a.call(t, "explain_nodepool", map[string]any{"name": "general"}); !failed || !strings.Contains(text, "no more") {
		t.Errorf("the next call does not say what the API server says: %s", text)
	}
}

func TestMCPRefusesWhatCannotWork(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for want, args := range map[string][]string{
		"standard input is where the agent asks": {"-f", "-"},
		"-f and --kubeconfig":                    {"-f", examplePool, "--context", "x"},
		"find the cluster":                       nil,
		"--recording":                            {"--recording", "mcp_test.go"},
	} {
		out, _, err := command("", append([]string{"mcp"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %v, want %s; printed %q", args, err, want, out)
		}
	}
}

// The page's configuration starts a server.
func TestTheDocumentedConfigurationWorks(t *testing.T) {
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	text, _, _ := strings.Cut(rest, "```")
	var file struct {
		MCPServers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	server := file.MCPServers["dovetail"]
	if server.Command != "dovetail" || len(server.Args) == 0 || server.Args[0] != "mcp" {
		t.Fatalf("the page starts %+v", server)
	}
	t.Setenv("KUBECONFIG", kubeconfigOf(t, "http://127.0.0.1:1"))
	listed, err := newAgent(t, server.Args[1:]...).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range listed.Tools {
		if !strings.Contains(string(page), "| `"+tool.Name+"` |") {
			t.Errorf("the page does not list the tool %s", tool.Name)
		}
	}
}

func TestAgentsReadTheRecording(t *testing.T) {
	const removal, node = "3c059f9c-d7a1-42be-85bc-1b408ba39dd1-0", "ip-10-0-32-4.ec2.internal"
	a := newAgent(t, append(ofLoneNode(t), "--recording", firstRecording)...)
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		want      []string // the command with the same answer
	}{
		{"decisions", nil, []string{"recording", "list", "-f", firstRecording}},
		{"decisions", map[string]any{"since": "1m"}, []string{"recording", "list", "-f", firstRecording, "--since", "1m"}},
		{"decision", map[string]any{"id": removal}, []string{"recording", "show", "-f", firstRecording, removal}},
		{"decision", map[string]any{"id": removal, "format": "json"}, []string{"recording", "show", "-f", firstRecording, removal, "-o", "json"}},
		{
			"explain_node",
			map[string]any{"name": node, "at": removal},
			[]string{"explain", "node", node, "--recording", firstRecording, "--at", removal, "-o", "wide"},
		},
		{
			"explain_nodepool",
			map[string]any{"name": "default", "at": "2026-11-23T08:21:30Z", "format": "json"},
			[]string{"explain", "nodepool", "default", "--recording", firstRecording, "--at", "2026-11-23T08:21:30Z", "-o", "json"},
		},
	} {
		if got, failed := a.call(t, c.tool, c.arguments); failed || got != succeed(t, c.want...) {
			t.Errorf("%s %v: error %v, and another answer than %v:\n%s", c.tool, c.arguments, failed, c.want, got)
		}
	}
	text, _ := a.call(t, "explain_node", map[string]any{"name": node, "at": removal})
	if !strings.HasPrefix(text, "node "+node+" goes in the next pass") {
		t.Errorf("before its removal, the node is explained as:\n%s", text)
	}
	for want, c := range map[string]struct {
		tool      string
		arguments map[string]any
	}{
		`no decision "p-1" is in the recording`: {"decision", map[string]any{"id": "p-1"}},
		`since "yesterday" is not a duration`:   {"decisions", map[string]any{"since": "yesterday"}},
		`since "-2h" is not a duration`:         {"decisions", map[string]any{"since": "-2h"}},
		`"p-1"`:                                 {"explain_node", map[string]any{"name": node, "at": "p-1"}},
		`the cluster has no Node "` + node:      {"explain_node", map[string]any{"name": node}},
	} {
		if text, failed := a.call(t, c.tool, c.arguments); !failed || !strings.Contains(text, want) {
			t.Errorf("%s %v: error %v, no %s in %q", c.tool, c.arguments, failed, want, text)
		}
	}
}
