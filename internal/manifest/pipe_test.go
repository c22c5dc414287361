//go:build unix

package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A pipe in a directory would block a command forever: nobody writes to it.
func TestPipesInADirectoryAreNotRead(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "pods.yaml"), filepath.Join(dir, "pipe.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "device.yaml")); err != nil {
		t.Fatal(err)
	}
	got, err := sources(dir)
	if err != nil || !slices.Equal(got, []string{file}) {
		t.Errorf("read are %v (%v), want the file alone", got, err)
	}
	if got, err := sources(pipe); err != nil || !slices.Equal(got, []string{pipe}) {
		t.Errorf("a pipe that is named: read are %v (%v)", got, err)
	}
}
