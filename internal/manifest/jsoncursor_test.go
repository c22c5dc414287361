package manifest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// FuzzCursor compares the cursor with encoding/json: it accepts the same, and calls incomplete what more text may
// complete.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"a" : [1, -2.5e+3, 0, true,false ,null, "\u00e9\n"] , "b":{}}`, `[]`, `[1,]`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, "[\"\t\"]", `["\x"]`,
		`["\u12G4"]`, `[01]`, `[1.]`, `[.5]`, `[1e]`, `[-]`, `[tru]`, `[nul`, `["\u12`, `{"a":`, `[1,2`, `[1 2]`, `{,}`, `[,]`, `[+1]`, `[1E-7]`, "",
		strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := cursor{text: text}
		b, err := c.next()
		if err != nil || b != '{' && b != '[' {
			return // documents are objects
		}
		err = c.value()
		c.space()
		if got, want := err == nil && c.at == len(text), json.Valid(text); got != want {
			t.Fatalf("%q: %v at %d, valid: %v", text, err, c.at, want)
		}
		for cut := 1; cut < min(len(text), 64) && err == nil; cut++ {
			if c := (cursor{text: text[:cut]}); !errors.Is(c.value(), errIncomplete) && c.at == cut && !json.Valid(text[:cut]) {
				t.Fatalf("%q: not incomplete", text[:cut])
			}
		}
	})
}

// A pod from shared parts is the pod that the whole document decodes to, as far as plans depend on it.
func TestSharedPodsAreWholePods(t *testing.T) {
	const spec = `"spec":{"nodeName":"n","containers":[{"name":"c","image":"i","env":[{"name":"A","value":"b"}],` +
		`"resources":{"requests":{"cpu":"100m","memory":"1Gi"}}}],"tolerations":[{"key":"a","operator":"Exists"}],` +
		`"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"x"}},{"name":"s","secret":{"secretName":"y"}}]}`
	const status = `"status":{"phase":"Running","startTime":"2026-08-21T12:00:00Z","conditions":[{"type":"Ready","status":"True","message":"m"}]}`
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"a","uid":"u","labels":{"app":"a","b":"c"}},` + spec + "," + status + "}",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"2026-08-21T12:00:00Z","annotations":{"karpenter.sh/do-not-disrupt":"true","x":"y"},` +
			`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"1","controller":true}],"managedFields":[{"manager":"m"}]},` + spec + "}",
		`{"status":{},"spec":{},"metadata":{"name":"a","labels":{}},"kind":"Pod","apiVersion":"v1"}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"initContainers":[{"name":"i","resources":{"limits":{"cpu":"1"}}}],` +
			`"containers":[{"name":"b"},{"resources":{},"name":"c"},{"name":"d","resources":null},{"resources" : {"limits":{"cpu":"1"}} ,"name":"e"}]}}`,
	} {
		d := document{raw: []byte(text), kind: kind{"v1", "Pod"}}
		whole, notes, err := d.decode(&corev1.Pod{})
		if err != nil || len(notes) > 0 {
			t.Fatal(err, notes)
		}
		scrub(whole)
		f := &fileReader{reader: &reader{world: &ClusterState{}, objects: map[identity]*object{}, unnamed: map[string]int{}}, shared: newSharedParts()}
		for range 2 { // decoded, and shared
			var o objectText
			if err := o.pass(&cursor{text: []byte(text)}); err != nil {
				t.Fatal(err)
			}
			f.objects, f.order = 0, nil
			clear(f.reader.objects)
			if !f.sharedPod(&document{raw: o.raw}, &o) {
				t.Fatalf("not shared: %s", text)
			}
			f.identify(whole, "Pod")
			if diff := cmp.Diff(whole, f.order[0].Object); diff != "" {
				t.Errorf("%s (-whole +shared):\n%s", text, diff)
			}
		}
	}
	// Whatever has a note or an error is decoded as a whole.
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"a"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"extra":1}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"A"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"node":1}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":null}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b","a":"c"}}}`, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"n\u0061me":"a"}}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"Spec":{}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"priority":"x"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"resources":{},"resources":{}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[],"containers":[{"resources":{}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"resources":{"request":{}}}]}}`,
	} {
		var o objectText
		if err := o.pass(&cursor{text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		f := &fileReader{reader: &reader{world: &ClusterState{}, objects: map[identity]*object{}}, shared: newSharedParts()}
		if f.sharedPod(&document{raw: o.raw}, &o) {
			t.Errorf("shared: %s", text)
		}
	}
}
