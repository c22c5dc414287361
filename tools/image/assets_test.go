package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"
)

// unpack reads an archive. All its entries have the time of the release.
func unpack(t *testing.T, packed []byte, at time.Time) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s is of %v and of %q", h.Name, h.ModTime, h.Uname)
		}
		if h.Typeflag == tar.TypeReg {
			out[h.Name] = string(content)
		}
	}
}

// The archive of a program has the program, the licenses of all its modules, and nothing else; its SBOM describes this program.
func TestArchiveOfTheProduct(t *testing.T) {
	r, a := current(t), assets{}
	o := options{root: root, platforms: []string{host.String(), "plan9/386"}}
	if err := a.addArchives(t.Context(), r, product, o, func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	name := "dovetail-linux-" + host.Architecture
	if len(a) != 2 {
		t.Fatalf("files %q", slices.Collect(maps.Keys(a)))
	}
	files := unpack(t, a[name+".tar.gz"], r.created)
	path := filepath.Join(t.TempDir(), "dovetail")
	if err := os.WriteFile(path, []byte(files["dovetail"]), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "dovetail "+r.version+" (commit "+r.revision[:12]) {
		t.Errorf("%v: %s", err, out)
	}
	doc, err := spdxjson.Read(bytes.NewReader(a[name+".spdx.json"]))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range doc.Packages {
		switch {
		case i == 0:
		case i == 1 && p.PackageChecksums[0].Value != digestOf([]byte(files["dovetail"])):
			t.Error("the SBOM is that of another program")
		case files["licenses/"+p.PackageName+"/LICENSE"] == "" && !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(f string) bool {
			return strings.HasPrefix(f, "licenses/"+p.PackageName+"/")
		}):
			t.Errorf("no license of %s", p.PackageName)
		}
	}
	for name := range files {
		if name != "dovetail" && name != "LICENSE" && !strings.HasPrefix(name, "licenses/") {
			t.Errorf("%s is in the archive", name)
		}
	}
}

// A packed chart has the files of its directory, with the version of the release, and is described in a registry as Helm does it.
func TestCharts(t *testing.T) {
	r := current(t)
	r.version = "v0.2.0-rc.1"
	for _, name := range chartNames {
		c, err := r.chart(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if c.file() != name+"-0.2.0-rc.1.tgz" {
			t.Errorf("file %s", c.file())
		}
		files, found := unpack(t, c.packed, r.created), 0
		for path, text := range files {
			want, err := os.ReadFile(filepath.Join(root, "deploy/chart", path))
			if err != nil {
				t.Error(err)
			}
			found++
			if path == name+"/Chart.yaml" {
				text = strings.NewReplacer(`: "0.2.0-rc.1"`, ": 0.1.0").Replace(text)
			}
			if text != string(want) {
				t.Errorf("%s differs", path)
			}
		}
		if found < 5 || files[name+"/values.yaml"] == "" {
			t.Errorf("%s has %d files", name, found)
		}
		checkStored(t, c, files[name+"/Chart.yaml"])
	}
}

// checkStored compares what a registry has of a chart with the chart.
func checkStored(t *testing.T, c chart, described string) {
	t.Helper()
	image, err := c.image(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err1 := image.Manifest()
	config, err2 := image.RawConfigFile()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil || manifest.Config.Digest != digest || manifest.Config.Size != size || manifest.Config.MediaType != chartConfigType {
		t.Errorf("configuration %+v: %v", manifest.Config, err)
	}
	var stored, want chartMetadata
	if err := json.Unmarshal(config, &stored); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(described), &want); err != nil {
		t.Fatal(err)
	}
	if stored["version"] != "0.2.0-rc.1" || stored["appVersion"] != "0.2.0-rc.1" || len(stored) != len(want) || stored["name"] != want["name"] {
		t.Errorf("the registry says %v", stored)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 || manifest.Layers[0].MediaType != chartLayerType {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	if d, err := partial.Descriptor(layers[0]); err != nil || d.Digest.Hex != digestOf(c.packed) {
		t.Errorf("the layer is not the packed chart: %v", err)
	}
}

// Commits without a tag have charts, too: Helm takes only versions of SemVer.
func TestChartVersions(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "0123456789ab": "0.1.0-dev.g0123456789ab",
		"0123456789ab-dirty": "0.1.0-dev.g0123456789ab.dirty", "v1.2.3-4-g0123456789ab": "1.2.3-4-g0123456789ab",
	} {
		if got := (release{version: version, revision: "0123456789abcdef"}).chartVersion("0.1.0"); got != want {
			t.Errorf("%s has charts %s, want %s", version, got, want)
		}
	}
}

// A platform that is misspelled is no reason for a release without it.
func TestReleaseRefusesUnknownPlatforms(t *testing.T) {
	out := filepath.Join(t.TempDir(), "release")
	err := buildRelease(t.Context(), options{root: root, out: out, platforms: []string{"linux/amd65"}}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `-platforms: "linux/amd65" is not one of linux/amd64, linux/arm64`) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something is written")
	}
}

// A release is whole, or the previous one stays: checksums are those of all files.
func TestAssetsAreWritten(t *testing.T) {
	to := filepath.Join(t.TempDir(), "release")
	write(t, filepath.Join(to, "of the previous release"), "")
	if _, err := (assets{"a.tar.gz": []byte("a"), installerName: []byte("#!/bin/sh\n")}).write(to); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumsName)
	cmd.Dir = to
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files: %v", len(entries), err)
	}
	if info, err := os.Stat(filepath.Join(to, installerName)); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the installer cannot be run: %v", err)
	}
}

// A release for platforms without an image has none, and reports it. Other commands and unknown platforms are errors before anything is built.
func TestPlatformsWithoutAnImage(t *testing.T) {
	a := assets{}
	said, err := a.addImage(t.Context(), current(t), options{root: root, platforms: []string{"darwin/arm64", "windows/amd64"}}, func(what string) error {
		t.Errorf("builds %s", what)
		return nil
	})
	if err != nil || said != "none: -platforms has neither linux/amd64 nor linux/arm64" || len(a) > 0 {
		t.Errorf("%q, %v, files %q", said, err, slices.Collect(maps.Keys(a)))
	}
	for args, want := range map[string]string{
		"build -platforms darwin/arm64":              `"darwin/arm64" is not one of linux/amd64, linux/arm64`,
		"build -platforms linux/amd64,linux/amd64":   `"linux/amd64" is named twice`,
		"verify -platforms darwin/arm64":             `"darwin/arm64" is not one of linux/amd64, linux/arm64`,
		"release -platforms plan9/386":               `"plan9/386" is not one of linux/amd64`,
		"release -platforms linux/amd64,linux/amd64": `"linux/amd64" is named twice`,
		"release -platforms ,":                       `"" is not one of`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("image %s: %v, want %q", args, err, want)
		}
	}
}
