// Package clusters puts together what a command finds in several clusters: one table, one document, one exit code.
package clusters

import (
	"context"
	"io"
	"sync"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Result describes what was found in a cluster, or why nothing was.
type Result[R any] struct {
	// Context is the context of the kubeconfig file.
	Context string `json:"context"`
	// Error states why there is no report; empty if there is one.
	Error  string `json:"error,omitempty"`
	Report *R     `json:"report,omitempty"`
	// Server is the address of the API server: several contexts may have one. It is empty if it is not known.
	Server string `json:"-"`
}

// Each examines clusters, so many at a time, and returns the results in the order of the contexts. An error of one cluster stops no
// other. It finishes early, with the error of ctx in the results that are missing, if ctx does.
func Each[R any](ctx context.Context, contexts []string, atOnce int, examine func(context.Context, string) (*R, error)) []Result[R] {
	out := make([]Result[R], len(contexts))
	turns := make(chan struct{}, max(atOnce, 1))
	var running sync.WaitGroup
	for i, name := range contexts {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			out[i] = Result[R]{Context: name}
			err := ctx.Err()
			if err == nil {
				out[i].Report, err = examine(ctx, name)
			}
			if err != nil {
				out[i].Report, out[i].Error = nil, err.Error()
			}
		})
	}
	running.Wait()
	return out
}

// Failed counts the clusters without a report.
func Failed[R any](results []Result[R]) (n int) {
	for _, r := range results {
		if r.Report == nil {
			n++
		}
	}
	return n
}

// List is the results for programs.
type List[R any] struct {
	Kind     string      `json:"-"` // of the reports
	Clusters []Result[R] `json:"clusters"`
}

// JSON writes the results for programs.
func (l List[R]) JSON(w io.Writer) error { return report.JSON(w, l.Kind+"List", l) }
