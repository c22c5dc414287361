// Package manifest reads a world from files, as a cluster would know it had they been applied: objects are defaulted
// and checked, workloads become the pods that their controllers would make. It also writes the world of a live
// cluster to such a file, without what nobody else should see.
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

// document is one object as it was found.
type document struct {
	// place is the file, the line that the document begins in, and the number of the item in a list, both from 1.
	place string
	// raw is the document as JSON; nil once it has been decoded.
	raw  []byte
	kind kind
	// taken tells that the file shows a cluster at an instant: nothing in it is waiting to be completed.
	taken bool
	// called is its namespace and name.
	called string
}

// outline is what has to be known of a document before it is decoded.
type outline struct {
	APIVersion any               `json:"apiVersion"`
	Kind       any               `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// fields are the document as a tree.
func (d document) fields() (map[string]any, error) {
	var out map[string]any
	err := utiljson.Unmarshal(d.raw, &out)
	return out, err
}

// errorf makes an error that says where.
func (d document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{d.place}, args...)...)
}

// sources lists the files that a path stands for: itself, or those below a directory, sorted. Hidden ones do not count.
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

// split finds the objects in a file. Lists are taken apart. What is wrong with a document hides no other.
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

// maxListDepth bounds how deep Lists may be inside each other. kubectl makes none in a List; each level is read once more.
const maxListDepth = 8

// open returns the document, or its items if it is a list. The depth is that of lists around it.
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
	d.called = called(o.Metadata)
	if d.kind.kind == "" || d.kind.apiVersion == "" {
		return nil, []error{d.errorf("%skind and apiVersion are needed, as in every Kubernetes object%s", prefixed(d.called), unfit(d.place))}
	}
	if o.Items == nil || !strings.HasSuffix(d.kind.kind, "List") {
		return []document{d}, nil
	}
	if depth == maxListDepth {
		return nil, []error{d.errorf("Lists are inside each other more than %d deep", maxListDepth)}
	}
	out := make([]document, 0, len(o.Items))
	var errs []error
	for i, item := range o.Items {
		sub := document{place: fmt.Sprintf("%s: item %d", d.place, i+1), raw: item}
		if d.kind.kind != "List" {
			sub.raw = d.lent(item)
		}
		inner, wrong := open(sub, depth+1)
		out, errs = append(out, inner...), append(errs, wrong...)
	}
	return out, errs
}

// prefixed puts a name before what is wrong with the object.
func prefixed(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// unfit says what to do about a file that is not made of objects, where its name tells what it is.
func unfit(place string) string {
	base, _, _ := strings.Cut(filepath.Base(place), ":")
	switch strings.TrimSuffix(strings.TrimSuffix(base, ".yml"), ".yaml") {
	case "kustomization":
		return "; plan what it is built to (kubectl kustomize DIR | dovetail plan -f -)"
	case "values", "Chart":
		return "; plan what the chart is rendered to (helm template DIR | dovetail plan -f -)"
	}
	return ""
}

// lent is an item of a list of one kind with that kind, which the API server leaves out.
func (d document) lent(item []byte) []byte {
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

// called is the namespace and name that people know an object by. What is wrong with metadata comes out when all of it is
// decoded.
func called(metadata []byte) string {
	var m struct{ Namespace, Name any }
	_ = json.Unmarshal(metadata, &m)
	namespace, _ := m.Namespace.(string)
	name, _ := m.Name.(string)
	if namespace != "" {
		return namespace + "/" + name
	}
	return name
}
