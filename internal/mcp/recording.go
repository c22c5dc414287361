package mcp

import (
	"context"
	"fmt"
	"io"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/text"
)

// The arguments of tools that read the recording.
type (
	decisionsQuestion struct {
		Since string `json:"since,omitempty" jsonschema:"only the last part of the recording, such as 2h (default 24h)"`
	}
	decisionQuestion struct {
		ID     string `json:"id" jsonschema:"ID of the decision, as in the list of decisions, events, annotations and logs"`
		Format string `json:"format,omitempty" jsonschema:"text (default) is for reading; json has every field"`
	}
)

const (
	// recentDecisions sets how far back the list of decisions reaches by default: the night and the day before it.
	recentDecisions = 24 * time.Hour
	// mostDecisions bounds the list, which has 200 to 300 characters for each: an agent reads all of it.
	mostDecisions = 100
)

// addRecordingTools adds the tools that read the recording of the flags.
func addRecordingTools(s *sdk.Server, a *answerer) {
	addTool(s, toolText{"decisions", "List decisions", "What the controller decided: time, ID, what, why, saving and outcome of each " +
		"decision in its recording, the oldest first."}, a.decisions)
	addTool(s, toolText{"decision", "Show a decision", "One decision of the recording: its rule with the numbers, the alternatives, the " +
		"prices, and each step of what became of it."}, a.decision)
}

// decisions lists what was decided lately.
func (a *answerer) decisions(ctx context.Context, q decisionsQuestion) (*sdk.CallToolResult, error) {
	since := recentDecisions
	if q.Since != "" {
		var err error
		if since, err = time.ParseDuration(q.Since); err != nil || since <= 0 {
			return nil, fmt.Errorf("since %q is not a duration such as 2h", q.Since)
		}
	}
	return a.fromRecording(ctx, "", func(r *recorder.Recording) (Report, error) {
		out := recentList{List: text.ListOf(r, text.Since(r, since))}
		if more := len(out.Decisions) - mostDecisions; more > 0 {
			out.Decisions, out.leftOut = out.Decisions[more:], more
		}
		return out, nil
	})
}

// recentList is a list of decisions without the oldest.
type recentList struct {
	text.List
	leftOut int
}

// Text prints a line per decision.
func (l recentList) Text(w io.Writer) error {
	if err := l.List.Text(w); err != nil {
		return err
	}
	if l.leftOut > 0 {
		fmt.Fprintf(w, "%d older decisions are left out\n", l.leftOut)
	}
	if l.Unreadable > 0 {
		fmt.Fprintln(w, text.LeftOut(l.Unreadable))
	}
	return nil
}

// decision shows a decision. Its text has what fits a screen: there can be hundreds of alternatives.
func (a *answerer) decision(ctx context.Context, q decisionQuestion) (*sdk.CallToolResult, error) {
	return a.fromRecording(ctx, q.Format, func(r *recorder.Recording) (Report, error) {
		found, err := r.Decision(q.ID)
		if err != nil {
			return nil, err
		}
		r.Account(found)
		return struct{ Report }{text.Page{Decision: found}}, nil
	})
}

func (a *answerer) fromRecording(
	ctx context.Context, format string, find func(*recorder.Recording) (Report, error),
) (*sdk.CallToolResult, error) {
	return a.answer(ctx, format, func() (Report, error) {
		recording, err := recorder.Open(a.Recording)
		if err != nil {
			return nil, err
		}
		defer recording.Close() // nothing was written
		return find(recording)
	})
}
