package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// toolText is how an agent knows a tool.
type toolText struct{ name, title, description string }

// answerer answers the calls of tools.
type answerer struct {
	*mcpFlags
	// turn has room for the call that reads the cluster: see alone.
	turn chan struct{}
}

// The arguments of tools. Their tags are what the agent reads.
type (
	podQuestion struct {
		Namespace string `json:"namespace" jsonschema:"namespace of the pod"`
		Name      string `json:"name" jsonschema:"name of the pod"`
		At        string `json:"at,omitempty" jsonschema:"a time (RFC 3339) or the ID of a decision: explain what was then, from the recording"`
		Format    string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
	objectQuestion struct {
		Name   string `json:"name" jsonschema:"name of the object"`
		At     string `json:"at,omitempty" jsonschema:"a time (RFC 3339) or the ID of a decision: explain what was then, from the recording"`
		Full   bool   `json:"full,omitempty" jsonschema:"search for cheaper nodes as far as the controller does: up to a minute (--full)"`
		Format string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
	// clusterQuestion is about the whole cluster.
	clusterQuestion struct {
		Format string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
)

// addTool adds a tool that only reads. An error of its answer is for the agent: the session goes on.
func addTool[In any](s *mcp.Server, text toolText, answer func(context.Context, In) (*mcp.CallToolResult, error)) {
	no := false
	tool := &mcp.Tool{Name: text.name, Title: text.title, Description: text.description, Annotations: &mcp.ToolAnnotations{
		ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no,
	}}
	mcp.AddTool(s, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		result, err := answer(ctx, in)
		return result, nil, err
	})
}

// pod explains a pod.
func (a *answerer) pod(ctx context.Context, q podQuestion) (*mcp.CallToolResult, error) {
	if q.Namespace == "" || strings.Contains(q.Namespace, "/") {
		return nil, fmt.Errorf("namespace %q is not the name of a namespace", q.Namespace)
	}
	return a.explain(ctx, explainPod, objectQuestion{Name: q.Namespace + "/" + q.Name, At: q.At, Format: q.Format})
}

// object explains objects without a namespace.
func (a *answerer) object(
	explain func(*inspect.View, string) (printer, error),
) func(context.Context, objectQuestion) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, q objectQuestion) (*mcp.CallToolResult, error) {
		return a.explain(ctx, explain, q)
	}
}

func (a *answerer) explain(
	ctx context.Context, explain func(*inspect.View, string) (printer, error), q objectQuestion,
) (*mcp.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (printer, error) {
		defer gctuning.Tune(gctuning.SearchGrowth)()
		view, err := a.view(ctx, q.At)
		if err != nil {
			return nil, err
		}
		view.Search = a.searchSettings(q.Full)
		return explain(view, q.Name)
	})
}

// view is the cluster now, or what the controller saw at a time.
func (a *answerer) view(ctx context.Context, at string) (*inspect.View, error) {
	if at != "" {
		return a.recorded(at)
	}
	return a.readWithin(ctx, strings.NewReader(""))
}

// assess computes what the cluster costs, and would cost.
func (a *answerer) assess(ctx context.Context, q clusterQuestion) (*mcp.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (printer, error) {
		defer gctuning.Tune(gctuning.SearchGrowth)()
		f := assessFlags{viewFlags: a.viewFlags, clusterName: a.clusterName, spotToSpot: a.spotToSpot}
		view, err := f.readWithin(ctx, strings.NewReader(""))
		if err != nil {
			return nil, err
		}
		return f.assess(ctx, view)
	})
}

// doctor makes the checks of the doctor.
func (a *answerer) doctor(ctx context.Context, q clusterQuestion) (*mcp.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (printer, error) { return a.answerDoctor(ctx) })
}

// diagnosis is the doctor's report. Its text leaves out what is only for information.
type diagnosis struct{ doctor.Report }

// Text prints it for people.
func (d diagnosis) Text(w io.Writer) error { return d.At(doctor.Warning).WideTable(w) }

// answer prints what find returns in a format.
func (a *answerer) answer(ctx context.Context, format string, find func() (printer, error)) (*mcp.CallToolResult, error) {
	if format != "" && format != "text" && format != "json" {
		return nil, fmt.Errorf("format %q is neither text nor json", format)
	}
	var text strings.Builder
	err := a.alone(ctx, func() error {
		found, err := find()
		switch {
		case err != nil:
			return err
		case format == "json":
			return found.JSON(&text)
		}
		return forTerminal(wideText(found))(&text)
	})
	if err != nil {
		return nil, err
	}
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text.String()}}}
	if format == "json" {
		result.StructuredContent = json.RawMessage(text.String())
	}
	return result, nil
}

// alone does the work of one call at a time, since each reads the whole cluster: 0.4 GiB for 2,000 nodes and 20,000 pods. If the
// agent withdraws the call, alone returns; the work ends by itself, and the next call waits for it. What the call took goes back to the
// system: the agent may keep the server for days, and ask once.
func (a *answerer) alone(ctx context.Context, work func() error) error {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-a.turn }()
		var err error
		if crashed := solved(func() { err = work() }); crashed != nil {
			err = crashed
		}
		done <- err
		debug.FreeOSMemory()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
