package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// push pushes the image under each reference, and its SBOMs as referrers of the images of its platforms.
func push(ctx context.Context, o options, references []string, out io.Writer) error {
	if len(references) == 0 {
		return errors.New("push takes references, such as " + repository + ":0.1.0")
	}
	dir := filepath.Join(o.out, layoutName)
	index, err := openLayout(dir)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	attached, err := artifacts(dir)
	if err != nil {
		return err
	}
	with := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, text := range references {
		ref, err := name.ParseReference(text)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(ref, index, with...); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
		for id, image := range attached {
			if err := remote.Write(ref.Context().Digest(id.String()), image, with...); err != nil {
				return fmt.Errorf("push an SBOM to %s: %w", ref.Context(), err)
			}
		}
		if _, err := fmt.Fprintf(out, "%s@%s\n", ref, digest); err != nil {
			return err
		}
	}
	return nil
}

// artifacts are the SBOMs of a layout, by digest of their manifests.
func artifacts(dir string) (map[v1.Hash]v1.Image, error) {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	out := map[v1.Hash]v1.Image{}
	for _, d := range manifest.Manifests {
		if d.MediaType != types.OCIManifestSchema1 {
			continue
		}
		if out[d.Digest], err = all.Image(d.Digest); err != nil {
			return nil, err
		}
	}
	return out, nil
}
