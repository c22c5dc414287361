package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// rawAgent is a client of dovetail mcp that sends any line.
type rawAgent struct {
	in  io.Writer
	out *bufio.Reader
}

// rawAnswer is a response of the server.
type rawAnswer struct {
	ID    json.RawMessage `json:"id"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Result struct {
		IsError bool                          `json:"isError"`
		Content []struct{ Type, Text string } `json:"content"`
	} `json:"result"`
}

// newRawAgent runs the command on pipes, and initializes the session.
func newRawAgent(t *testing.T, args ...string) *rawAgent {
	t.Helper()
	ask, answers, ended := startMCP(context.WithoutCancel(t.Context()), args...) // the input finishes after the test
	t.Cleanup(func() {
		_ = ask.Close() // never fails
		if err := <-ended; err != nil {
			t.Errorf("the command returns %v after its input has ended", err)
		}
	})
	a := &rawAgent{in: ask, out: bufio.NewReader(answers)}
	first := a.ask(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},`+
		`"clientInfo":{"name":"t","version":"1"}}}`)
	if first.Error != nil {
		t.Fatalf("initialize: %+v", first.Error)
	}
	if _, err := io.WriteString(ask, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends a line, and returns the next answer.
func (a *rawAgent) ask(t *testing.T, line string) (out rawAnswer) {
	t.Helper()
	if _, err := io.WriteString(a.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
	text, err := a.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the session ends after %.80q: %v", line, err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// explains fails if the server does not answer a call.
func (a *rawAgent) explains(t *testing.T, after string) {
	t.Helper()
	got := a.ask(t, `{"jsonrpc":"2.0","id":"after","method":"tools/call","params":{"name":"explain_nodepool","arguments":{"name":"general"}}}`)
	if got.Error != nil || got.Result.IsError || len(got.Result.Content) != 1 ||
		!strings.HasPrefix(got.Result.Content[0].Text, "nodepool general") {
		t.Fatalf("after %s, the next call is answered with %+v", after, got)
	}
}

func TestAMessageThatCannotBeReadIsAnErrorAndTheSessionGoesOn(t *testing.T) {
	a := newRawAgent(t, ofLoneNode(t)...)
	call := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"explain_nodepool","arguments":` + arguments + `}}`
	}
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, c := range []struct{ name, line, id, want string }{
		{"no JSON", "hello", "null", "the line is not JSON"},
		{"half a message", `{"jsonrpc":"2.0","id":7,"method":`, "7", "the line is not JSON"},
		{"nested deep", call(deep(200)), "7", "nested more than 100 deep"},
		{"nested deeper than decoders go", call(deep(200_000)), "7", "nested more than 100 deep"},
		{"nested deep, without end", strings.Repeat("[", 5_000_000), "null", "nested more than 100 deep"},
		{"long", call(`{"name":"` + strings.Repeat("x", 17<<20) + `"}`), "7", "longer than 16 MiB"},
		{"long, with its ID at its end", `{"a":"` + strings.Repeat("x", 17<<20) + `","id":7}`, "null", "longer than 16 MiB"},
		{"a batch", `[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, "null", "there are no batches"},
		{"an ID that is none", `{"jsonrpc":"2.0","id":{"id":7},"method":"ping"}`, "null", ""},
		{"another protocol", `{"jsonrpc":"1.0","id":"x","method":"ping"}`, `"x"`, ""},
		{"nothing of the protocol", `{"a":{"id":8},"id":9}`, "9", ""},
	} {
		got := a.ask(t, c.line)
		if got.Error == nil || string(got.ID) != c.id || !strings.Contains(got.Error.Message, c.want) {
			t.Errorf("%s: answered with ID %s and %+v, want ID %s and %q", c.name, got.ID, got.Error, c.id, c.want)
		}
		a.explains(t, c.name)
	}
}

// What is as long and as deep as allowed is read.
func TestLongMessagesAreRead(t *testing.T) {
	a := newRawAgent(t, ofLoneNode(t)...)
	got := a.ask(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"explain_nodepool","arguments":{"name":"`+
		strings.Repeat("x", 1<<20)+`"}}}`)
	if got.Error != nil || !got.Result.IsError || !strings.Contains(got.Result.Content[0].Text, "the cluster has no NodePool") {
		t.Errorf("answered with %.300v", got)
	}
}

// One call of an agent cannot make a plan that takes all memory.
func TestAgentsPlanNoMorePodsThanAClusterHas(t *testing.T) {
	a := newAgent(t, ofLoneNode(t)...)
	const template = `template: {metadata: {labels: {app: x}}, spec: {containers: [{name: main, image: x}]}}}}`
	object := func(kind, apiVersion, spec string) string {
		return fmt.Sprintf("{kind: %s, apiVersion: %s, metadata: {name: x, namespace: shop}, spec: {%s, %s", kind, apiVersion, spec, template)
	}
	for _, c := range []struct{ name, manifests, want string }{
		{
			"a Deployment", object("Deployment", "apps/v1", "replicas: 900000, selector: {matchLabels: {app: x}}"),
			"manifests:1: Deployment shop/x: spec.replicas: with its 900000 pods the inputs exceed the 150000 pods of one plan",
		},
		{"a Job", object("Job", "batch/v1", "parallelism: 900000"), "manifests:1: Job shop/x: spec.parallelism: with its 900000 pods"},
		{
			"two that are too many together",
			object("Deployment", "apps/v1", "replicas: 140000, selector: {matchLabels: {app: x}}") + "\n---\n" +
				object("StatefulSet", "apps/v1", "replicas: 140000, selector: {matchLabels: {app: x}}, serviceName: x"),
			"manifests:3: StatefulSet shop/x: spec.replicas: with its 140000 pods the inputs exceed the 150000 pods",
		},
		{"deep YAML", "a: " + strings.Repeat("[", 200_000), "manifests:1: "},
		{"YAML that grows", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n", "manifests:1: "},
		{
			"JSON with a field twice", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":1,"replicas":900000}}`,
			`manifests:1: Deployment x: field "spec.replicas" is set twice`,
		},
	} {
		if text, failed := a.call(t, "plan", map[string]any{"manifests": c.manifests}); !failed || !strings.Contains(text, c.want) {
			t.Errorf("%s: error %v, no %q in %.500q", c.name, failed, c.want, text)
		}
		if text, failed := a.call(t, "explain_nodepool", map[string]any{"name": "general"}); failed {
			t.Errorf("after %s, the next call fails: %s", c.name, text)
		}
	}
}

// Buffers of 10,000 pods each are pods of the plan, too.
func TestAgentsPlanNoMoreRoomOfBuffersThanAClusterHas(t *testing.T) {
	var manifests strings.Builder
	manifests.WriteString(`{apiVersion: v1, kind: PodTemplate, metadata: {name: t}, template: {spec: {containers: [{name: main, image: x}]}}}` + "\n")
	for i := range 16 {
		fmt.Fprintf(&manifests, "---\n{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {name: b%02d}, "+
			"spec: {replicas: 10000, podTemplateRef: {name: t}}}\n", i)
	}
	text, failed := newAgent(t, ofLoneNode(t)...).call(t, "plan", map[string]any{"manifests": manifests.String()})
	want := "manifests:31: CapacityBuffer b14: spec: with the room that it reserves for 10000 pods the inputs exceed the 150000 pods of one plan"
	if !failed || text != want {
		t.Errorf("error %v, %.500q, want %q", failed, text, want)
	}
}
