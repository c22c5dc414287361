package recorder

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// change gives a field another value.
func change(t *testing.T, f reflect.Value) {
	t.Helper()
	switch v := f.Addr().Interface().(type) {
	case *requirement.Set:
		*v = v.With(requirement.In("example.com/changed", "yes"))
		return
	case *corev1.ResourceList:
		*v = corev1.ResourceList{"example.com/changed": resource.MustParse("1")}
		return
	}
	switch f.Kind() {
	case reflect.String:
		f.SetString(f.String() + "x")
	case reflect.Float64:
		f.SetFloat(f.Float() + 1)
	case reflect.Int, reflect.Int64:
		f.SetInt(f.Int() + 1)
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), f.Len()+1, f.Len()+1))
	case reflect.Map:
		f.Set(reflect.MakeMap(f.Type()))
		f.SetMapIndex(reflect.ValueOf("changed"), reflect.New(f.Type().Elem()).Elem())
	default:
		t.Fatalf("the test cannot change a field of kind %s", f.Kind())
	}
}

// A type that is taken for the one before would be replayed wrongly: every field counts.
func TestEveryFieldOfATypeCounts(t *testing.T) {
	fresh := func() *catalog.InstanceType { return enginetest.Type("m.large", 0.1, "cpu", "2", "memory", "4Gi") }
	if !sameType(fresh(), fresh()) {
		t.Error("a type that was made anew is another one")
	}
	for i := range reflect.TypeFor[catalog.InstanceType]().NumField() {
		other := fresh()
		change(t, reflect.ValueOf(other).Elem().Field(i))
		if sameType(fresh(), other) {
			t.Errorf("a change of InstanceType.%s is not seen", reflect.TypeFor[catalog.InstanceType]().Field(i).Name)
		}
	}
	for i := range reflect.TypeFor[catalog.Offering]().NumField() {
		other := fresh()
		change(t, reflect.ValueOf(&other.Offerings[0]).Elem().Field(i))
		if sameType(fresh(), other) {
			t.Errorf("a change of Offering.%s is not seen", reflect.TypeFor[catalog.Offering]().Field(i).Name)
		}
	}
}
