package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of an SBOM that refers to an image.
const (
	spdxType        types.MediaType = "application/spdx+json"
	emptyConfigType types.MediaType = "application/vnd.oci.empty.v1+json"
)

// artifact is an OCI manifest of one file that is not a file system: a chart, or an SBOM, which has an image as its subject. Registries
// list the latter among the image's referrers.
type artifact struct {
	config, manifest []byte
	content          v1.Layer
}

// attach makes the artifact of an image's SBOM.
func (p part) attach(at time.Time) (v1.Image, error) {
	subject, err := partial.Descriptor(p.image)
	if err != nil {
		return nil, err
	}
	content := static.NewLayer(p.sbom, spdxType)
	file, err := partial.Descriptor(content)
	if err != nil {
		return nil, err
	}
	file.Annotations = map[string]string{"org.opencontainers.image.title": p.sbomName()}
	digest, size, err := v1.SHA256(bytes.NewReader(emptyConfig))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(spdxType),
		Config:      v1.Descriptor{MediaType: emptyConfigType, Digest: digest, Size: size},
		Layers:      []v1.Descriptor{*file},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{"org.opencontainers.image.created": at.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{emptyConfig, manifest, content})
}

// sbomName is the name of the SBOM's file.
func (p part) sbomName() string {
	return "sbom-" + p.platform.OS + "-" + p.platform.Architecture + ".spdx.json"
}

// emptyConfig is the configuration of an artifact that has none.
var emptyConfig = []byte("{}")

// RawConfigFile implements partial.CompressedImageCore.
func (a artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// MediaType implements partial.CompressedImageCore.
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if own, err := a.content.Digest(); err != nil || own != digest {
		return nil, fmt.Errorf("artifact has no layer %s: %w", digest, err)
	}
	return a.content, nil
}
