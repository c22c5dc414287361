package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// NotFoundError is returned for an object that the cluster does not have.
type NotFoundError struct {
	Kind, Name string
	// Others are the names that were probably meant; empty if none is near.
	Others []string
}

// maxOthers limits how many names an error lists.
const maxOthers = 3

// NotFound is the error for a name of a cluster-scoped kind. Probably meant are names that begin with it, as those of nodes do that
// are given without their domain; else the nearest one, with at most a third of the letters wrong.
func NotFound[T interface{ GetName() string }](kind, name string, objects []T) *NotFoundError {
	e := &NotFoundError{Kind: kind, Name: name}
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = o.GetName()
		if name != "" && strings.HasPrefix(names[i], name) {
			e.Others = append(e.Others, names[i])
		}
	}
	slices.Sort(e.Others)
	if near := spelling.Nearest(name, names, max(1, len(name)/3)); len(e.Others) == 0 && near != "" {
		e.Others = []string{near}
	}
	return e
}

// Error is for people.
func (e *NotFoundError) Error() string {
	out := fmt.Sprintf("the cluster has no %s %q", e.Kind, e.Name)
	switch n := len(e.Others); {
	case n > maxOthers:
		out += fmt.Sprintf("; there is %s and %d more", strings.Join(e.Others[:maxOthers], ", "), n-maxOthers)
	case n > 1:
		out += "; there is " + strings.Join(e.Others, ", ")
	case n == 1:
		out += "; did you mean " + e.Others[0] + "?"
	}
	return out
}
