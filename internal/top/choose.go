package top

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// grouping describes what nodes are grouped by.
type grouping string

const (
	byPool  grouping = "pool"
	byZone  grouping = "zone"
	byType  grouping = "type"
	ungroup grouping = "none"
)

var groupings = []grouping{byPool, byZone, byType, ungroup}

// of is the group of a node. A node without the label is in a group of its own words.
func (g grouping) of(n *Node) string {
	switch g {
	case byPool:
		return cmp.Or(n.Pool, n.nodeGroup(), "without a NodePool")
	case byZone:
		return cmp.Or(n.Zone, "without a zone")
	case byType:
		return cmp.Or(n.InstanceType, "without an instance type")
	}
	return ""
}

// nodeGroup names the node group, or the compute type, of a node without a NodePool; empty if there is none.
func (n *Node) nodeGroup() string {
	if n.node == nil {
		return ""
	}
	if group := fleet.GroupOf(n.node.Labels); group != "" {
		return "node group " + group
	}
	return ""
}

// ordering describes what nodes are sorted by.
type ordering string

const (
	byName  ordering = "name"
	byPrice ordering = "price"
	byUse   ordering = "use"
	byAge   ordering = "age"
	byPods  ordering = "pods"
)

var orderings = []ordering{byName, byPrice, byUse, byAge, byPods}

// compare orders nodes: names ascending, everything else with the largest first, and equal ones by name.
func (o ordering) compare(a, b *Node) int {
	byValue := 0
	switch o {
	case byPrice:
		byValue = cmp.Compare(b.price(), a.price())
	case byUse:
		byValue = cmp.Compare(b.use(), a.use())
	case byAge:
		byValue = a.Created.Compare(b.Created)
	case byPods:
		byValue = cmp.Compare(b.Pods, a.Pods)
	}
	return cmp.Or(byValue, strings.Compare(a.Name, b.Name), strings.Compare(a.Claim, b.Claim))
}

// next is the value after one of a list, which goes round.
func next[T comparable](list []T, current T) T {
	return list[(slices.Index(list, current)+1)%len(list)]
}

// filterWord is one word of a filter.
type filterWord struct {
	// key limits the word to one property; empty means any text.
	key, value string
	not        bool
}

// Filter selects rows: all of its words must hold.
type Filter []filterWord

// filterKeys are the properties that a filter can name.
var filterKeys = []string{"pool", "zone", "type", "state", "capacity", "node", "namespace"}

// ParseFilter reads a filter: words, each found anywhere in a row, or KEY:VALUE; a word that begins with ! must not hold.
// Any text is a filter, so nothing that is typed is an error.
func ParseFilter(text string) (out Filter) {
	for _, word := range strings.Fields(strings.ToLower(text)) {
		w := filterWord{value: word}
		w.value, w.not = strings.CutPrefix(w.value, "!")
		if key, value, found := strings.Cut(w.value, ":"); found && slices.Contains(filterKeys, key) {
			w.key, w.value = key, value
		}
		if w.key != "" || w.value != "" {
			out = append(out, w)
		}
	}
	return out
}

// matches reports whether all words hold. A property that is missing has no value. Spaces in values count as nothing, so that
// state:notready finds "not ready".
func (f Filter) matches(properties map[string]string, text string) bool {
	for _, w := range f {
		in := text
		if w.key != "" {
			in = properties[w.key]
		}
		in = strings.ToLower(in)
		found := strings.Contains(in, w.value) || w.key != "" && strings.Contains(strings.ReplaceAll(in, " ", ""), w.value)
		if found == w.not {
			return false
		}
	}
	return true
}

func (f Filter) node(n *Node) bool {
	if len(f) == 0 {
		return true
	}
	return f.matches(map[string]string{
		"pool": n.Pool, "zone": n.Zone, "type": n.InstanceType, "state": string(n.State), "capacity": n.CapacityType, "node": n.Name,
	}, strings.Join([]string{n.Name, n.Claim, n.Pool, n.InstanceType, n.Zone, n.CapacityType, string(n.State)}, " "))
}

func (f Filter) pending(p pendingPod) bool {
	if len(f) == 0 {
		return true
	}
	return f.matches(map[string]string{"namespace": p.Namespace, "state": "pending"}, p.Namespace+"/"+p.Name+" "+p.cause)
}

func (f Filter) change(c Change) bool {
	return len(f) == 0 || f.matches(map[string]string{"state": "planned"}, c.Action+" "+c.Reason+" "+c.subjects(math.MaxInt)+" "+c.results())
}

// subjects are the nodes that a change removes, or for how many pods it launches, in n columns if possible.
func (c Change) subjects(n int) string {
	switch {
	case len(c.Nodes) == 0 && c.Pods == 0: // a claim of Karpenter's does not list its pods
		return ""
	case len(c.Nodes) == 0:
		return "for " + report.Plural(c.Pods, "pod")
	}
	names := clean(strings.Join(c.Nodes, " "))
	if width(names) <= n {
		return names
	}
	var hosts []string
	for _, name := range c.Nodes {
		hosts = append(hosts, withoutDomain(name))
	}
	return strings.Join(hosts, " ")
}

// results are the nodes that a change launches.
func (c Change) results() string {
	var out []string
	for _, l := range c.Launches {
		out = append(out, l.String())
	}
	return strings.Join(out, ", ")
}
