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
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
)

// document is one object before it is decoded.
type document struct {
	// place is the file, the line where the document begins, and the number of the item in a list, both from 1.
	place string
	// raw is the document as JSON; nil once it has been decoded.
	raw  []byte
	kind kind
	// taken is true if the file is a snapshot of a cluster, which needs no completion.
	taken bool
	// displayName is its namespace and name.
	displayName string
}

// outline is the part of a document that is read before the rest is decoded.
type outline struct {
	APIVersion any               `json:"apiVersion"`
	Kind       any               `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
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

// split returns the objects in a file, and the items of lists. An error in one document does not hide the others.
func split(name string, data []byte) ([]document, []error) {
	if !utf8.Valid(data) {
		return nil, []error{fmt.Errorf("%s: is not text in UTF-8, so neither YAML nor JSON", name)}
	}
	var out []document
	var errs []error
	for _, text := range texts(data) {
		d := document{place: fmt.Sprintf("%s:%d", name, text.line), raw: text.data}
		switch {
		case text.err != nil:
			if bytes.Contains(data, []byte("{{")) {
				text.err = fmt.Errorf("%w; this looks like a template: plan what it is rendered to (helm template ... | dovetail plan -f -)", text.err)
			}
			errs = append(errs, d.errorf("%w", text.err))
		case !bytes.Equal(text.data, []byte("null")):
			documents, wrong := open(d, 0)
			out, errs = append(out, documents...), append(errs, wrong...)
		}
	}
	return out, errs
}

// maxListDepth bounds how deep Lists may be nested. kubectl nests none, and each level is parsed once more.
const maxListDepth = 8

// open returns the document, or its items if it is a list. depth is the number of lists around it.
func open(d document, depth int) ([]document, []error) {
	var o outline
	if first := bytes.TrimLeft(d.raw, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return nil, []error{d.errorf("is not an object")}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &o); err != nil {
		return nil, []error{d.errorf("%w", err)}
	}
	d.kind.apiVersion, _ = o.APIVersion.(string)
	d.kind.kind, _ = o.Kind.(string)
	d.displayName = displayName(o.Metadata)
	if d.kind.kind == "" || d.kind.apiVersion == "" {
		return nil, []error{d.errorf("%skind and apiVersion are needed, as in every Kubernetes object%s", prefixed(d.displayName), hint(d.place))}
	}
	if o.Items == nil || !strings.HasSuffix(d.kind.kind, "List") {
		return []document{d}, nil
	}
	if depth == maxListDepth {
		return nil, []error{d.errorf("Lists are nested more than %d deep", maxListDepth)}
	}
	out := make([]document, 0, len(o.Items))
	var errs []error
	for i, item := range o.Items {
		sub := document{place: fmt.Sprintf("%s: item %d", d.place, i+1), raw: item}
		if d.kind.kind != "List" {
			sub.raw = d.withKind(item)
		}
		inner, wrong := open(sub, depth+1)
		out, errs = append(out, inner...), append(errs, wrong...)
	}
	return out, errs
}

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

// withKind adds the kind to an item of a list of one kind, where the API server omits it.
func (d document) withKind(item []byte) []byte {
	fields, err := document{raw: item}.fields()
	if _, named := fields["kind"]; err != nil || fields == nil || named {
		return item
	}
	fields["kind"], fields["apiVersion"] = strings.TrimSuffix(d.kind.kind, "List"), d.kind.apiVersion
	if whole, err := json.Marshal(fields); err == nil {
		return whole
	}
	return item
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
