package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Names below the directory of the results.
const (
	layoutName  = "layout"
	archiveName = "dovetail.tar"
	digestName  = "digest"
)

// build builds the image, and prints its digest and where it is.
func build(ctx context.Context, o options, out io.Writer) error {
	if err := errors.Join(o.checkPlatforms(imagePlatforms), checkToolchain(o.root)); err != nil {
		return err
	}
	r, err := readRelease(ctx, o.root)
	if err != nil {
		return err
	}
	digest, err := r.build(ctx, o)
	if err != nil {
		return err
	}
	layout, archive := filepath.Join(o.out, layoutName), filepath.Join(o.out, archiveName)
	_, err = fmt.Fprintf(out, "image    %s:%s\ndigest   %s\nlayout   %s\narchive  %s\n",
		repository, r.tag(), digest, filepath.Clean(layout), filepath.Clean(archive))
	return err
}

// build compiles the release for each platform, packs it, and inspects what was written.
func (r release) build(ctx context.Context, o options) (v1.Hash, error) {
	temp, err := os.MkdirTemp("", "dovetail-image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	goroot, err := output(ctx, o.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return v1.Hash{}, err
	}
	var parts []part
	for _, platform := range o.platforms {
		t := target{r, product, platform}
		binary := filepath.Join(temp, filepath.Base(platform))
		if err := t.compile(ctx, binary); err != nil {
			return v1.Hash{}, err
		}
		p, err := t.pack(ctx, o.root, goroot, binary)
		if err != nil {
			return v1.Hash{}, err
		}
		parts = append(parts, p)
	}
	digest, err := r.write(parts, o.out)
	if err != nil {
		return digest, err
	}
	if err := inspect(filepath.Join(o.out, layoutName), parts); err != nil {
		return digest, errors.Join(err, os.RemoveAll(o.out)) // nobody is to push it
	}
	return digest, nil
}

// pack makes the image of a binary. Root is the repository of this program.
func (t target) pack(ctx context.Context, root, goroot, binary string) (part, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return part{}, err
	}
	v := inventory{target: t, kind: imageOf, digest: digestOf(program)}
	if v.modules, err = t.linked(ctx, binary, goroot); err != nil {
		return part{}, err
	}
	roots, err := certificatesComponent(ctx, root)
	if err != nil {
		return part{}, err
	}
	zones, err := zonesComponent(goroot)
	if err != nil {
		return part{}, err
	}
	v.data = []component{roots, zones}
	base, err := baseTree(goroot)
	if err != nil {
		return part{}, err
	}
	sbom, err := v.sbom()
	if err != nil {
		return part{}, err
	}
	licenses := licenseTree(append(v.modules, v.data...))
	licenses[sbomPath] = file{content: sbom}
	return v.assemble(contents{base, licenses, tree{binaryPath: {content: program, executable: true}}})
}

// write writes layout, archive, SBOMs and digest. What was there is replaced.
func (r release) write(parts []part, to string) (v1.Hash, error) {
	index := r.index(parts)
	digest, err := index.Digest()
	if err != nil {
		return digest, err
	}
	if err := os.RemoveAll(to); err != nil {
		return digest, err
	}
	// The archive has only the image: programs that load archives expect nothing else.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": r.tag(), "io.containerd.image.name": repository + ":" + r.tag(),
		}},
	})
	path, err := layout.Write(filepath.Join(to, layoutName), named)
	if err != nil {
		return digest, err
	}
	if err := archiveLayout(filepath.Join(to, archiveName), string(path), r.created); err != nil {
		return digest, err
	}
	for _, p := range parts {
		attached, err := p.attach(r.created)
		if err != nil {
			return digest, err
		}
		if err := path.AppendImage(attached); err != nil {
			return digest, err
		}
		if err := p.describe(to); err != nil {
			return digest, err
		}
	}
	return digest, os.WriteFile(filepath.Join(to, digestName), []byte(digest.String()+"\n"), 0o644)
}

// describe writes the SBOM and the digest of the image for one platform.
func (p part) describe(to string) error {
	digest, err := p.image.Digest()
	if err != nil {
		return err
	}
	name := digestName + "-" + p.platform.OS + "-" + p.platform.Architecture
	return errors.Join(
		os.WriteFile(filepath.Join(to, p.sbomName()), p.sbom, 0o644),
		os.WriteFile(filepath.Join(to, name), []byte(digest.String()+"\n"), 0o644),
	)
}

// archiveLayout packs a layout into a tar file. Its entries are sorted, as a walk is, and have one time.
func archiveLayout(to, dir string, at time.Time) (failed error) {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { failed = cmp.Or(failed, file.Close()) }()
	w := tar.NewWriter(file)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: at})
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: at}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
