package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolText describes how an agent knows a tool.
type toolText struct{ name, title, description string }

// answerer answers the calls of tools.
type answerer struct {
	Sources
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
	// planQuestion is about the next plan, with other manifests or without.
	planQuestion struct {
		Manifests string `json:"manifests,omitempty" jsonschema:"YAML to plan as if applied, up to 150000 pods in all; empty for the pods that are pending"`
		Format    string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
	// clusterQuestion is about the whole cluster.
	clusterQuestion struct {
		Format string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
)

// addTool adds a tool that only reads. An error of its answer is for the agent: the session goes on.
func addTool[In any](s *sdk.Server, text toolText, answer func(context.Context, In) (*sdk.CallToolResult, error)) {
	no := false
	tool := &sdk.Tool{Name: text.name, Title: text.title, Description: text.description, Annotations: &sdk.ToolAnnotations{
		ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no,
	}}
	sdk.AddTool(s, tool, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		result, err := answer(ctx, in)
		return result, nil, err
	})
}

// pod explains a pod.
func (a *answerer) pod(ctx context.Context, q podQuestion) (*sdk.CallToolResult, error) {
	if q.Namespace == "" || strings.Contains(q.Namespace, "/") {
		return nil, fmt.Errorf("namespace %q is not the name of a namespace", q.Namespace)
	}
	return a.explain(ctx, Pod, objectQuestion{Name: q.Namespace + "/" + q.Name, At: q.At, Format: q.Format})
}

// object explains objects without a namespace.
func (a *answerer) object(kind Kind) func(context.Context, objectQuestion) (*sdk.CallToolResult, error) {
	return func(ctx context.Context, q objectQuestion) (*sdk.CallToolResult, error) {
		return a.explain(ctx, kind, q)
	}
}

func (a *answerer) explain(ctx context.Context, kind Kind, q objectQuestion) (*sdk.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (Report, error) { return a.Explain(ctx, Object{kind, q.Name, q.At, q.Full}) })
}

// plan answers what would be launched for the pods of the cluster and of manifests. Nothing is applied.
func (a *answerer) plan(ctx context.Context, q planQuestion) (*sdk.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (Report, error) { return a.Plan(ctx, q.Manifests, q.Format == "json") })
}

// assess computes what the cluster costs, and would cost.
func (a *answerer) assess(ctx context.Context, q clusterQuestion) (*sdk.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (Report, error) { return a.Assess(ctx) })
}

// doctor makes the checks of the doctor.
func (a *answerer) doctor(ctx context.Context, q clusterQuestion) (*sdk.CallToolResult, error) {
	return a.answer(ctx, q.Format, func() (Report, error) { return a.Doctor(ctx) })
}

// answer prints what find returns in a format.
func (a *answerer) answer(ctx context.Context, format string, find func() (Report, error)) (*sdk.CallToolResult, error) {
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
		return a.Print(&text, found)
	})
	if err != nil {
		return nil, err
	}
	result := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text.String()}}}
	if format == "json" {
		result.StructuredContent = json.RawMessage(text.String())
	}
	return result, nil
}

// alone does the work of one call at a time, since each reads the whole cluster: 0.4 GiB for 2,000 nodes and 20,000 pods. If the
// agent withdraws the call, alone returns; the work finishes by itself, and the next call waits for it. What the call took goes back to the
// system: the agent may keep the server for days, and query once.
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
		if crashed := a.Recover(func() { err = work() }); crashed != nil {
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
