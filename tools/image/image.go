package main

import (
	"compress/gzip"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// sourceURL is the repository.
	sourceURL = "https://github.com/dovetail-k8s/dovetail"
	// repository is where releases are pushed; the chart's controller.image.repository.
	repository = "ghcr.io/dovetail-k8s/dovetail/controller"
)

// compression is gzip's default. The best level takes three times as long and saves under 1 %.
const compression = gzip.DefaultCompression

// ports are those of metrics and of probes, as the chart sets them.
var ports = []string{"8080/tcp", "8081/tcp"}

// annotations describe an image, on its index, its manifests and, as labels, its configurations.
func (r release) annotations(license string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "dovetail",
		"org.opencontainers.image.description":   "A node autoscaler for Amazon EKS that implements Karpenter's API",
		"org.opencontainers.image.url":           sourceURL,
		"org.opencontainers.image.documentation": sourceURL + "/blob/" + r.revision + "/docs/install.md",
		"org.opencontainers.image.source":        sourceURL,
		"org.opencontainers.image.version":       r.tag(),
		"org.opencontainers.image.revision":      r.revision,
		"org.opencontainers.image.created":       r.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses":      license,
	}
}

// part is the image for one platform, with what is attached to it.
type part struct {
	platform v1.Platform
	image    v1.Image
	sbom     []byte
	license  string
}

// contents are the files of an image, by layer: what changes most rarely comes first.
type contents struct {
	base, licenses, binary tree
}

// assemble makes the image for one platform.
func (v inventory) assemble(files contents) (part, error) {
	system, arch, _ := strings.Cut(v.platform, "/")
	p := part{platform: v1.Platform{OS: system, Architecture: arch}, sbom: files.licenses[sbomPath].content, license: v.license()}
	exposed := map[string]struct{}{}
	for _, port := range ports {
		exposed[port] = struct{}{}
	}
	created := v1.Time{Time: v.created}
	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{
		OS: system, Architecture: arch, Created: created,
		Config: v1.Config{
			User: user + ":" + user, Entrypoint: []string{"/" + binaryPath}, WorkingDir: "/", ExposedPorts: exposed,
			Env:    []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + certificatesPath},
			Labels: v.annotations(p.license),
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return part{}, err
	}
	var added []mutate.Addendum
	for _, l := range []struct {
		files     tree
		history   string
		temporary []string
	}{
		{files.base, "root certificates, time zones and the user", []string{temporary}},
		{files.licenses, "licenses and SBOM", nil},
		{files.binary, "dovetail, compiled by " + runtime.Version(), nil},
	} {
		layer, err := l.files.layer(v.created, l.temporary...)
		if err != nil {
			return part{}, err
		}
		history := v1.History{Created: created, CreatedBy: "dovetail-tools-image", Comment: l.history}
		added = append(added, mutate.Addendum{Layer: layer, History: history, MediaType: types.OCILayer})
	}
	if image, err = mutate.Append(image, added...); err != nil {
		return part{}, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	p.image = mutate.Annotations(image, v.annotations(p.license)).(v1.Image)
	return p, nil
}

// index is the image for all platforms.
func (r release) index(parts []part) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var licenses []string
	for _, p := range parts {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{Platform: &p.platform}})
		licenses = append(licenses, strings.Split(p.license, " AND ")...)
	}
	return mutate.Annotations(index, r.annotations(allOf(licenses))).(v1.ImageIndex)
}
