package panics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxSnapshots limits how many snapshots are kept: the chart's volume holds three of the maximum size, and a few
	// suffice to reproduce a defect.
	maxSnapshots = 3
	// maxSnapshotBytes is the maximum size of a snapshot. 60,000 pods are about 100 MB.
	maxSnapshotBytes = 128 << 20
	// minSnapshotInterval is the minimum time between snapshots of the same pass: a recurring defect needs no second
	// one.
	minSnapshotInterval = 10 * time.Minute
	// writeTimeout bounds the write of a snapshot, since pods wait for the plan after it.
	writeTimeout = 30 * time.Second
)

// prefix and suffix of a snapshot's file name; between them are the time and the pass.
const prefix, suffix = "dovetail-panic-", ".yaml"

var errTooLarge = errors.New("the snapshot is too large to keep")

// Snapshots keeps snapshots of the cluster at the last panics of planning, as files that `dovetail plan -f` reads.
type Snapshots struct {
	// Dir is the directory of the files.
	Dir string
	// Write writes the cluster's objects without secrets.
	Write func(ctx context.Context, w io.Writer) error
	Now   func() time.Time
	// MaxBytes is the maximum size of a snapshot; 0 means the default.
	MaxBytes int64

	mu   sync.Mutex
	last map[string]string
	at   map[string]time.Time
}

// Keep writes a snapshot and returns its path, or the path of the last one of the same pass if that is recent.
func (s *Snapshots) Keep(ctx context.Context, pass string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if last := s.last[pass]; last != "" && now.Sub(s.at[pass]) < minSnapshotInterval {
		return last, nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", fmt.Errorf("keep the snapshot of a panic: %w", err)
	}
	if err := s.prune(maxSnapshots - 1); err != nil {
		return "", fmt.Errorf("keep the snapshot of a panic: %w", err)
	}
	path := filepath.Join(s.Dir, prefix+now.UTC().Format("20060102T150405.000")+"-"+pass+suffix)
	if err := s.write(ctx, path); err != nil {
		return "", fmt.Errorf("keep the snapshot of a panic in %s: %w", path, err)
	}
	if s.last == nil {
		s.last, s.at = map[string]string{}, map[string]time.Time{}
	}
	s.last[pass], s.at[pass] = path, now
	return path, nil
}

// write creates a file that only its owner can read. It removes a file that it could not write completely.
func (s *Snapshots) write(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	limit := s.MaxBytes
	if limit == 0 {
		limit = maxSnapshotBytes
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = Error(func() error { return s.Write(ctx, &limitedWriter{w: f, remaining: limit}) })
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path) // the first error is the cause
	}
	return err
}

// prune removes all but the n newest snapshots. File names sort by time.
func (s *Snapshots) prune(n int) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range names[:max(0, len(names)-n)] {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// limitedWriter fails writes beyond its limit.
type limitedWriter struct {
	w         io.Writer
	remaining int64
}

func (b *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.remaining {
		return 0, errTooLarge
	}
	n, err := b.w.Write(p)
	b.remaining -= int64(n)
	return n, err
}
