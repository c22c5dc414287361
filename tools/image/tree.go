package main

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree is the files of a layer by path, without a leading slash. Everything belongs to root and is read-only for the user of the image.
type tree map[string]file

// file is a file of a layer.
type file struct {
	content    []byte
	executable bool
}

// directories are all directories of the tree.
func (t tree) directories() map[string]bool {
	out := map[string]bool{}
	for name := range t {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			out[dir] = true
		}
	}
	return out
}

// archive writes the tree as a tar file: entries sorted by name, all with one time. Directories in temporary can be written by all users.
func (t tree) archive(to io.Writer, at time.Time, temporary ...string) error {
	directories := t.directories()
	for _, dir := range temporary {
		directories[dir] = true
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(t)), maps.Keys(directories))
	slices.Sort(names)
	w := tar.NewWriter(to)
	for _, name := range names {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(t[name].content)), Mode: 0o644, ModTime: at}
		switch {
		case slices.Contains(temporary, name):
			h.Name, h.Typeflag, h.Mode = name+"/", tar.TypeDir, 0o1777
		case directories[name]:
			h.Name, h.Typeflag, h.Mode = name+"/", tar.TypeDir, 0o755
		case t[name].executable:
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(t[name].content); err != nil {
			return err
		}
	}
	return w.Close()
}

// layer compresses the tree into a layer.
func (t tree) layer(at time.Time, temporary ...string) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := t.archive(&packed, at, temporary...); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(compression),
		tarball.WithCompressedCaching)
}
