package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Names of files of a release.
const (
	checksumsName    = "checksums.txt"
	installerName    = "install.sh"
	imageArchiveName = "dovetail-image.oci.tar"
	chartsName       = "dovetail-charts.oci.tar"
)

// assets are the files of a release, by name.
type assets map[string][]byte

// buildRelease builds all that a release consists of, and writes it with checksums. What was there is replaced once all is built.
func buildRelease(ctx context.Context, o options, out io.Writer) error {
	if err := checkToolchain(o.root); err != nil {
		return err
	}
	if err := o.checkPlatforms(product.platforms); err != nil {
		return err
	}
	r, err := readRelease(ctx, o.root)
	if err != nil {
		return err
	}
	progress := func(what string) error {
		_, err := fmt.Fprintln(out, "building", what)
		return err
	}
	all := assets{}
	for _, p := range []program{product, lab} {
		if err := all.addArchives(ctx, r, p, o, progress); err != nil {
			return err
		}
	}
	image, err := all.addImage(ctx, r, o, progress)
	if err != nil {
		return err
	}
	if err := progress("charts"); err != nil {
		return err
	}
	if err := errors.Join(all.addCharts(ctx, r), all.addManifests(r)); err != nil {
		return err
	}
	sums, err := all.write(o.out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\nversion  %s\nimage    %s\nfiles    %s\nsha256   %s of %s\n",
		strings.TrimSpace(sums), r.version, image, filepath.Clean(o.out), digestOf([]byte(sums)), checksumsName)
	return err
}

// addArchives adds the archives of a program for those of its platforms that are wanted, and their SBOMs.
func (a assets) addArchives(ctx context.Context, r release, p program, o options, progress func(string) error) error {
	goroot, err := output(ctx, o.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	for _, platform := range p.platforms {
		if !slices.Contains(o.platforms, platform) {
			continue
		}
		name := p.archive(platform)
		if err := progress(name); err != nil {
			return err
		}
		built, err := target{r, p, platform}.archive(ctx, goroot)
		if err != nil {
			return err
		}
		a[name], a[strings.TrimSuffix(name, ".tar.gz")+".spdx.json"] = built.packed, built.sbom
	}
	return nil
}

// addImage adds the image as an archive, and the SBOM of each of its platforms, and returns its reference. Without any platform of an
// image, it adds none, and returns so in words.
func (a assets) addImage(ctx context.Context, r release, o options, progress func(string) error) (string, error) {
	platforms := slices.DeleteFunc(slices.Clone(imagePlatforms), func(p string) bool { return !slices.Contains(o.platforms, p) })
	if len(platforms) == 0 {
		return "none: -platforms has neither " + strings.Join(imagePlatforms, " nor "), nil
	}
	if err := progress("image"); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp("", "dovetail-release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	digest, err := r.build(ctx, options{o.root, filepath.Join(temp, "image"), platforms})
	if err != nil {
		return "", err
	}
	for name, file := range map[string]string{imageArchiveName: archiveName, "dovetail-image.digest": digestName} {
		if a[name], err = os.ReadFile(filepath.Join(temp, "image", file)); err != nil {
			return "", err
		}
	}
	for _, platform := range platforms {
		name := strings.ReplaceAll(platform, "/", "-") + ".spdx.json"
		if a["dovetail-image-"+name], err = os.ReadFile(filepath.Join(temp, "image", "sbom-"+name)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s:%s@%s", repository, r.tag(), digest), nil
}

// addCharts adds the charts, each as helm package would write it, and all of them as an OCI archive.
func (a assets) addCharts(ctx context.Context, r release) error {
	temp, err := os.MkdirTemp("", "dovetail-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range chartNames {
		c, err := r.chart(ctx, name)
		if err != nil {
			return err
		}
		image, err := c.image(r.created)
		if err != nil {
			return err
		}
		a[c.file()] = c.packed
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": name + "-" + c.version,
			"io.containerd.image.name":          chartRepository + "/" + name + ":" + c.version,
		}}})
	}
	dir, packed := filepath.Join(temp, layoutName), filepath.Join(temp, chartsName)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	if err := archiveLayout(packed, dir, r.created); err != nil {
		return err
	}
	a[chartsName], err = os.ReadFile(packed)
	return err
}

// packCharts writes the charts alone.
func packCharts(ctx context.Context, o options, out io.Writer) error {
	r, err := readRelease(ctx, o.root)
	if err != nil {
		return err
	}
	a := assets{}
	if err := a.addCharts(ctx, r); err != nil {
		return err
	}
	sums, err := a.write(o.out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, sums)
	return err
}

// addManifests adds the installer and, if the archives for all platforms are there, what krew and Homebrew install them from.
func (a assets) addManifests(r release) error {
	var err error
	if a[installerName], err = os.ReadFile(filepath.Join(r.source, installerName)); err != nil {
		return err
	}
	sums := a.sums()
	for _, platform := range product.platforms {
		if sums[product.archive(platform)] == "" {
			return nil
		}
	}
	filled, err := r.manifests(r.source, sums)
	maps.Copy(a, filled)
	return err
}

// sums are the SHA-256 of the files in hex, by name.
func (a assets) sums() map[string]string {
	out := map[string]string{}
	for name, content := range a {
		out[name] = digestOf(content)
	}
	return out
}

// checksums is the list of SHA-256 as sha256sum writes and checks it.
func (a assets) checksums() string {
	sums := a.sums()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&out, "%s  %s\n", sums[name], name)
	}
	return out.String()
}

// write replaces a directory by the files and their checksums, which it returns.
func (a assets) write(to string) (sums string, err error) {
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	for name, content := range a {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(to, name), content, mode); err != nil {
			return "", err
		}
	}
	sums = a.checksums()
	return sums, os.WriteFile(filepath.Join(to, checksumsName), []byte(sums), 0o644)
}
