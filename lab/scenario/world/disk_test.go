package world

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestAFullDiskIsOneClearLine(t *testing.T) {
	died := errors.New("etcd exited (signal: aborted); last lines of /tmp/lab/etcd.log:\npanic: ...\ngoroutine 1:")
	for _, tt := range []struct {
		name   string
		err    error
		free   uint64
		failed error
		full   bool
	}{
		{"a component died, little is free", died, 3 << 20, nil, true},
		{"a component died, much is free", died, 8 << 30, nil, false},
		{"a component died, nobody knows what is free", died, 0, errors.New("gone"), false},
		{"a write failed", fmt.Errorf("write manifest: %w", syscall.ENOSPC), 8 << 30, nil, true},
		{"the log of a component says it", errors.New("etcd exited; mvcc: write /tmp/db: no space left on device"), 8 << 30, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := explainDisk(tt.err, "/tmp/lab", func(string) (uint64, error) { return tt.free, tt.failed })
			if !tt.full {
				if got.Error() != tt.err.Error() {
					t.Errorf("got %v, want the error as it was", got)
				}
				return
			}
			want := fmt.Sprintf(
				"the disk that holds /tmp/lab is full (%d MiB free, a cluster needs a few hundred): free space, or choose another disk with --state-dir or TMPDIR",
				tt.free>>20,
			)
			if got.Error() != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}
