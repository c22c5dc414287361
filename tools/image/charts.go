package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Media types of a Helm chart in a registry (https://helm.sh/docs/topics/registries).
const (
	chartConfigType types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartNames are the charts of a release. Their registry is chartRepository.
var chartNames = []string{"dovetail-crd", "dovetail", "dovetail-policies"}

const chartRepository = "ghcr.io/dovetail-k8s/dovetail/charts"

// chart is a packed Helm chart.
type chart struct {
	name, version string
	packed        []byte
	metadata      chartMetadata
}

// chartMetadata is what Chart.yaml has, and the configuration of the chart in a registry.
type chartMetadata map[string]any

// semantic is a version of SemVer 2, which is the only kind that Helm accepts.
var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// chartVersion is the version of the charts: that of the release, or for a commit without a tag a version before that in Chart.yaml.
func (r release) chartVersion(inSource string) string {
	if semantic.MatchString(r.tag()) {
		return r.tag()
	}
	out := inSource + "-dev.g" + r.revision[:12]
	if strings.HasSuffix(r.version, "-dirty") {
		out += ".dirty"
	}
	return out
}

// chart packs a chart with the version of the release.
func (r release) chart(ctx context.Context, name string) (chart, error) {
	dir := "deploy/chart/" + name
	list, err := output(ctx, r.source, nil, "git", "ls-files", "-z", dir)
	if err != nil {
		return chart{}, err
	}
	files := tree{}
	for path := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(r.source, path))
		if err != nil {
			return chart{}, err
		}
		files[name+strings.TrimPrefix(path, dir)] = file{content: content}
	}
	out := chart{name: name}
	described := name + "/Chart.yaml"
	if err := yaml.Unmarshal(files[described].content, &out.metadata); err != nil {
		return chart{}, fmt.Errorf("%s: %w", described, err)
	}
	inSource, ok := out.metadata["version"].(string)
	if !ok {
		return chart{}, fmt.Errorf("%s has no version", described)
	}
	out.version = r.chartVersion(inSource)
	text := string(files[described].content)
	for field, value := range map[string]string{"version": out.version, "appVersion": r.tag()} {
		line := "\n" + field + ": " + inSource + "\n"
		if !strings.Contains(text, line) {
			return chart{}, fmt.Errorf("%s has no line %q: version and appVersion are one", described, strings.TrimSpace(line))
		}
		text = strings.Replace(text, line, fmt.Sprintf("\n%s: %q\n", field, value), 1)
		out.metadata[field] = value
	}
	files[described] = file{content: []byte(text)}
	out.packed, err = files.targz(r.created)
	return out, err
}

// file is the name of the packed chart, as helm package names it.
func (c chart) file() string { return c.name + "-" + c.version + ".tgz" }

// image is the chart as registries store it.
func (c chart) image(at time.Time) (v1.Image, error) {
	config, err := json.Marshal(c.metadata)
	if err != nil {
		return nil, err
	}
	layer := static.NewLayer(c.packed, chartLayerType)
	content, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfigType, Digest: digest, Size: size},
		Layers: []v1.Descriptor{*content},
		Annotations: map[string]string{
			"org.opencontainers.image.title":   c.name,
			"org.opencontainers.image.version": c.version,
			"org.opencontainers.image.created": at.Format(time.RFC3339),
			"org.opencontainers.image.source":  sourceURL,
		},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{config: config, manifest: manifest, content: layer})
}
