package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// verify builds the image again from a copy of the sources in another directory, with an empty build cache, and compares digests.
func verify(ctx context.Context, o options, out io.Writer) error {
	if err := errors.Join(o.checkPlatforms(imagePlatforms), checkToolchain(o.root)); err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(o.out, digestName))
	if err != nil {
		return fmt.Errorf("%w: run make image first", err)
	}
	r, err := readRelease(ctx, o.root)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "dovetail-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	r.source = filepath.Join(temp, "sources")
	if err := copySources(ctx, o.root, r.source); err != nil {
		return err
	}
	if err := os.Setenv("GOCACHE", filepath.Join(temp, "cache")); err != nil {
		return err
	}
	o.out = filepath.Join(temp, "image")
	got, err := r.build(ctx, o)
	if err != nil {
		return err
	}
	if want := strings.TrimSpace(string(want)); got.String() != want {
		return fmt.Errorf("not reproducible: %s was built before, and %s now", want, got)
	}
	_, err = fmt.Fprintln(out, "reproduced", got)
	return err
}

// copySources copies the files that git knows, as they are in the working tree.
func copySources(ctx context.Context, root, to string) error {
	list, err := output(ctx, root, nil, "git", "ls-files", "-z")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
