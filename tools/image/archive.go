package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// extract unpacks a tar file into a directory. Links and special files are errors: an image of ours has none.
func extract(from io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // only a handle
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(h.Name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = root.WriteFile(name, content, h.FileInfo().Mode().Perm())
			}
		default:
			err = errors.New("not a file or a directory")
		}
		if err != nil {
			return fmt.Errorf("extract %s: %w", h.Name, err)
		}
	}
}

// openArchive unpacks an archive into an empty directory, and reads the image in it.
func openArchive(path, dir string) (v1.ImageIndex, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: run make image first", err)
	}
	defer file.Close() // only read
	if err := extract(file, dir); err != nil {
		return nil, err
	}
	return openLayout(dir)
}

// openLayout reads the image of a layout.
func openLayout(dir string) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: run make image first", err)
	}
	indexes, err := partial.FindIndexes(all, match.MediaTypes(string(types.OCIImageIndex)))
	if err != nil {
		return nil, err
	}
	if len(indexes) != 1 {
		return nil, fmt.Errorf("%s has %d images of several platforms, not one", dir, len(indexes))
	}
	return indexes[0], nil
}

// imageFor is the image for a platform.
func imageFor(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	images, err := partial.FindImages(index, match.Platforms(platform))
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("there are %d images for %s, not one", len(images), platform)
	}
	return images[0], nil
}

// extractImage unpacks the files of an image into a directory.
func extractImage(image v1.Image, dir string) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		err = extract(content, dir)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return nil
}

// extractBinary writes the binary for this host's architecture from the archive to a file.
func extractBinary(o options, to string) error {
	temp, err := os.MkdirTemp("", "dovetail-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	packed, files := filepath.Join(temp, "layout"), filepath.Join(temp, "files")
	if err := errors.Join(os.Mkdir(packed, 0o755), os.Mkdir(files, 0o755)); err != nil {
		return err
	}
	index, err := openArchive(filepath.Join(o.out, archiveName), packed)
	if err != nil {
		return err
	}
	image, err := imageFor(index, v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return err
	}
	if err := extractImage(image, files); err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(files, binaryPath))
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o755)
}
