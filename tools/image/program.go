package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// program is a binary of a release.
type program struct {
	name, source string // source is its package
	// workspace is true if it is compiled with go.work: the lab needs the code of the product's module as it is in the same commit.
	workspace bool
	platforms []string
}

var (
	// product is what the image runs and what users have on their computers, also as a kubectl plugin.
	product = program{name: "dovetail", source: "./cmd/dovetail", platforms: []string{
		"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
	}}
	lab = program{name: "dovetail-lab", source: "./lab/cmd/dovetail-lab", workspace: true, platforms: []string{
		"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64",
	}}
)

// file is the name of the binary for a platform.
func (p program) file(platform string) string {
	if strings.HasPrefix(platform, "windows/") {
		return p.name + ".exe"
	}
	return p.name
}

// archive is the name of the archive for a platform. It has no version, so that the address of the latest one is known.
func (p program) archive(platform string) string {
	return p.name + "-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
}

// archived is the archive of a binary, and its SBOM.
type archived struct{ packed, sbom []byte }

// archive compiles the binary and packs it with the texts of the licenses of all that is in it.
func (t target) archive(ctx context.Context, goroot string) (archived, error) {
	temp, err := os.MkdirTemp("", "dovetail-release-")
	if err != nil {
		return archived{}, err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	binary := filepath.Join(temp, t.program.name)
	if err := t.compile(ctx, binary); err != nil {
		return archived{}, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return archived{}, err
	}
	v := inventory{target: t, kind: archiveOf, digest: digestOf(content)}
	if v.modules, err = t.linked(ctx, binary, goroot); err != nil {
		return archived{}, err
	}
	sbom, err := v.sbom()
	if err != nil {
		return archived{}, err
	}
	license, err := os.ReadFile(filepath.Join(t.source, "LICENSE"))
	if err != nil {
		return archived{}, err
	}
	files := tree{"LICENSE": {content: license}, t.program.file(t.platform): {content: content, executable: true}}
	for name, f := range licenseTree(v.modules) {
		files[name] = f
	}
	packed, err := files.targz(t.created)
	return archived{packed, sbom}, err
}

// targz packs files for people.
func (t tree) targz(at time.Time) ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, compression)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(t.archive(packed, at), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// digestOf is the SHA-256 of a file in hex.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
