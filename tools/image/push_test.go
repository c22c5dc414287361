package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Anyone who pulls gets the image that was built, and finds its SBOM, whether the registry lists referrers or not.
func TestPush(t *testing.T) {
	for _, tt := range []struct {
		name      string
		referrers bool
	}{{"registry with referrers", true}, {"registry without referrers", false}} {
		t.Run(tt.name, func(t *testing.T) {
			o, digest := built(t)
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(tt.referrers), registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			to := strings.TrimPrefix(server.URL, "http://") + "/dovetail/controller"
			var out bytes.Buffer
			if err := push(t.Context(), o, []string{to + ":0.1.0", to + ":latest"}, &out); err != nil {
				t.Fatal(err)
			}
			for _, tag := range []string{":0.1.0", ":latest"} {
				if !strings.Contains(out.String(), to+tag+"@"+digest.String()+"\n") {
					t.Errorf("printed %q", out.String())
				}
				pulled, err := remote.Index(reference(t, to+tag))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := pulled.Digest(); err != nil || got != digest {
					t.Errorf("pulled %s (%v), want %s", got, err, digest)
				}
				if err := validate.Index(pulled); err != nil {
					t.Error(err)
				}
			}
			want, err := os.ReadFile(filepath.Join(o.out, part{platform: host}.sbomName()))
			if err != nil {
				t.Fatal(err)
			}
			if got := attachedSBOM(t, to); !bytes.Equal(got, want) {
				t.Errorf("the SBOM of the registry has %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// attachedSBOM is the only file of the only referrer of the image for this host's platform.
func attachedSBOM(t *testing.T, repository string) []byte {
	t.Helper()
	image, err := remote.Image(reference(t, repository+":latest"), remote.WithPlatform(host))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(reference(t, repository).Context().Digest(digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%d referrers: %v", len(manifest.Manifests), err)
	}
	artifact, err := remote.Image(reference(t, repository+"@"+manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	return onlyLayer(t, artifact)
}

func onlyLayer(t *testing.T, image v1.Image) []byte {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil || manifest.ArtifactType != "application/spdx+json" || len(manifest.Layers) != 1 {
		t.Fatalf("%+v: %v", manifest, err)
	}
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPushNeedsAnImage(t *testing.T) {
	o := options{root: root, out: t.TempDir()}
	if err := push(t.Context(), o, []string{"localhost/dovetail"}, io.Discard); err == nil || !strings.Contains(err.Error(), "make image") {
		t.Errorf("got %v", err)
	}
	if err := push(t.Context(), o, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "references") {
		t.Errorf("got %v", err)
	}
}
