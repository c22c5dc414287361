package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// stateDir is where a world keeps its state: a directory that was requested, or a temporary one that
// remove deletes.
func stateDir(asked string) (dir string, remove func() error, err error) {
	if asked != "" {
		if dir, err = filepath.Abs(asked); err != nil {
			return "", nil, fmt.Errorf("state directory: %w", err)
		}
		return dir, func() error { return nil }, nil
	}
	if dir, err = os.MkdirTemp("", tempPrefix); err != nil {
		return "", nil, fmt.Errorf("state directory: %w (set TMPDIR, or use --state-dir)", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// dovetailBinary is the product: the one that was requested, that of the environment, or the one beside
// this program.
func dovetailBinary(asked string) (string, error) {
	path := cmp.Or(asked, os.Getenv("DOVETAIL"))
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find dovetail: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), "dovetail")
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = errors.New("it is a directory")
	}
	if err != nil {
		return "", fmt.Errorf("the dovetail binary is missing: %w (run `make build`, or pass its path with --dovetail)", err)
	}
	return filepath.Abs(path)
}

// invocation returns the path of this program, relative to the working directory if it is below it.
func invocation() string {
	self := os.Args[0]
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(self) {
		return self
	}
	if short, err := filepath.Rel(here, self); err == nil && !strings.HasPrefix(short, "..") {
		return short
	}
	return self
}
