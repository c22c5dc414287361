package wording

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// label prints a requirement on a label.
func (s Style) label(l rejection.Label) string {
	if s == LabelWords && l.Operator != corev1.NodeSelectorOpDoesNotExist && l.AtLeast == nil && l.AtMost == nil {
		if word := LabelWord(l.Key); word != l.Key && len(l.Values) > 0 {
			if l.Operator == corev1.NodeSelectorOpIn && len(l.Values) == 1 {
				return word + " " + l.Values[0]
			}
			l.Key = word
		}
	}
	return Requirement(l.Requirement())
}

// values prints a requirement without its key where it lists values: the key has just been named.
func (s Style) values(l rejection.Label) string {
	if l.Operator == corev1.NodeSelectorOpIn {
		return List(l.Values)
	}
	return s.label(l)
}

// all prints several requirements; those of the pool if there are none.
func (s Style) all(list []rejection.Label) string {
	if len(list) == 0 {
		return "what the pool requires together"
	}
	parts := make([]string, len(list))
	for i, l := range list {
		parts[i] = s.label(l)
	}
	return strings.Join(parts, ", ")
}

func all(list []string) string { return strings.Join(list, ", ") }

// labels returns why no node has labels.
func (s Style) labels(l *rejection.Labels) Clause {
	switch {
	case l.Cause == rejection.EmptyTerms:
		return clause(None, "required node affinity has only empty terms, which no node matches")
	case l.Cause == rejection.ImpossibleValue:
		return clause(Pod, "requires %s, but that label is always one of %v", l.Required[0].Requirement(), l.Known)
	case l.Cause == rejection.PoolExcludes:
		return required(l, s.label(l.Required[0])).but(s.values(*l.Allowed))
	case l.By == rejection.ByPool && l.Allowed != nil:
		return clause(Pool, "allows only %s, and no such instance type has %s", s.label(*l.Allowed), s.all(l.Required))
	case l.By == rejection.ByPool && l.Cause == rejection.UnknownValue:
		return clause(Its, "own requirements filtered out all instance types: none has %s%s", s.label(l.Required[0]), hint(l))
	case l.By == rejection.ByPool:
		parts := make([]string, len(l.Required))
		for i, one := range l.Required {
			parts[i] = one.Requirement().String()
		}
		return clause(Its, "own requirements filtered out all instance types: %s", all(parts))
	}
	return required(l, s.demand(l))
}

// required returns who requires what.
func required(l *rejection.Labels, what string) Clause {
	switch {
	case l.By == rejection.ByPod:
		return clause(Pod, "requires %s", what)
	case l.Claim != "":
		return clause(None, "volume claim %q can only be used in %s", l.Claim, what)
	}
	return clause(None, "a volume can only be used in %s", what)
}

// demand returns what pods or volumes require, and why no node has it.
func (s Style) demand(l *rejection.Labels) string {
	switch what := s.all(l.Required); l.Cause {
	case rejection.NewNodeName:
		return what + ", and a new node has a name of its own"
	case rejection.Contradictory:
		return "contradictory values of " + l.Required[0].Key
	case rejection.UnknownBeforeJoin:
		return what + ", a label whose value is not known before a node joins"
	case rejection.OnlySomeNodes:
		return what + ", a label that only some nodes get, after they have joined"
	case rejection.Undefined:
		return what + ", a label that neither the pool nor its instance types have" + hint(l)
	case rejection.UnknownValue:
		return what + ", which no instance type has" + hint(l)
	case rejection.OtherPool:
		return what + hint(l)
	default:
		what += ", which no instance type of the pool has"
		if l.Combined {
			what += " together with " + s.all(l.With)
		}
		return what
	}
}

// hint is which word was probably meant, or which there are.
func hint(l *rejection.Labels) string {
	if l.Similar != "" || len(l.Known) == 0 {
		return similar(l.Similar)
	}
	return fmt.Sprintf(" (there is only %s)", List(l.Known))
}

// similar is a hint at the word that was probably meant; empty without one.
func similar(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", word)
}

// contradiction is two requirements that exclude each other.
func (s Style) contradiction(c *rejection.Contradiction) Clause {
	switch {
	case len(c.Pod) == 0:
		return clause(None, "the pod's volumes contradict each other: there is no %s in which all of them can be used", c.Key)
	case len(c.Volumes) == 0:
		return clause(Pod, "contradicts itself: nothing can be both %s and %s", s.label(c.Pod[0]), s.label(c.Pod[1]))
	}
	return clause(Pod, "requires %s, but its volumes can only be used in %s: nothing can be both", s.label(c.Pod[0]), s.label(c.Volumes[0]))
}

// taints is which taints the pod does not tolerate.
func taints(list []rejection.UntoleratedTaint) Clause {
	out := make([]string, len(list))
	for i, t := range list {
		out[i] = strings.TrimSuffix(t.Key+"="+t.Value, "=") + ":" + t.Effect
	}
	if len(out) == 1 {
		return clause(Pod, "does not tolerate taint %s", out[0])
	}
	return clause(Pod, "does not tolerate taints %s", all(out))
}
