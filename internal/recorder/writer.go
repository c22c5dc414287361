package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
)

// writer writes frames, one at a time.
type writer struct {
	ring    *ring
	encoder *encoder
	metrics *Metrics
	// base and prev are the last keyframe and the last frame with state. keyBytes and deltaBytes are what the keyframe and the
	// frames after it take.
	base, prev           uint64
	keyBytes, deltaBytes int64
	// broken is true after a part was lost: what follows is a difference from it, until the next keyframe. That holds for a part
	// without state, too: a result that equals the last one of its call is left out.
	broken bool
}

// errBroken is the error of a part that cannot be read without one that was lost.
var errBroken = errors.New("the part before it was lost")

// newWriter opens the file, or memory where there is none or it cannot be used.
func newWriter(cfg *Config) (*writer, error) {
	e, err := newEncoder()
	if err != nil {
		return nil, err
	}
	w := &writer{encoder: e, metrics: cfg.Metrics}
	if cfg.Path != "" {
		if w.ring, err = openFile(cfg); err == nil {
			return w, nil
		}
		cfg.Log.Error("the recording is in memory, and ends with this process", "path", cfg.Path, "error", err)
	}
	w.ring, err = openRing(&memory{}, 0, min(cfg.Size, memorySize))
	return w, err
}

// openFile opens the file of the recording. A file that is none is renamed, and a new one begun.
func openFile(cfg *Config) (*ring, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, err
	}
	r, err := openExisting(cfg)
	if !errors.Is(err, errDamaged) {
		return r, err
	}
	aside := cfg.Path + ".damaged"
	cfg.Log.Error("the recording cannot be read; a new one begins", "path", cfg.Path, "kept-as", aside, "error", err)
	if err := os.Rename(cfg.Path, aside); err != nil {
		return nil, err
	}
	return openExisting(cfg)
}

func openExisting(cfg *Config) (*ring, error) {
	file, err := os.OpenFile(cfg.Path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	r, err := lockAndScan(file, cfg.Size)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func lockAndScan(file *os.File, size int64) (*ring, error) {
	if err := lockFile(file); err != nil {
		return nil, fmt.Errorf("another process records to it: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > size {
		if err := file.Truncate(size); err != nil {
			return nil, err
		}
	}
	return openRing(file, min(info.Size(), size), size)
}

// errDefect is the error of a part that makes the encoder panic.
var errDefect = errors.New("recording panics, which is a defect of Dovetail")

// write writes a part and its decisions. keyframe is true if the next part must be one. A panic becomes an error: recording is no
// reason to end the process that decides.
func (w *writer) write(j *job) (keyframe bool, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			w.broken, keyframe, err = true, true, fmt.Errorf("%w: %v\n%s", errDefect, panicked, debug.Stack())
		}
	}()
	if j.part != nil {
		err = w.writePart(j.part)
	}
	if err == nil || errors.Is(err, errBroken) { // decisions can be read without what the pass saw
		err = errors.Join(err, w.writeDecisions(j.decisions))
	}
	return err != nil || w.keyframeDue(), err
}

func (w *writer) writeDecisions(decisions []Decision) error {
	if len(decisions) == 0 {
		return nil
	}
	data, err := json.Marshal(decisions)
	if err != nil {
		return err
	}
	f := &frame{kind: kindDecisions, at: decisions[0].At.UnixNano()}
	if err := w.append(f, w.encoder.zstd.EncodeAll(data, nil)); err != nil {
		return err
	}
	w.metrics.countDecisions(len(decisions))
	return nil
}

// writePart writes a part, unless it depends on one that was lost.
func (w *writer) writePart(p *part) error {
	if w.broken && !p.changes.keyframe {
		return errBroken
	}
	err := w.writeFrame(p)
	w.broken = err != nil
	return err
}

func (w *writer) writeFrame(p *part) error {
	data, err := w.encoder.encode(p)
	if err != nil {
		return err
	}
	f := &frame{
		kind: kindDelta, base: w.base, prev: w.prev, at: p.pass.Now.UnixNano(),
		pass: crc32.Checksum([]byte(p.pass.ID), castagnoli), part: uint8(min(p.number, 255)),
	}
	if p.number == 0 && p.changes.keyframe {
		f.kind, f.base, f.prev = kindKeyframe, 0, 0
		if frameHeaderSize+int64(len(data)) > w.ring.size/4 {
			return fmt.Errorf("%w: what one pass sees takes %d bytes; raise --recorder-size to at least eight times that",
				errTooLarge, len(data))
		}
	}
	if err := w.append(f, data); err != nil {
		return err
	}
	w.metrics.countPass()
	switch {
	case f.kind == kindKeyframe:
		w.base, w.keyBytes, w.deltaBytes = f.seq, f.length(), 0
	default:
		w.deltaBytes += f.length()
	}
	if f.hasState() {
		w.prev = f.seq
	}
	return nil
}

// keyframeDue reports whether a new keyframe is due. Frames before it can be read only as long as their keyframe is not overwritten,
// so a keyframe with its frames takes a quarter of the file at most. Up to four times the keyframe are worth it.
func (w *writer) keyframeDue() bool {
	return w.keyBytes+w.deltaBytes > w.ring.size/4 || w.deltaBytes > 4*w.keyBytes+1<<20
}

func (w *writer) append(f *frame, data []byte) error {
	if err := w.ring.append(f, data); err != nil {
		return err
	}
	w.metrics.wrote(f.length())
	return nil
}

func (w *writer) close() { _ = w.ring.file.Close() } // each frame has been written
