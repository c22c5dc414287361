package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// Helm finds in the packed charts of a release what is in their directories.
func TestPackedCharts(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "charts", "-out", dir)
	cmd.Dir, cmd.Env = "../image", append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"dovetail-crd", "dovetail", "dovetail-policies"} {
		found, err := filepath.Glob(filepath.Join(dir, name+"-[0-9]*.tgz"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s is packed %d times: %v", name, len(found), err)
		}
		packed, err := loader.Load(found[0])
		if err != nil {
			t.Fatal(err)
		}
		source, err := loader.Load(filepath.Join(charts, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := packed.Validate(); err != nil {
			t.Error(err)
		}
		if filepath.Base(found[0]) != name+"-"+packed.Metadata.Version+".tgz" || packed.Metadata.AppVersion == "" {
			t.Errorf("%s has version %s of %s", found[0], packed.Metadata.Version, packed.Metadata.AppVersion)
		}
		packed.Metadata.Version, packed.Metadata.AppVersion = source.Metadata.Version, source.Metadata.AppVersion
		if diff := cmp.Diff(files(source), files(packed)); diff != "" {
			t.Errorf("%s, directory and package: %s", name, diff)
		}
		if diff := cmp.Diff(source.Metadata, packed.Metadata); diff != "" {
			t.Errorf("%s, directory and package: %s", name, diff)
		}
	}
}

// files are those of a chart by name, but Chart.yaml.
func files(c *chart.Chart) map[string]string {
	out := map[string]string{}
	for _, f := range c.Raw {
		if f.Name != "Chart.yaml" {
			out[f.Name] = string(f.Data)
		}
	}
	return out
}
