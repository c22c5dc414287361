package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leftOut are the objects of a kind that plans take no account of.
type leftOut struct {
	count int
	// place and called are those of the first.
	place, called string
	// pods tells that at least one of them holds a template of pods.
	pods bool
}

// skip leaves out a document whose kind is not known.
func (r *reader) skip(d document) {
	out := r.skipped[d.kind]
	if out == nil {
		out = &leftOut{place: d.place, called: d.called}
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

// why tells people what is missing from the plan, and what to do about it.
func (l *leftOut) why(k kind, known map[kind]client.Object) string {
	what := strings.TrimSpace(k.kind+" "+l.called) + fmt.Sprintf(" (%s)", k.apiVersion)
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
		return what + "how many pods become of its template is not known; to plan them, add them as Pods or as a Deployment"
	}
	return what + "this kind has no part in a plan"
}
