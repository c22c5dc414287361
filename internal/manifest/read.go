// Package manifest reads the state of a cluster from files, as if they had been applied: it defaults and validates
// objects, and expands workloads to the pods that their controllers would make. It also writes the state of a live
// cluster to such a file, without secrets.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// document is one object before it is decoded.
type document struct {
	place place
	// raw is the document as JSON; nil once it has been decoded.
	raw  []byte
	kind kind
	// taken is true if the file is a snapshot of a cluster, which needs no completion.
	taken bool
	// displayName is its namespace and name.
	displayName string
}

// place states where a document is: a line of a file, or the item of a List; both are counted from 1. It becomes text only
// in messages, since most documents have none.
type place struct {
	// list is the List that the document is an item of; nil if it is none.
	list   *place
	file   string
	number int
}

// String returns FILE:LINE, or FILE:LINE: item N.
func (p place) String() string {
	if p.list != nil {
		return fmt.Sprintf("%s: item %d", p.list, p.number)
	}
	return fmt.Sprintf("%s:%d", p.file, p.number)
}

// outline is the part of a document that is read before the rest is decoded.
type outline struct {
	APIVersion any             `json:"apiVersion"`
	Kind       any             `json:"kind"`
	Metadata   json.RawMessage `json:"metadata"`
	Items      json.RawMessage `json:"items"`
}

// fields returns the document as a tree.
func (d document) fields() (map[string]any, error) {
	var out map[string]any
	err := utiljson.Unmarshal(d.raw, &out)
	return out, err
}

// errorf makes an error with the document's place.
func (d document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{d.place}, args...)...)
}

// sources lists the files of a path: itself, or those below a directory, sorted, without hidden ones.
func sources(path string) ([]string, error) {
	if path == "" {
		return nil, errors.New(`-f "": no file is named`)
	}
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
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			return nil
		}
		// A pipe or device would block forever; anyone who means one names it. A link counts as what it leads to.
		if info, err := os.Stat(p); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: holds no .yaml, .yml or .json file", path)
	}
	return out, err
}

// open reads the kind and the name of a document with the given text.
func (d *document) open(t *objectText) error {
	if first := bytes.TrimLeft(d.raw, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return d.errorf("is not an object")
	}
	o, err := t.outline()
	if err != nil {
		return d.errorf("%w", err)
	}
	d.kind.apiVersion, _ = o.APIVersion.(string)
	d.kind.kind, _ = o.Kind.(string)
	d.displayName = displayName(o.Metadata)
	if d.kind.kind == "" || d.kind.apiVersion == "" {
		return d.errorf("%skind and apiVersion are needed, as in every Kubernetes object%s", prefixed(d.displayName), hint(d.place.String()))
	}
	return nil
}

// isList reports whether a kind is that of a List.
func (k kind) isList() bool { return strings.HasSuffix(k.kind, "List") }

// prefixed returns a name as the prefix of an error.
func prefixed(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// hint returns what to do about a file without objects, if its name shows what it is.
func hint(place string) string {
	base, _, _ := strings.Cut(filepath.Base(place), ":")
	switch strings.TrimSuffix(strings.TrimSuffix(base, ".yml"), ".yaml") {
	case "kustomization":
		return "; plan what it is built to (kubectl kustomize DIR | dovetail plan -f -)"
	case "values", "Chart":
		return "; plan what the chart is rendered to (helm template DIR | dovetail plan -f -)"
	}
	return ""
}

// withKind adds the kind to an item of a list of one kind, where the API server omits it. The item has no kind; its text stays as it is, so
// that repeated fields are found.
func (k kind) withKind(t *objectText) []byte {
	text := bytes.TrimLeft(t.raw, " \t\r\n")
	if len(text) == 0 || text[0] != '{' {
		return t.raw
	}
	members := [][]byte{quoted("kind", k.kind)}
	if t.apiVersion == nil {
		members = append(members, quoted("apiVersion", k.apiVersion))
	}
	if rest := bytes.TrimLeft(text[1:], " \t\r\n"); rest[0] != '}' {
		members = append(members, rest[:len(rest):len(rest)])
		return append([]byte("{"), bytes.Join(members, []byte(","))...)
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(members, []byte(",")))
}

// quoted is a member of an object as JSON.
func quoted(key, value string) []byte {
	text, _ := json.Marshal(value) // a string never fails
	return fmt.Appendf(nil, "%q:%s", key, text)
}

// displayName returns the namespace and name of an object. Errors in the metadata are reported when all of it is
// decoded.
func displayName(metadata []byte) string {
	var m struct{ Namespace, Name any }
	_ = json.Unmarshal(metadata, &m)
	namespace, _ := m.Namespace.(string)
	name, _ := m.Name.(string)
	if namespace != "" {
		return namespace + "/" + name
	}
	return name
}
