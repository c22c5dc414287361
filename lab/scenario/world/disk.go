package world

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// minFreeBytes is below how many free bytes a disk counts as full: etcd allocates its log in files of 64 MB, and exits
// if it cannot.
const minFreeBytes = 64 << 20

// FullDiskError means that the disk of the state directory is full, so that a world cannot run.
type FullDiskError struct {
	Dir  string
	Free uint64 // bytes
}

func (e *FullDiskError) Error() string {
	return fmt.Sprintf(
		"the disk that holds %s is full (%d MiB free, a cluster needs a few hundred): free space, or choose another disk with --state-dir or TMPDIR",
		e.Dir,
		e.Free>>20,
	)
}

// Explain is a failure of a world, in one line if a full disk is its cause: what the components then state of it is long,
// and different each time.
func (w *World) Explain(err error) error {
	if err == nil {
		return nil
	}
	return explainDisk(err, w.cfg.Dir, freeBytes)
}

// CheckDisk is a FullDiskError if the disk of the state directory is full. Components that run may go on for a while
// then.
func (w *World) CheckDisk() error {
	if left, err := freeBytes(w.cfg.Dir); err == nil && left < minFreeBytes {
		return &FullDiskError{Dir: w.cfg.Dir, Free: left}
	}
	return nil
}

// explainDisk takes free as how many bytes are free on the disk of a directory.
func explainDisk(err error, dir string, free func(dir string) (uint64, error)) error {
	left, unknown := free(dir)
	noSpace := errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "no space left on device")
	if noSpace || unknown == nil && left < minFreeBytes {
		return &FullDiskError{Dir: dir, Free: left}
	}
	return err
}

func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}
