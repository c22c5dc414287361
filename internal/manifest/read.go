// Package manifest reads a world from files, as a cluster would know it had they been applied: objects are defaulted
// and checked, workloads become the pods that their controllers would make. It also writes the world of a live
// cluster to such a file, without what nobody else should see.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// document is one object as it was found.
type document struct {
	// place is the file, the number of the document in it, and of the item in a list, all from 1.
	place  string
	fields map[string]any
	// taken tells that the file shows a cluster at an instant: nothing in it is waiting to be completed.
	taken bool
}

func (d document) text(field string) string {
	s, _ := d.fields[field].(string)
	return s
}

// errorf makes an error that says where.
func (d document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{d.place}, args...)...)
}

// sources lists the files that a path stands for: itself, or those below a directory, sorted. Hidden ones do not count.
func sources(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var out []string
	err = filepath.WalkDir(path, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := p != path && strings.HasPrefix(entry.Name(), ".")
		switch {
		case hidden && entry.IsDir():
			return filepath.SkipDir
		case hidden || entry.IsDir():
			return nil
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: holds no .yaml, .yml or .json file", path)
	}
	return out, err
}

// split finds the objects in a file. Lists are taken apart.
func split(name string, data []byte) ([]document, error) {
	texts, err := texts(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, len(texts)+1, err)
	}
	var out []document
	for i, text := range texts {
		d := document{place: fmt.Sprintf("%s:%d", name, i+1)}
		if bytes.Equal(text, []byte("null")) {
			continue
		}
		if err := utiljson.Unmarshal(text, &d.fields); err != nil {
			return nil, d.errorf("is not an object")
		}
		docs, err := open(d)
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	return out, nil
}

// texts are the documents of a file, as JSON: separated by --- in YAML, one after the other in JSON. After an
// error they are those before it.
func texts(data []byte) (out [][]byte, err error) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		if out, err := jsonTexts(trimmed); err == nil {
			return out, nil // else it may be YAML that begins with a brace
		}
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil {
			text, err = sigsyaml.YAMLToJSONStrict(text) // two objects without --- between them are not one
		}
		if err != nil {
			return out, err
		}
		out = append(out, text)
	}
}

func jsonTexts(data []byte) (out [][]byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
}

// open returns the document, or its items if it is a list.
func open(d document) ([]document, error) {
	kind := d.text("kind")
	items, isList := d.fields["items"].([]any)
	if kind == "" || d.text("apiVersion") == "" {
		return nil, d.errorf("kind and apiVersion are needed")
	}
	if !isList || !strings.HasSuffix(kind, "List") {
		return []document{d}, nil
	}
	var out []document
	for i, item := range items {
		fields, ok := item.(map[string]any)
		sub := document{place: fmt.Sprintf("%s: item %d", d.place, i+1), fields: fields}
		if !ok {
			return nil, sub.errorf("is not an object")
		}
		if _, named := fields["kind"]; !named && kind != "List" { // as the API server lists one kind
			fields["kind"], fields["apiVersion"] = strings.TrimSuffix(kind, "List"), d.text("apiVersion")
		}
		inner, err := open(sub)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}
