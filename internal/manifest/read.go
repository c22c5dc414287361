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
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// document is one object as it was found.
type document struct {
	// place is the file, the number of the document in it, and of the item in a list, all from 1.
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
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: is not text in UTF-8, so neither YAML nor JSON", name)
	}
	texts, err := texts(data)
	if err != nil {
		if bytes.Contains(data, []byte("{{")) {
			err = fmt.Errorf("%w; this looks like a template: plan what it is rendered to (helm template ... | dovetail plan -f -)", err)
		}
		return nil, fmt.Errorf("%s:%d: %w", name, len(texts)+1, err)
	}
	var out []document
	for i, text := range texts {
		d := document{place: fmt.Sprintf("%s:%d", name, i+1)}
		if bytes.Equal(text, []byte("null")) {
			continue
		}
		d.raw = text
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
			break
		}
		if err != nil {
			return out, err
		}
		out = append(out, text)
	}
	err = convert(&out)
	return out, err
}

// convert makes JSON of YAML. After an error only the documents before it are left.
func convert(texts *[][]byte) error {
	errs := make([]error, len(*texts))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for first := 0; first < len(*texts); first += convertedTogether {
		last := min(first+convertedTogether, len(*texts))
		group.Go(func() error {
			for i := first; i < last; i++ {
				// Two objects without --- between them are not one: hence strict.
				(*texts)[i], errs[i] = sigsyaml.YAMLToJSONStrict((*texts)[i])
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, err := range errs {
		if err != nil {
			*texts = (*texts)[:i]
			return err
		}
	}
	return nil
}

// convertedTogether is how many documents one goroutine converts at a time.
const convertedTogether = 64

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
	var o outline
	if first := bytes.TrimLeft(d.raw, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return nil, d.errorf("is not an object")
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &o); err != nil {
		return nil, d.errorf("%w", err)
	}
	d.kind.apiVersion, _ = o.APIVersion.(string)
	d.kind.kind, _ = o.Kind.(string)
	if d.kind.kind == "" || d.kind.apiVersion == "" {
		return nil, d.errorf("kind and apiVersion are needed, as in every Kubernetes object%s", unfit(d.place))
	}
	d.called = called(o.Metadata)
	if o.Items == nil || !strings.HasSuffix(d.kind.kind, "List") {
		return []document{d}, nil
	}
	out := make([]document, 0, len(o.Items))
	for i, item := range o.Items {
		sub := document{place: fmt.Sprintf("%s: item %d", d.place, i+1), raw: item}
		if d.kind.kind != "List" {
			sub.raw = d.lent(item)
		}
		inner, err := open(sub)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
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
