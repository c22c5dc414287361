package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// sumsOf has a different checksum for each archive of the product.
func sumsOf(platforms []string) map[string]string {
	out := map[string]string{}
	for i, platform := range platforms {
		out[product.archive(platform)] = strings.Repeat(string(rune('1'+i)), 64)
	}
	return out
}

var tagged = release{version: "v0.1.0", source: root}

// filled is a manifest of a tagged release.
func filled(t *testing.T, name string) string {
	t.Helper()
	manifests, err := tagged.manifests(root, sumsOf(product.platforms))
	if err != nil {
		t.Fatal(err)
	}
	return string(manifests[name])
}

// krew installs, for each platform, the archive of that platform with its checksum.
func TestKrewManifest(t *testing.T) {
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	text := filled(t, krewName)
	if err := yaml.Unmarshal([]byte(text), &manifest); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if manifest.Spec.Version != "v0.1.0" || len(manifest.Spec.Platforms) != len(product.platforms) {
		t.Fatalf("version %q, %d platforms", manifest.Spec.Version, len(manifest.Spec.Platforms))
	}
	for i, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		archive := product.archive(platform)
		if platform != product.platforms[i] || p.SHA256 != sumsOf(product.platforms)[archive] ||
			!strings.HasSuffix(p.URI, "/releases/download/v0.1.0/"+archive) {
			t.Errorf("%s: %+v", platform, p)
		}
		if p.Bin != product.file(platform) {
			t.Errorf("%s: bin %q, and the archive has %q", platform, p.Bin, product.file(platform))
		}
	}
}

// The validator is the one of krew's index.
func TestKrewAcceptsTheManifest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dovetail.yaml")
	write(t, path, filled(t, krewName))
	cmd := exec.CommandContext(t.Context(), "go", "tool", "validate-krew-manifest", "-manifest", path, "-skip-install")
	cmd.Dir, cmd.Env = filepath.Join(root, "tools", "ci"), append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestManifestsNeedEachArchive(t *testing.T) {
	for _, missing := range []string{"windows/arm64", "darwin/arm64"} {
		sums := sumsOf(product.platforms)
		delete(sums, product.archive(missing))
		if _, err := tagged.manifests(root, sums); err == nil || !strings.Contains(err.Error(), "there is no archive "+product.archive(missing)) {
			t.Errorf("got %v", err)
		}
	}
}
