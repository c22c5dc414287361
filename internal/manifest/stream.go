package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// file reads a file. JSON is read one object, or one item of a List, at a time, so that a file needs no memory but that
// of its objects. The rest, from the first document on that is not JSON, is YAML and needs to be in memory.
func (r *reader) file(path string) []error {
	w, err := r.source.open(path)
	if err != nil {
		return []error{err}
	}
	defer w.close()
	if err := w.more(); err != nil {
		return []error{err}
	}
	if byteOrderMark := []byte("\ufeff"); bytes.HasPrefix(w.text, byteOrderMark) {
		w.at = len(byteOrderMark)
	}
	f := &fileReader{reader: r, window: w, shared: newSharedParts()}
	if err := f.all(); err != nil {
		f.fail(err)
	}
	f.catchUp()
	if f.objects == 0 && len(f.errs) == 0 {
		r.note("%s: holds no objects", w.name)
	}
	return f.errs
}

// all reads all documents. The error is that of the file.
func (f *fileReader) all() error {
	for more := true; more; {
		var err error
		if more, err = f.json(); err != nil {
			return err
		}
	}
	if f.failed {
		return nil
	}
	rest, line, err := f.window.all()
	if err == nil {
		f.yaml(rest, line)
	}
	return err
}

// fileReader reads the documents of one file. An error in one document does not hide the others.
type fileReader struct {
	*reader
	*window
	shared  *sharedParts
	errs    []error
	waiting readAhead
	// objects counts what was read, without Lists.
	objects int
	// taken is true after the header of a snapshot.
	taken bool
	// failed is true after a syntax error in JSON: what follows cannot be read.
	failed bool
}

// json reads the next document if it is JSON. YAML may begin with a brace, too, so a document is JSON if its first
// chunk is.
func (f *fileReader) json() (found bool, _ error) {
	w := f.window
	for {
		c := cursor{text: w.text, at: w.at}
		if b, err := c.next(); err == nil && b != '{' || err != nil && w.eof {
			return false, nil
		}
		begin := c.at
		var t objectText
		err := t.pass(&c)
		switch {
		case err == nil:
			w.at = c.at
			f.object(document{place: place{file: w.name, number: w.lineAt(begin)}, raw: t.raw}, &t, 0)
			return true, nil
		case !errors.Is(err, errIncomplete):
			return false, nil
		case w.eof || len(w.text)-w.at >= chunk:
			w.at = begin
			return f.largeDocument()
		}
		if err := w.more(); err != nil {
			return false, err
		}
	}
}

// largeDocument reads a JSON document that does not end in the first chunk. It reads one item at a time if the document
// is a List with its kind before its items; otherwise all of it must be in memory.
func (f *fileReader) largeDocument() (found bool, _ error) {
	w := f.window
	d := document{place: place{file: w.name, number: w.lineAt(w.at)}}
	w.kept = w.at
	defer func() { w.kept = -1 }()
	m := members{}
	for {
		if err := w.scan(m.key); err != nil {
			return f.syntaxError(d, err)
		}
		if m.ended {
			break
		}
		if m.next == "items" && m.kind.isList() && m.kind.apiVersion != "" && !m.listed {
			w.kept, m.listed = -1, true
			d.kind = m.kind
			if err := f.items(d); err != nil {
				return f.syntaxError(d, err)
			}
			continue
		}
		if m.listed && slices.Contains([]string{"apiVersion", "kind", "items"}, m.next) {
			f.fail(d.errorf("field %q is set twice", m.next))
		}
		if err := w.scan(m.value); err != nil {
			return f.syntaxError(d, err)
		}
	}
	if !m.listed {
		c := cursor{text: w.text[:w.at], at: w.kept}
		var t objectText
		if err := t.pass(&c); err != nil {
			return f.syntaxError(d, err)
		}
		d.raw = t.raw
		f.object(d, &t, 0)
	}
	return true, nil
}

// members passes the members of an object one at a time. Its methods change it only if they succeed, for window.scan.
type members struct {
	kind kind
	// next is the key of the next value.
	next         string
	begun, ended bool
	// listed is true once the items have been read.
	listed bool
}

// key passes what is before a value, or the end of the object.
func (m *members) key(c *cursor) error {
	b, err := c.next()
	switch {
	case err != nil:
		return err
	case !m.begun:
		err = c.take('{')
	case b == '}':
		c.at++
		m.ended = true
		return nil
	default:
		err = c.take(',')
	}
	if err != nil {
		return err
	}
	if b, err := c.next(); err == nil && b == '}' && !m.begun {
		c.at++
		m.ended = true
		return nil
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	m.begun, m.next = true, string(key)
	return nil
}

// value passes a value, and keeps it if it is part of the kind.
func (m *members) value(c *cursor) error {
	c.space()
	begin := c.at
	if err := c.value(); err != nil {
		return err
	}
	switch text, plain := plainString(c.text[begin:c.at]); {
	case !plain:
	case m.next == "apiVersion":
		m.kind.apiVersion = text
	case m.next == "kind":
		m.kind.kind = text
	}
	return nil
}

// items reads the items of a List, one at a time.
func (f *fileReader) items(list document) error {
	var t objectText
	ended := false
	first := byte('[')
	items := listItems{of: list.kind, place: &list.place}
	for n := 0; ; n++ {
		err := f.scan(func(c *cursor) error {
			b, err := c.next()
			if err == nil && b == ']' && n > 0 {
				c.at++
				ended = true
				return nil
			}
			if err := c.take(first); err != nil {
				return err
			}
			if b, err := c.next(); err == nil && b == ']' && n == 0 {
				c.at++
				ended = true
				return nil
			}
			return t.pass(c)
		})
		if err != nil || ended {
			return err
		}
		first = ','
		f.item(items, n, &t)
	}
}

// listItems is a List that items are read of.
type listItems struct {
	of    kind
	place *place
	// depth is the number of Lists around its items.
	depth int
}

// item reads an item of a List. Its number is counted from 0.
func (f *fileReader) item(list listItems, n int, t *objectText) {
	d := document{place: place{list: list.place, number: n + 1}, raw: t.raw}
	if list.of.kind != "List" {
		d.kind = kind{list.of.apiVersion, strings.TrimSuffix(list.of.kind, "List")}
	}
	f.object(d, t, list.depth)
}

// maxListDepth bounds how deep Lists may be nested. kubectl nests none, and each level is parsed once more.
const maxListDepth = 8

// object reads a document, or its items if it is a List. depth is the number of Lists around it. An item of a list of
// one kind has that kind.
func (f *fileReader) object(d document, t *objectText, depth int) {
	if f.ahead(&d, t, depth) || f.sharedPod(&d, t) {
		return
	}
	if d.kind.kind != "" && t.kind == nil {
		d.raw = d.kind.withKind(t)
		_ = t.pass(&cursor{text: d.raw}) // it was valid before
	}
	if err := d.open(t); err != nil {
		f.errs = append(f.errs, err)
		return
	}
	if d.kind.isList() && t.repeated != "" {
		f.errs = append(f.errs, d.errorf("%s: field %q is set twice", d.name(), t.repeated))
		return
	}
	listed := d.kind.isList() && t.items != nil && string(t.items) != "null"
	switch {
	case listed && t.items[0] != '[':
		f.errs = append(f.errs, d.errorf("%s: items: is not a list", d.name()))
	case !listed:
		if err := f.add(d); err != nil {
			f.errs = append(f.errs, err)
		}
	case depth == maxListDepth:
		f.errs = append(f.errs, d.errorf("Lists are nested more than %d deep", maxListDepth))
	default:
		at := d.place // a document keeps its text in memory
		list := listItems{of: d.kind, place: &at, depth: depth + 1}
		c, n := cursor{text: t.items}, 0
		_ = c.array(func() error { // it was valid before
			var item objectText
			err := item.pass(&c)
			f.item(list, n, &item)
			n++
			return err
		})
	}
}

// add adds a document that is no List.
func (f *fileReader) add(d document) error {
	if d.kind == (kind{headerVersion, headerKind}) {
		if !f.taken && f.objects > 0 {
			return d.errorf("Snapshot: comes after other objects: pass those in a file of their own")
		}
		f.taken = true
	}
	f.objects++
	d.taken = f.taken
	return f.reader.add(d)
}

// yaml reads YAML documents, which begin in the given line.
func (f *fileReader) yaml(data []byte, line int) {
	list := yamlTexts(data, line)
	convert(list)
	parsed := make([]objectText, len(list))
	for i, text := range list {
		_ = parsed[i].pass(&cursor{text: text.data}) // it is valid JSON, unless there is an error
		if o, err := parsed[i].outline(); err == nil {
			f.taken = f.taken || o.APIVersion == headerVersion && o.Kind == headerKind
		}
	}
	for i, text := range list {
		d := document{place: place{file: f.name, number: text.line}, raw: text.data}
		switch {
		case text.err != nil:
			if bytes.Contains(data, []byte("{{")) {
				text.err = fmt.Errorf("%w; this looks like a template: plan what it is rendered to (helm template ... | dovetail plan -f -)", text.err)
			}
			f.fail(d.errorf("%w", text.err))
		case !bytes.Equal(text.data, []byte("null")):
			f.object(d, &parsed[i], 0)
		}
	}
}

// syntaxError adds the error of a JSON document. The rest of the file is not read.
func (f *fileReader) syntaxError(d document, err error) (found bool, _ error) {
	if read := (readError{}); errors.As(err, &read) {
		return false, read.error
	}
	f.failed = true
	line := f.lineAt(f.at)
	switch {
	case errors.Is(err, errIncomplete):
		err = d.errorf("the file ends in line %d, before this JSON document does: is the file complete?", line)
	case errors.Is(err, errTooDeep):
		err = d.errorf("line %d: values are nested more than %d deep", line, maxNesting)
	default:
		err = d.errorf("line %d: not valid JSON at %.20q", line, f.text[f.at:])
	}
	f.fail(err)
	return false, nil
}
