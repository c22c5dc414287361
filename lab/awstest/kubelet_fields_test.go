package awstest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

var update = flag.Bool("update", false, "write the fields of the kubelet's configuration anew; commit only what you understand")

// fieldsOf lists the fields of a type of the kubelet's as lines of path and kind.
func fieldsOf(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	line := func(kind string) []string { return []string{path + " " + kind} }
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return line("duration")
	case reflect.TypeFor[resource.Quantity]():
		return line("quantity")
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return line("any")
	}
	switch t.Kind() {
	case reflect.String:
		return line("string")
	case reflect.Bool:
		return line("boolean")
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return line("integer")
	case reflect.Float64:
		return line("number")
	case reflect.Slice:
		return append(line("list"), fieldsOf(t.Elem(), path+"[]")...)
	case reflect.Map:
		return append(line("map"), fieldsOf(t.Elem(), path+"{}")...)
	case reflect.Struct:
	default:
		return line("unheard of: " + t.String())
	}
	var out []string
	if path != "" {
		out = line("object")
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if len(f.Index) > 1 && name == "" || f.Anonymous || name == "-" || !f.IsExported() {
			continue
		}
		out = append(out, fieldsOf(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return out
}

// The fields that the product knows are those of the kubelet that the lab is built with.
func TestFieldsOfTheKubelet(t *testing.T) {
	all := fieldsOf(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "")
	slices.Sort(all)
	got := strings.Join(all, "\n") + "\n"
	file := filepath.Join("..", "..", "internal", "aws", "kubeletconfig", "fields.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-product +kubelet)\n%s", diff)
	}
}
