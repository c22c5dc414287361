// Package ci tests the files that GitHub reads, and pins the programs that check them: actionlint, and the validator of krew's index.
package ci

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// Each module of the repository gets updates.
func TestDependabotKnowsAllModules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	updated := func(dir string) bool {
		for _, u := range config.Updates {
			for _, pattern := range u.Directories {
				if ok, err := path.Match(pattern, dir); ok && err == nil && u.Ecosystem == "gomod" {
					return true
				}
			}
		}
		return false
	}
	found := 0
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		found++
		if dir := "/" + strings.TrimPrefix(path.Dir(name), "."); !updated(dir) {
			t.Errorf("dependabot.yml has no entry for the module in %s", dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 4 {
		t.Errorf("found only %d modules", found)
	}
}
