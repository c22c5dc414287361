package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"
	"weak"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// maxQueue is how many parts of passes wait to be written. The lists of a pass stay in memory until its part is written.
	maxQueue = 16
	// maxStepQueue is how many steps wait: a few hundred bytes each.
	// A process that starts records those of all claims.
	maxStepQueue = 1 << 14
	// idleInterval is how often a pass is recorded that decided nothing, although it saw changes: the fleet can then be shown at
	// each minute.
	idleInterval = time.Minute
	// minRetry and maxRetry bound the pause after an error of the file.
	minRetry, maxRetry = 10 * time.Second, 10 * time.Minute
	// memorySize bounds a recording in memory, in bytes, whatever the size configured.
	memorySize = 32 << 20
	// MinSize is the smallest size of a recording in bytes.
	MinSize = 1 << 20
)

// Config configures a Recorder.
type Config struct {
	// Path of the file; empty records in memory.
	Path string
	// Size that the file never exceeds, in bytes.
	Size    int64
	Version string
	Log     *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
	// NodeClasses lists the EC2NodeClasses now, none of which is changed; nil lists none.
	NodeClasses func() []*awsv1.EC2NodeClass
	// Prices states where prices come from now; nil states nothing.
	Prices func() []PriceSource
}

// Recorder records passes, decisions and steps. It is safe for concurrent use. A nil Recorder records nothing.
type Recorder struct {
	cfg   Config
	queue chan *job
	steps chan Step
	// deletions wait as steps do.
	deletions chan destroy.Record
	// closed stops the writer, done is closed when it has finished.
	closed, done chan struct{}
	writer       *writer

	mu      sync.Mutex
	tracker *tracker
	// restart makes the next part a keyframe: the writer has lost one.
	restart bool
	// pending counts the parts that are queued or being written, keyframes those of them that are keyframes.
	pending, keyframes int
	// last is closed when the last part that was queued is written, or lost; nil before the first. Parts are written in order.
	last chan struct{}
	// retryAt is when the file is tried again after an error; failures counts errors in a row.
	retryAt  time.Time
	failures int
	// hanging is true from a decision that has waited too long for its record until the writer has written.
	hanging bool
	// recorded is the time of the last part with state.
	recorded time.Time
	// sources are what the snapshots in use were built from.
	sources map[weak.Pointer[snapshot.Snapshot]]source
	ids     idSource
}

// source is what a snapshot was built from.
type source struct {
	objects *cluster.Objects
	facts   *cluster.Facts
}

// job is what the writer writes: a part, and the decisions in it, which are alone if the part is nil. Done is closed once it is written,
// or lost.
type job struct {
	part      *part
	decisions []Decision
	done      chan struct{}
}

// New opens the recording and starts the writer. A file that cannot be used does not stop it: the recording is then in memory, and
// the log reports it.
func New(cfg Config) (*Recorder, error) {
	if cfg.Size < MinSize {
		return nil, fmt.Errorf("the recording needs at least %d bytes", int64(MinSize))
	}
	w, err := newWriter(&cfg)
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		cfg: cfg, queue: make(chan *job, maxQueue), steps: make(chan Step, maxStepQueue),
		deletions: make(chan destroy.Record, maxStepQueue), closed: make(chan struct{}),
		done: make(chan struct{}), writer: w, tracker: newTracker(), sources: map[weak.Pointer[snapshot.Snapshot]]source{},
	}
	go r.run()
	return r, nil
}

// Saw notes what a snapshot was built from, as long as the snapshot is in use. It changes none of its arguments.
func (r *Recorder) Saw(s *snapshot.Snapshot, objects *cluster.Objects, facts *cluster.Facts) {
	if r == nil {
		return
	}
	key := weak.Make(s)
	r.mu.Lock()
	r.sources[key] = source{objects, facts}
	r.mu.Unlock()
	runtime.AddCleanup(s, r.drop, key)
}

func (r *Recorder) drop(key weak.Pointer[snapshot.Snapshot]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sources, key)
}

// Step records a step of an outcome.
func (r *Recorder) Step(s Step) {
	if r == nil || s.Decision == "" {
		return
	}
	if s.At.IsZero() {
		s.At = r.cfg.Now()
	}
	s.At = s.At.UTC()
	select {
	case r.steps <- s:
	default:
		r.cfg.Metrics.drop("step", "queue")
	}
}

// Deletion records what was deleted, and the proofs.
func (r *Recorder) Deletion(d destroy.Record) {
	if r == nil {
		return
	}
	select {
	case r.deletions <- d:
	default:
		r.cfg.Metrics.drop("deletion", "queue")
	}
}

// enqueue hands a part, which may be nil, and decisions to the writer. It returns nil if there is no room, or recording pauses.
func (r *Recorder) enqueue(p *part, decisions []Decision) *job {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	switch {
	case now.Before(r.retryAt):
		r.cfg.Metrics.drop("pass", "file")
		return nil
	case r.pending == maxQueue:
		r.cfg.Metrics.drop("pass", "queue")
		return nil
	}
	if p != nil && p.number == 0 {
		if r.restart {
			r.tracker.forget()
			r.restart = false
		}
		p.changes = r.tracker.diff(&seen{p.objects, p.nodeClasses})
		r.recorded = now
		if p.changes.keyframe {
			r.keyframes++
		}
	}
	r.pending++
	j := &job{p, decisions, make(chan struct{})}
	r.last = j.done
	r.queue <- j // which has room
	return j
}

// hangs reports whether it is no use to wait for the writer.
func (r *Recorder) hangs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hanging
}

// hung notes that a decision has waited too long for its record, unless it was written just now.
func (r *Recorder) hung(id string, record *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-record.done:
		return
	default:
		r.hanging = true
	}
	r.cfg.Log.Warn("the disk of the recording does not answer; decisions are carried out before they are recorded", "path", r.cfg.Path,
		"decision-id", id, "waited", commitTimeout.String())
}

// idle reports whether a pass without calls need not be recorded.
func (r *Recorder) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Now().Sub(r.recorded) < idleInterval
}

// run writes until Close.
func (r *Recorder) run() {
	defer close(r.done)
	for {
		select {
		case j := <-r.queue:
			r.write(j)
		case s := <-r.steps:
			r.writeSteps(s)
		case d := <-r.deletions:
			r.writeDeletions(d)
		case <-r.closed:
			for {
				select {
				case j := <-r.queue:
					r.write(j)
				case s := <-r.steps:
					r.writeSteps(s)
				case d := <-r.deletions:
					r.writeDeletions(d)
				default:
					r.writer.close()
					return
				}
			}
		}
	}
}

func (r *Recorder) write(j *job) {
	due, err := r.writer.write(j)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(j.done) // while it is locked: see hung
	r.pending--
	r.hanging = false
	if j.part != nil && j.part.changes.keyframe {
		r.keyframes--
	}
	r.restart = r.restart || due && r.keyframes == 0
	switch {
	case errors.Is(err, errBroken): // the error before it has been reported
		r.cfg.Metrics.drop("pass", "file")
	case err != nil:
		r.failed(err, "pass")
	default:
		r.failures = 0
	}
}

// failed pauses recording, longer each time.
func (r *Recorder) failed(err error, what string) {
	pause := backoff.Doubling{First: minRetry, Max: maxRetry}.After(r.failures)
	r.failures++
	r.retryAt = r.cfg.Now().Add(pause)
	reason := "file"
	switch {
	case errors.Is(err, errTooLarge):
		reason = "size"
	case errors.Is(err, errDefect):
		reason = "defect"
	}
	r.cfg.Metrics.drop(what, reason)
	r.cfg.Log.Error("recording pauses; decisions go on", "path", r.cfg.Path, "error", err, "retry-after", pause.String())
}

func (r *Recorder) writeSteps(first Step) {
	steps := waiting(first, r.steps)
	r.writeList(frame{kind: kindSteps, at: first.At.UnixNano()}, "step", steps, len(steps))
}

func (r *Recorder) writeDeletions(first destroy.Record) {
	deletions := waiting(first, r.deletions)
	r.writeList(frame{kind: kindDeletions, at: first.At.UnixNano()}, "deletion", deletions, len(deletions))
}

// waiting returns what is queued now.
func waiting[T any](first T, queue <-chan T) []T {
	out := []T{first}
	for len(out) < maxStepQueue {
		select {
		case next := <-queue:
			out = append(out, next)
			continue
		default:
		}
		break
	}
	return out
}

// writeList writes a list of n, each of which is what metrics call it, into a frame.
func (r *Recorder) writeList(f frame, what string, list any, n int) {
	if r.paused() {
		for range n {
			r.cfg.Metrics.drop(what, "file")
		}
		return
	}
	data, err := json.Marshal(list)
	if err == nil {
		err = r.writer.append(&f, data)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed(err, what)
	}
}

// paused reports whether the file is left alone after an error.
func (r *Recorder) paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Now().Before(r.retryAt)
}

// closeTimeout is how long Close waits for a slow disk.
const closeTimeout = 5 * time.Second

// Close writes what is queued and closes the file.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	close(r.closed)
	select {
	case <-r.done:
	case <-time.After(closeTimeout):
	}
}

// idSource makes IDs: milliseconds since 1970 in base 36, but each later than the last.
type idSource struct {
	mu   sync.Mutex
	last int64
}

func (s *idSource) next(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, now.UnixMilli())
	return strconv.FormatInt(s.last, 36)
}
