// Package instancetypelist filters, sorts and prints the instance types that a node class can launch: it shows what a
// node pool could launch, and why it does not launch another type.
package instancetypelist

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// Query selects and sorts types. The zero Query lists all, by name.
type Query struct {
	// Names are glob patterns of type names (m5.*); a type must match one, if there are any.
	Names []string
	// Labels must admit the type and at least one of its offerings.
	Labels requirement.Set
	// Requests must fit on an empty node.
	Requests corev1.ResourceList
	// Available omits types that are unavailable now.
	Available bool
	// Pool is the requirements of a node pool. Types and offerings that it excludes are omitted, unless Excluded is
	// true: then they are listed as unavailable.
	Pool     requirement.Set
	Excluded bool
	Sort     Order
	// Limit is the maximum number of types; 0 means no limit.
	Limit int
}

// Order is the sort order of types.
type Order string

// The orders. Ties, and all types by name, are sorted by family and then by size.
const (
	ByName   Order = "name"
	ByPrice  Order = "price" // the lowest price of the available offerings; unavailable types come last
	ByCPU    Order = "cpu"
	ByMemory Order = "memory"
)

// Orders returns all orders.
func Orders() []Order { return []Order{ByName, ByPrice, ByCPU, ByMemory} }

// Entry is one type of a list.
type Entry struct {
	*catalog.InstanceType
	// Offerings are the offerings that the query selects.
	Offerings []catalog.Offering
	// Why states why none of the offerings is available; empty if one is.
	Why string
}

// List returns the types that the query selects.
func (q Query) List(types []*catalog.InstanceType) []Entry {
	var out []Entry
	for _, t := range types {
		if e, ok := q.entry(t); ok {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return q.compare(&a, &b) })
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out
}

func (q Query) entry(t *catalog.InstanceType) (Entry, bool) {
	named := len(q.Names) == 0 || slices.ContainsFunc(q.Names, func(pattern string) bool {
		ok, _ := path.Match(pattern, t.Name) // Validate has checked the pattern
		return ok
	})
	if !named || !q.Labels.Overlaps(t.Requirements) || !quantity.Fits(q.Requests, t.Allocatable) {
		return Entry{}, false
	}
	excluded := conflict(q.Pool, t.Requirements)
	if excluded != "" && !q.Excluded {
		return Entry{}, false
	}
	e := Entry{InstanceType: t}
	for _, o := range t.Offerings {
		if !q.Labels.Overlaps(o.Requirements) {
			continue
		}
		why := cmp.Or(excluded, conflict(q.Pool, o.Requirements))
		if why != "" && !q.Excluded {
			continue
		}
		if why != "" {
			o.Available, o.UnavailableMessage = false, why
		}
		e.Offerings = append(e.Offerings, o)
	}
	e.Why = whyNone(e.Offerings)
	return e, len(e.Offerings) > 0 && (e.Why == "" || !q.Available)
}

// conflict returns which requirement of a pool excludes a set; empty if none does.
func conflict(pool, set requirement.Set) string {
	if pool.Overlaps(set) {
		return ""
	}
	for _, q := range pool.All() {
		if !requirement.NewSet(q).Overlaps(set) {
			return "the NodePool requires " + wording.Requirement(q)
		}
	}
	return ""
}

// whyNone returns why none of the offerings is available, the most frequent reasons first; empty if one is.
func whyNone(offerings []catalog.Offering) string {
	var order []string
	count := map[string]int{}
	for _, o := range offerings {
		if o.Available {
			return ""
		}
		why := cmp.Or(o.UnavailableMessage, "not available")
		if count[why] == 0 {
			order = append(order, why)
		}
		count[why]++
	}
	slices.SortStableFunc(order, func(a, b string) int { return count[b] - count[a] })
	return strings.Join(order[:min(len(order), 2)], "; ")
}

func (q Query) compare(a, b *Entry) int {
	by := 0
	switch q.Sort {
	case ByPrice:
		x, xOK := a.cheapest("")
		y, yOK := b.cheapest("")
		switch {
		case xOK && yOK:
			by = cmp.Compare(x.Price, y.Price)
		case xOK:
			by = -1
		case yOK:
			by = 1
		}
	case ByCPU:
		by = a.Capacity.Cpu().Cmp(*b.Capacity.Cpu())
	case ByMemory:
		by = a.Capacity.Memory().Cmp(*b.Capacity.Memory())
	}
	family := func(e *Entry) string { f, _, _ := strings.Cut(e.Name, "."); return f }
	return cmp.Or(
		by,
		cmp.Compare(family(a), family(b)),
		a.Capacity.Cpu().Cmp(*b.Capacity.Cpu()),
		a.Capacity.Memory().Cmp(*b.Capacity.Memory()),
		cmp.Compare(a.Name, b.Name),
	)
}

// cheapest returns the available offering with the lowest price, of one capacity type or (empty) of any.
func (e *Entry) cheapest(capacityType string) (lowest catalog.Offering, found bool) {
	for _, o := range e.Offerings {
		if o.Available && (capacityType == "" || o.CapacityType == capacityType) && (!found || o.Price < lowest.Price) {
			lowest, found = o, true
		}
	}
	return lowest, found
}

// Validate checks the query.
func (q Query) Validate() error {
	for _, pattern := range q.Names {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q is not a pattern of instance types, such as m5.large or 'c7*.2xlarge'", pattern)
		}
	}
	if q.Sort != "" && !slices.Contains(Orders(), q.Sort) {
		return fmt.Errorf("--sort %q is unknown: use one of %s", q.Sort, join(Orders()))
	}
	if q.Limit < 0 {
		return fmt.Errorf("--limit %d is negative", q.Limit)
	}
	return nil
}

func join[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

// short are the short names of common labels.
var short = map[string]string{
	"arch": corev1.LabelArchStable, "os": corev1.LabelOSStable, "zone": corev1.LabelTopologyZone, "zone-id": awsv1.LabelZoneID,
	"capacity-type": karpv1.LabelCapacityType, "type": corev1.LabelInstanceTypeStable,
}

// selectable are the labels of instance types, and the short names of those that have one.
func selectable(known requirement.Labels) []string {
	out := slices.Collect(maps.Keys(short))
	for key := range known.Vocabulary.WellKnown {
		out = append(out, key, strings.TrimPrefix(key, awsv1.Group+"/instance-"))
	}
	return out
}

// ParseLabels parses a selector in the syntax of kubectl's -l. A key without a domain is a label of instance types: cpu
// is karpenter.k8s.aws/instance-cpu, arch is kubernetes.io/arch.
func ParseLabels(text string, known requirement.Labels) (requirement.Set, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return requirement.Set{}, err
	}
	parts, _ := selector.Requirements()
	var out []requirement.Requirement
	for _, p := range parts {
		key := p.Key()
		if full, ok := short[key]; ok {
			key = full
		} else if !strings.Contains(key, "/") {
			key = awsv1.Group + "/instance-" + key
		}
		if !known.Vocabulary.WellKnown[key] {
			if near := spelling.Nearest(p.Key(), selectable(known), max(2, len(p.Key())/3)); near != "" {
				return requirement.Set{}, fmt.Errorf("%s is not a label of instance types, did you mean %s?", p.Key(), near)
			}
			return requirement.Set{}, fmt.Errorf("%s is not a label of instance types", p.Key())
		}
		r, err := known.Parse(key, operators[p.Operator()], p.ValuesUnsorted()...)
		if err != nil {
			return requirement.Set{}, err
		}
		out = append(out, r)
	}
	return requirement.NewSet(out...), nil
}

var operators = map[selection.Operator]corev1.NodeSelectorOperator{
	selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
	selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn,
	selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
	selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
}
