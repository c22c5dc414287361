package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// options are the flags.
type options struct {
	root, out string
	platforms []string
}

// checkPlatforms is an error if a platform is not one of those that can be built for, or is named twice, or there is none.
func (o options) checkPlatforms(known []string) error {
	for i, platform := range o.platforms {
		if !slices.Contains(known, platform) {
			return fmt.Errorf("-platforms: %q is not one of %s", platform, strings.Join(known, ", "))
		}
		if slices.Contains(o.platforms[:i], platform) {
			return fmt.Errorf("-platforms: %q is named twice", platform)
		}
	}
	if len(o.platforms) == 0 {
		return errors.New("-platforms: there is none")
	}
	return nil
}

// release is what an image is built from: everything that its digest depends on, besides the sources.
type release struct {
	version  string    // as git describes the commit; with the suffix -dirty if files differ from it
	revision string    // the commit
	created  time.Time // when it was committed, or SOURCE_DATE_EPOCH
	source   string    // directory of the sources, as an absolute path
}

// abbreviation is how many digits of a commit the version has. By default it depends on how many objects a clone has.
const abbreviation = "12"

// readRelease reads the commit that is checked out.
func readRelease(ctx context.Context, root string) (release, error) {
	git := func(args ...string) (string, error) {
		return output(ctx, root, nil, "git", args...)
	}
	version, err1 := git("describe", "--tags", "--always", "--dirty", "--abbrev="+abbreviation)
	revision, err2 := git("rev-parse", "HEAD")
	committed, err3 := git("log", "-1", "--format=%ct")
	if err := errors.Join(err1, err2, err3); err != nil {
		return release{}, fmt.Errorf("read the commit to build: %w", err)
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		committed = epoch
	}
	source, err := filepath.Abs(root)
	if err != nil {
		return release{}, err
	}
	seconds, err := strconv.ParseInt(committed, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", committed)
	}
	return release{version: version, revision: revision, created: time.Unix(seconds, 0).UTC(), source: source}, nil
}

// tag is the version as charts and registries write it.
func (r release) tag() string { return strings.TrimPrefix(r.version, "v") }

// checkToolchain is an error unless this program runs with the toolchain that go.mod pins. Another one compiles and compresses
// differently.
func checkToolchain(root string) error {
	path := filepath.Join(root, "tools", "image", "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return err
	}
	if file.Toolchain == nil {
		return fmt.Errorf("%s pins no toolchain", path)
	}
	if pinned := file.Toolchain.Name; runtime.Version() != pinned {
		return fmt.Errorf("images are built with %s, this is %s: run make image, or set GOTOOLCHAIN=%s", pinned, runtime.Version(), pinned)
	}
	return nil
}

// target compiles a program for one platform.
type target struct {
	release
	program  program
	platform string // such as linux/amd64
}

// environ fixes all that the compiler's result depends on, besides its version.
func (t target) environ() []string {
	system, arch, _ := strings.Cut(t.platform, "/")
	workspace := "off"
	if t.program.workspace {
		workspace = filepath.Join(t.source, "go.work")
	}
	return append(os.Environ(),
		"GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK="+workspace,
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	)
}

// flags are those that each package is compiled with. The Makefile has the same, so that it compiles nothing twice. The
// tag leaves out the debugging pages of gRPC: their templates call methods by name, for which the linker would keep every
// method of the AWS SDK (122 MB instead of 87 MB).
var flags = []string{
	"-trimpath", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false", "-gcflags=github.com/aws/aws-sdk-go-v2/service/...=-dwarf=false -l",
}

// compile writes the binary into a file. It has neither paths nor times of this host. It has no symbol table, which only a
// debugger needs: the stack of a panic is complete without it.
func (t target) compile(ctx context.Context, to string) error {
	linked := "-s -w -X main.version=" + t.version + " -X main.commit=" + t.revision[:12]
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-buildvcs=false", "-ldflags", linked, "-o", to}, flags...)
	_, err = output(ctx, t.source, t.environ(), "go", append(args, t.program.source)...)
	if err != nil {
		return fmt.Errorf("compile %s for %s: %w", t.program.name, t.platform, err)
	}
	return nil
}

// output runs a program in a directory, and returns what it prints.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, notes bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &notes
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, notes.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}
