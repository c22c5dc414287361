package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/mcp"
)

// mostPlannedPods limits how many pods a plan may have with those of the manifests: an agent that errs in a number takes no more than 1
// GiB. It is how many Kubernetes supports in one cluster.
const mostPlannedPods = 150_000

// plan answers what would be launched for the pods of the cluster and of manifests. Nothing is applied.
func (f *mcpFlags) plan(ctx context.Context, manifests string, asJSON bool) (mcp.Report, error) {
	dir, err := os.MkdirTemp("", "dovetail-mcp-")
	if err != nil {
		return nil, fmt.Errorf("keep the cluster for the plan: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // of no use to anybody, and without secrets
	files, err := f.planned(ctx, dir, manifests)
	if err != nil {
		return nil, err
	}
	plan := planFlags{
		files: files, catalogFlags: f.catalogFlags, settings: f.settings, lifecycle: f.lifecycle, noTimings: true, maxPods: mostPlannedPods,
		live:   len(f.files) == 0,
		output: choice{value: map[bool]string{true: "json", false: "wide"}[asJSON]},
	}
	settings, err := plan.check()
	if err != nil {
		return nil, err
	}
	var out, notes bytes.Buffer
	// Pods without a node are a part of the answer.
	if err := plan.run(ctx, settings, planStreams{strings.NewReader(""), &out, &notes}); err != nil && !errors.Is(err, exitIncomplete) {
		return nil, errors.New(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	}
	return printedPlan{out.Bytes(), bytes.ReplaceAll(notes.Bytes(), []byte(dir+string(filepath.Separator)), nil)}, nil
}

// planned are the files of the plan: the cluster, which is read now if it is live, and the manifests.
func (f *mcpFlags) planned(ctx context.Context, dir, manifests string) ([]string, error) {
	files := slices.Clone(f.files)
	if len(files) == 0 {
		cluster, _, err := f.kube.client()
		if err != nil {
			return nil, err
		}
		file, err := os.Create(filepath.Join(dir, "cluster.yaml"))
		if err != nil {
			return nil, fmt.Errorf("keep the cluster for the plan: %w", err)
		}
		if err := errors.Join(manifest.Dump(ctx, cluster, time.Now(), file), file.Close()); err != nil {
			return nil, err
		}
		files = append(files, file.Name())
	}
	if strings.TrimSpace(manifests) == "" {
		return files, nil
	}
	file := filepath.Join(dir, "manifests")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		return nil, fmt.Errorf("keep the manifests for the plan: %w", err)
	}
	return append(files, file), nil
}

// printedPlan is a plan in the format that was requested.
type printedPlan struct{ text, notes []byte }

// Text implements report.
func (p printedPlan) Text(w io.Writer) error {
	_, err := w.Write(append(slices.Clip(p.text), p.notes...))
	return err
}

// JSON implements report.
func (p printedPlan) JSON(w io.Writer) error {
	_, err := w.Write(p.text)
	return err
}
