package manifest

import (
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// unknownField returns the path of a field that the strict decoder does not know; false for its other errors.
func unknownField(strict error) (path string, unknown bool) {
	_, quoted, unknown := strings.Cut(strict.Error(), `unknown field "`)
	return strings.TrimSuffix(quoted, `"`), unknown
}

// fromAPIServer reports whether an object has what only the API server adds: an API of a newer version may have the fields that it has.
func fromAPIServer(o client.Object) bool {
	return o.GetUID() != "" || o.GetResourceVersion() != "" || len(o.GetManagedFields()) > 0
}

// refuses reports whether an unknown field is an error, as for kubectl: not in an object that was read from an API server, nor in a
// status, which nobody writes.
func (d *document) refuses(o client.Object, path string) bool {
	return !d.taken && !fromAPIServer(o) && !strings.HasPrefix(path, "status.") && path != "status"
}

// unknownFieldError is the error of an unknown field, with the known field that it was probably meant to be.
func unknownFieldError(o client.Object, path string) error {
	parent, name := "", path
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		parent, name = path[:dot], path[dot+1:]
	}
	err := fmt.Errorf("unknown field %q", path)
	if meant := spelling.Nearest(name, spelling.FieldsAt(reflect.TypeOf(o), parent), max(2, len(name)/3)); meant != "" {
		return fmt.Errorf("%w, did you mean %q?", err, meant)
	}
	return err
}

// repeatedFieldError is the error of a field that the strict decoder has found twice in one object. The API server rejects it with strict
// validation; without, the last value counts, which is not what the reader of the file sees first. No API server writes such an object.
func repeatedFieldError(strict error) error {
	_, quoted, _ := strings.Cut(strict.Error(), `"`)
	return fmt.Errorf("field %q is set twice", strings.TrimSuffix(quoted, `"`))
}

// repeatedFields are the errors of the fields that an object has twice, at any depth.
func repeatedFields(object []byte) (out []error) {
	var whole map[string]any
	strict, err := kjson.UnmarshalStrict(object, &whole, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil // that error is reported when the object is decoded
	}
	for _, s := range strict {
		out = append(out, repeatedFieldError(s))
	}
	return out
}
