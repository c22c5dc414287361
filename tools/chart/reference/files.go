package reference

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"sigs.k8s.io/yaml"
)

// introductions are the texts before the tables, by the name of the chart.
//
//go:embed readme.md.tmpl
var introductions string

// Files are the derived files of the chart in a directory, by their path in it.
func Files(dir string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return nil, err
	}
	values, err := Parse(text)
	if err != nil {
		return nil, err
	}
	var chart struct{ Name, Description, KubeVersion string }
	about, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(about, &chart); err != nil {
		return nil, err
	}
	tables, err := Tables(values)
	if err != nil {
		return nil, err
	}
	readme, err := template.New("readme").Parse(introductions)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = readme.ExecuteTemplate(&out, chart.Name, map[string]any{"Chart": chart, "Tables": tables})
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if err := definitions(dir, files); err != nil {
		return nil, err
	}
	// A chart without definitions takes the place of none of Karpenter. Nobody has other values for it.
	schema, err := Schema("Values of the chart "+chart.Name, values, len(files) == 0)
	files["README.md"], files["values.schema.json"] = append(bytes.TrimSpace(out.Bytes()), '\n'), schema
	if _, missing := os.Stat(filepath.Join(dir, "templates", "_unknown.tpl")); missing == nil {
		files[filepath.Join("templates", "_known.tpl")] = Known(values)
	}
	return files, err
}

// definitions adds the CustomResourceDefinitions of the API. They are copies, because Helm prints a line for each link, with each command.
func definitions(dir string, to map[string][]byte) error {
	api, err := filepath.Glob(filepath.Join(dir, "..", "..", "..", "api", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	folder := ""
	for _, name := range []string{"files", "crds"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			folder = name
		}
	}
	if folder == "" {
		return nil // a chart without definitions
	}
	for _, path := range api {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to[filepath.Join(folder, filepath.Base(path))] = text
	}
	return nil
}

// Write writes the derived files of the chart in a directory.
func Write(dir string) error {
	files, err := Files(dir)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
