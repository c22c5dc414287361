package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// skippedKind is the objects of a kind that plans ignore.
type skippedKind struct {
	count int
	// place and displayName are those of the first.
	place       place
	displayName string
	// pods is true if at least one of them has a pod template.
	pods bool
}

// skip counts a document of an unknown kind.
func (r *reader) skip(d document) {
	out := r.skipped[d.kind]
	if out == nil {
		out = &skippedKind{place: d.place, displayName: d.displayName}
		r.skipped[d.kind] = out
		r.skipOrder = append(r.skipOrder, d.kind)
	}
	out.count++
	var o struct {
		Spec struct {
			Template struct{ Spec struct{ Containers []any } }
		}
	}
	out.pods = out.pods || json.Unmarshal(d.raw, &o) == nil && len(o.Spec.Template.Spec.Containers) > 0
}

// why describes what the plan ignores, and what to do about it.
func (l *skippedKind) why(k kind, known map[kind]client.Object) string {
	what := strings.TrimSpace(k.kind+" "+l.displayName) + fmt.Sprintf(" (%s)", k.apiVersion)
	if l.count > 1 {
		what = fmt.Sprintf("%s and %d more", what, l.count-1)
	}
	what += " left out: "
	for _, other := range slices.SortedFunc(maps.Keys(known), func(a, b kind) int { return strings.Compare(a.apiVersion, b.apiVersion) }) {
		if other.kind == k.kind {
			return what + fmt.Sprintf("this kind is read in %s", other.apiVersion)
		}
	}
	switch {
	case k.kind == "CronJob":
		return what + "its pods come and go; to plan those of a run, add the Job (kubectl create job run --from=cronjob/NAME --dry-run=client -o yaml)"
	case l.pods:
		return what + "the number of its pods is unknown; to plan them, add them as Pods or as a Deployment"
	}
	return what + "this kind does not affect a plan"
}
