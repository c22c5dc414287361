package manifest

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
)

// madeDefinition is a definition, or why the build has none.
type madeDefinition struct {
	*definition
	err error
}

// readAhead is the documents of a file that wait for a definition: NodePools mostly come first in a file, and to compile the
// rules of their definition takes a fifth of the CPU time of a plan of 5,000 replicas. Meanwhile what follows them is decoded.
//
// Invariant: documents are added in their order, so what is read does not depend on when a definition is ready.
type readAhead struct {
	steps []func()
	bytes int // of text that steps keep
	// adding is true while steps run: what they read is in its turn.
	adding bool
}

const (
	// maxAhead and maxTextAhead bound the memory of what is read ahead, in documents and in bytes of those that are not decoded:
	// beyond, the reader waits.
	maxAhead     = 20_000
	maxTextAhead = 4 << 20
)

// ahead puts a document aside if it or one before it waits for a definition. depth is the number of Lists around it.
func (f *fileReader) ahead(d *document, t *objectText, depth int) bool {
	a := &f.waiting
	if a.adding {
		return false
	}
	if len(a.steps) > 0 && (f.definitionsReady() || len(a.steps) >= maxAhead || a.bytes >= maxTextAhead) {
		f.catchUp()
	}
	if len(a.steps) == 0 && !f.waits(d, t) {
		return false
	}
	of := *d
	if pod := new(corev1.Pod); f.decodePod(pod, &of, t) {
		of.raw = nil
		a.steps = append(a.steps, func() { f.addPod(pod, of) })
		return true
	}
	of.raw = bytes.Clone(d.raw)
	a.bytes += len(of.raw)
	a.steps = append(a.steps, func() {
		var again objectText
		_ = again.pass(&cursor{text: of.raw}) // it was valid before
		f.object(of, &again, depth)
	})
	return true
}

// waits reports whether a document needs a definition that is not compiled yet. It begins to compile it.
func (f *fileReader) waits(d *document, t *objectText) bool {
	k := d.kind
	if t.kind != nil {
		apiVersion, plain := plainString(t.apiVersion)
		name, too := plainString(t.kind)
		if !plain || !too {
			return false
		}
		k = kind{apiVersion, name}
	}
	return !f.taken && k.defined() && f.prototypes[k] != nil && !f.definitionOf(k).Ready()
}

// definitionsReady reports whether all definitions are compiled that are needed so far.
func (f *fileReader) definitionsReady() bool {
	for _, made := range f.definitions {
		if !made.Ready() {
			return false
		}
	}
	return true
}

// catchUp adds the documents that wait, after their definitions.
func (f *fileReader) catchUp() {
	steps := f.waiting.steps
	f.waiting = readAhead{adding: true}
	for _, step := range steps {
		step()
	}
	f.waiting = readAhead{}
}

// fail adds an error after those of documents that wait.
func (f *fileReader) fail(err error) {
	f.catchUp()
	f.errs = append(f.errs, err)
}

// defined reports whether objects of the kind are completed and validated by their definition: those of our own API that people write.
func (k kind) defined() bool {
	switch k.kind {
	case "NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer":
		return true
	}
	return false
}

// definitionOf is the definition of a kind, compiled on another processor from the first call on.
func (r *reader) definitionOf(k kind) *parallel.Future[madeDefinition] {
	if r.definitions[k] == nil {
		r.definitions[k] = parallel.Begin(func() madeDefinition {
			made, err := newDefinition(k)
			return madeDefinition{made, err}
		})
	}
	return r.definitions[k]
}
