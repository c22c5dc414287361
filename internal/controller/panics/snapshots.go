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
	// kept is how many snapshots stay: the first of a kind tells most, and a few kinds are all that anybody reads.
	kept = 3
	// largest is the size of one at most. 60,000 pods are about 100 MB; the volume of the chart holds three such.
	largest = 128 << 20
	// often is the least time between two snapshots of the same pass: a defect that recurs adds nothing but load.
	often = 10 * time.Minute
	// writeTimeout is how long the writing of one may take: pods wait for the plan that comes after it.
	writeTimeout = 30 * time.Second
)

// prefix and suffix make the name of a snapshot; between them are the time and the pass.
const prefix, suffix = "dovetail-panic-", ".yaml"

var errTooLarge = errors.New("the snapshot is too large to keep")

// Snapshots keeps the last few clusters on which planning panicked, as files that `dovetail plan -f` reads.
type Snapshots struct {
	// Dir is where they are.
	Dir string
	// Write writes the cluster without what is secret.
	Write func(ctx context.Context, w io.Writer) error
	Now   func() time.Time
	// Largest is the number of bytes of one at most; 0 stands for the default.
	Largest int64

	mu   sync.Mutex
	last map[string]string
	at   map[string]time.Time
}

// Keep writes a snapshot and returns its path, or that of the last one of the same pass if that is young.
func (s *Snapshots) Keep(ctx context.Context, pass string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if last := s.last[pass]; last != "" && now.Sub(s.at[pass]) < often {
		return last, nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", fmt.Errorf("keep the snapshot of a panic: %w", err)
	}
	if err := s.prune(kept - 1); err != nil {
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

// write makes a file that only its owner can read. One that cannot be written to its end is removed.
func (s *Snapshots) write(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	room := s.Largest
	if room == 0 {
		room = largest
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = Error(func() error { return s.Write(ctx, &bounded{w: f, room: room}) })
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path) // the first error tells more
	}
	return err
}

// prune removes the oldest snapshots but for n. Their names begin with the time.
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

// bounded refuses to write more than there is room for.
type bounded struct {
	w    io.Writer
	room int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.room {
		return 0, errTooLarge
	}
	n, err := b.w.Write(p)
	b.room -= int64(n)
	return n, err
}
