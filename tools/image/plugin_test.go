package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// sumsOf has a different checksum for each archive.
func sumsOf(platforms []string) map[string]string {
	out := map[string]string{}
	for i, platform := range platforms {
		out[pluginArchive(platform)] = strings.Repeat(string(rune('1'+i)), 64)
	}
	return out
}

func krewTemplate(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// krew installs, for each platform, the archive of that platform with its checksum.
func TestKrewManifest(t *testing.T) {
	o := options{root: root, out: t.TempDir()}
	sums := sumsOf(pluginPlatforms)
	if err := (release{version: "v0.1.0"}).describePlugin(o, sums); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.out, "dovetail.krew.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if manifest.Spec.Version != "v0.1.0" || len(manifest.Spec.Platforms) != len(pluginPlatforms) {
		t.Fatalf("version %q, %d platforms", manifest.Spec.Version, len(manifest.Spec.Platforms))
	}
	for i, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		archive := pluginArchive(platform)
		if platform != pluginPlatforms[i] || p.SHA256 != sums[archive] || !strings.HasSuffix(p.URI, "/releases/download/v0.1.0/"+archive) {
			t.Errorf("%s: %+v", platform, p)
		}
		if isWindows := strings.HasPrefix(platform, "windows"); strings.HasSuffix(p.Bin, ".exe") != isWindows {
			t.Errorf("%s: bin %q", platform, p.Bin)
		}
	}
}

// The validator is the one of krew's index.
func TestKrewAcceptsTheManifest(t *testing.T) {
	manifest, err := release{version: "v0.1.0"}.fillKrew(krewTemplate(t), sumsOf(pluginPlatforms))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dovetail.yaml")
	write(t, path, string(manifest))
	cmd := exec.CommandContext(t.Context(), "go", "tool", "validate-krew-manifest", "-manifest", path, "-skip-install")
	cmd.Dir, cmd.Env = filepath.Join(root, "tools", "ci"), append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKrewNeedsEachArchive(t *testing.T) {
	_, err := release{version: "v0.1.0"}.fillKrew(krewTemplate(t), sumsOf(pluginPlatforms[:4]))
	if err == nil || !strings.Contains(err.Error(), "there is no archive kubectl-dovetail-windows-amd64.tar.gz") {
		t.Errorf("got %v", err)
	}
}
