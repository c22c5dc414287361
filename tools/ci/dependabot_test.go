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

// Each Go module and npm package of the repository gets updates.
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
	updated := func(ecosystem, dir string) bool {
		for _, u := range config.Updates {
			for _, pattern := range u.Directories {
				if ok, err := path.Match(pattern, dir); ok && err == nil && u.Ecosystem == ecosystem {
					return true
				}
			}
		}
		return false
	}
	skipped := map[string]bool{"bin": true, "testdata": true, "node_modules": true}
	ecosystems := map[string]string{"go.mod": "gomod", "package-lock.json": "npm"} // by the file that has the versions
	found := map[string]int{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || skipped[d.Name()]) {
			return fs.SkipDir
		}
		ecosystem := ecosystems[d.Name()]
		if ecosystem == "" {
			return nil
		}
		found[ecosystem]++
		if dir := "/" + strings.TrimPrefix(path.Dir(name), "."); !updated(ecosystem, dir) {
			t.Errorf("dependabot.yml has no entry of %s for %s", ecosystem, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found["gomod"] < 4 || found["npm"] < 1 {
		t.Errorf("found only %v", found)
	}
}
