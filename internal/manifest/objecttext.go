package manifest

import (
	"bytes"

	kjson "sigs.k8s.io/json"
)

// objectText is an object as JSON, with the text of the members that are read apart. A member that is missing is nil.
type objectText struct {
	raw                                             []byte
	apiVersion, kind, metadata, spec, status, items []byte
	name, namespace, uid, labels                    []byte // of the metadata
	// others and otherMetadata are true if there are more members than these.
	others, otherMetadata bool
	// odd is true if members are repeated, or have escaped keys or unexpected types, so that their text is not enough.
	odd bool
	// repeated is the last of these members that exists twice; empty if none is. A List is not decoded as a whole, which finds the others.
	repeated string
}

// pass passes a value and, if it is an object, finds its members. It costs one scan of the text.
func (t *objectText) pass(c *cursor) error {
	*t = objectText{}
	b, err := c.next()
	if err != nil {
		return err
	}
	begin := c.at
	if b == '{' {
		err = c.object(func(key []byte) error { return t.member(c, key) })
	} else {
		t.odd = true
		err = c.value()
	}
	t.raw = c.text[begin:c.at]
	return err
}

// member passes a member of the object.
func (t *objectText) member(c *cursor, key []byte) error {
	switch string(key) {
	case "apiVersion":
		return t.keep(c, "apiVersion", &t.apiVersion, '"')
	case "kind":
		return t.keep(c, "kind", &t.kind, '"')
	case "metadata":
		return t.keep(c, "metadata", &t.metadata, '{')
	case "spec":
		return t.keep(c, "spec", &t.spec, '{')
	case "status":
		return t.keep(c, "status", &t.status, '{')
	case "items":
		return t.keep(c, "items", &t.items, '[')
	}
	t.others = true
	t.odd = t.odd || bytes.IndexByte(key, '\\') >= 0
	return c.value()
}

// metadataMember passes a member of the metadata.
func (t *objectText) metadataMember(c *cursor, key []byte) error {
	switch string(key) {
	case "name":
		return t.keep(c, "metadata.name", &t.name, '"')
	case "namespace":
		return t.keep(c, "metadata.namespace", &t.namespace, '"')
	case "uid":
		return t.keep(c, "metadata.uid", &t.uid, '"')
	case "labels":
		return t.keep(c, "metadata.labels", &t.labels, '{')
	}
	t.otherMetadata = true
	t.odd = t.odd || bytes.IndexByte(key, '\\') >= 0
	return c.value()
}

// keep passes a value that is expected to begin with a byte, and keeps its text.
func (t *objectText) keep(c *cursor, key string, into *[]byte, first byte) error {
	b, err := c.next()
	if err != nil {
		return err
	}
	if t.odd = t.odd || b != first || *into != nil; *into != nil {
		t.repeated = key
	}
	begin := c.at
	if into == &t.metadata && b == '{' {
		err = c.object(func(key []byte) error { return t.metadataMember(c, key) })
	} else {
		err = c.value()
	}
	*into = c.text[begin:c.at]
	return err
}

// outline returns the part of the object that is read before the rest is decoded.
func (t *objectText) outline() (o outline, err error) {
	apiVersion, plain := plainString(t.apiVersion)
	kind, too := plainString(t.kind)
	if t.odd || !plain || !too {
		return o, kjson.UnmarshalCaseSensitivePreserveInts(t.raw, &o)
	}
	return outline{APIVersion: apiVersion, Kind: kind, Metadata: t.metadata, Items: t.items}, nil
}

// plainString returns the string that a text is, if it has no escapes; a missing one is empty.
func plainString(text []byte) (value string, plain bool) {
	if len(text) == 0 {
		return "", true
	}
	if text[0] != '"' || bytes.IndexByte(text, '\\') >= 0 {
		return "", false
	}
	return string(text[1 : len(text)-1]), true
}
