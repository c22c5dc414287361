package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Costs are what pods cost by namespace or by a label. The sum of the rows is what the nodes cost.
type Costs struct {
	At time.Time `json:"at"`
	// By is namespace or label, Label the key of the latter.
	By    string `json:"by"`
	Label string `json:"label"`
	// Labels are keys by which pods can be grouped, those of most pods first.
	Labels []LabelKey `json:"labels"`
	// Unknown is true if pods may not be read, or have not been yet.
	Unknown bool `json:"unknown"`
	// HourlyCost is that of all nodes in $/h, as the fleet has it; Unpriced counts nodes without a known price, which count as 0.
	HourlyCost float64 `json:"hourlyCost"`
	Unpriced   int     `json:"unpriced"`
	// Rows have the largest cost first, and last what is of no value: see CostKind.
	Rows []CostRow `json:"rows"`
}

// LabelKey is the key of a label of pods, with how many pods have it and how many values there are.
type LabelKey struct {
	Key    string `json:"key"`
	Pods   int    `json:"pods"`
	Values int    `json:"values"`
}

// CostKind states what a row is of.
type CostKind string

// The kinds of rows.
const (
	// CostOfValue is the row of a namespace, or of a value of the label.
	CostOfValue CostKind = "value"
	// CostOfOthers is that of further values, which have no rows of their own.
	CostOfOthers CostKind = "others"
	// CostWithout is that of pods without the label, CostUnrequested what no pod on the nodes requests.
	CostWithout     CostKind = "without"
	CostUnrequested CostKind = "unrequested"
)

// CostRow is the part of some pods in what the nodes cost.
type CostRow struct {
	Kind CostKind `json:"rowKind"`
	// Name is the namespace or the value.
	Name string `json:"name"`
	Pods int    `json:"pods"`
	// CPU is requested, in millicores, Memory in bytes; of the unrequested row, what is left.
	CPU        int64   `json:"cpuMillicores"`
	Memory     int64   `json:"memoryBytes"`
	HourlyCost float64 `json:"hourlyCost"`
}

const (
	byNamespace, byLabel = "namespace", "label"
	// mostCostRows limits the rows of values, mostLabels the keys that are offered.
	mostCostRows, mostLabels = 1000, 50
	// longestKey is the most that the key of a label can have: a domain, a slash and a name.
	longestKey = 253 + 1 + 63
)

// generated are labels that controllers give each pod or each of their revisions. What those cost is of no use to anybody.
var generated = []string{
	"pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "batch.kubernetes.io/controller-uid",
	"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
}

func (c *Console) costs(r *http.Request) (any, error) {
	query := r.URL.Query()
	by, label := cmp.Or(query.Get("by"), byNamespace), query.Get("label")
	switch {
	case by != byNamespace && by != byLabel:
		return nil, invalid("by", fmt.Sprintf("%q is neither %s nor %s", by, byNamespace, byLabel))
	case by == byLabel && (label == "" || len(label) > longestKey):
		return nil, invalid("label", fmt.Sprintf("it needs 1 to %d characters", longestKey))
	case by == byNamespace:
		label = ""
	}
	s, _ := c.hub.current()
	return s.costs(label), nil
}

// costs are those by a label, or by namespace without one. They take O(nodes + pods and their labels).
func (s *state) costs(label string) Costs {
	out := Costs{At: s.At, By: byNamespace, Label: label, Labels: []LabelKey{}, Rows: []CostRow{}, Unknown: s.report == nil}
	if label != "" {
		out.By = byLabel
	}
	if s.report == nil {
		return out
	}
	out.HourlyCost, out.Unpriced, out.Unknown = s.Summary.Spend.HourlyCost, s.Summary.Spend.Unpriced, s.observed.Fleet.PodsUnknown
	if out.Unknown {
		return out
	}
	sum := costSum{label: label, values: map[string]*CostRow{}, without: CostRow{Kind: CostWithout}, left: CostRow{Kind: CostUnrequested}}
	for _, n := range s.report.Nodes {
		sum.add(s.observed.Fleet, n)
	}
	out.Labels, out.Rows = labelsOf(s.observed.Fleet), sum.sorted(out.HourlyCost)
	return out
}

// costSum adds up parts of nodes: of values by name, of pods without the label, and what is left.
type costSum struct {
	label         string
	values        map[string]*CostRow
	without, left CostRow
}

// add divides the price of a node among its pods: each has the mean of its shares of the allocatable cpu and memory. Should pods request
// more than the node has, they share its price.
func (c *costSum) add(f *top.Fleet, n *top.Node) {
	price, requested := 0.0, 0.0
	if n.HourlyCost != nil {
		price = *n.HourlyCost
	}
	for p := range f.PodsOn(n) {
		requested += partOf(p, n)
	}
	most := max(1, requested)
	cpu, memory := n.CPU.Allocatable, n.Memory.Allocatable
	for p := range f.PodsOn(n) {
		row := c.row(p)
		row.Pods++
		row.CPU, row.Memory, row.HourlyCost = row.CPU+p.CPU, row.Memory+p.Memory, row.HourlyCost+price*partOf(p, n)/most
		cpu, memory = cpu-p.CPU, memory-p.Memory
	}
	c.left.CPU, c.left.Memory = c.left.CPU+max(0, cpu), c.left.Memory+max(0, memory)
}

// partOf is the share of a pod in its node.
func partOf(p *top.Pod, n *top.Node) (part float64) {
	if n.CPU.Allocatable > 0 {
		part += float64(p.CPU) / float64(n.CPU.Allocatable) / 2
	}
	if n.Memory.Allocatable > 0 {
		part += float64(p.Memory) / float64(n.Memory.Allocatable) / 2
	}
	return part
}

// row is the row of a pod.
func (c *costSum) row(p *top.Pod) *CostRow {
	name := p.Namespace
	if c.label != "" {
		value, has := p.Labels[c.label]
		if !has {
			return &c.without
		}
		name = value
	}
	row := c.values[name]
	if row == nil {
		row = &CostRow{Kind: CostOfValue, Name: name}
		c.values[name] = row
	}
	return row
}

// sorted are the rows. The last has what the others leave of the cost of all nodes.
func (c *costSum) sorted(total float64) []CostRow {
	values, rest := make([]CostRow, 0, len(c.values)), []CostRow{}
	left := total - c.without.HourlyCost
	for _, row := range c.values {
		left -= row.HourlyCost
		values = append(values, *row)
	}
	if c.without.Pods > 0 {
		rest = append(rest, c.without)
	}
	slices.SortFunc(values, func(a, b CostRow) int {
		return cmp.Or(cmp.Compare(b.HourlyCost, a.HourlyCost), cmp.Compare(a.Name, b.Name))
	})
	if len(values) > mostCostRows {
		others := CostRow{Kind: CostOfOthers, Name: fmt.Sprint(len(values) - mostCostRows)}
		for _, row := range values[mostCostRows:] {
			others.Pods += row.Pods
			others.CPU, others.Memory, others.HourlyCost = others.CPU+row.CPU, others.Memory+row.Memory, others.HourlyCost+row.HourlyCost
		}
		values = append(values[:mostCostRows:mostCostRows], others)
	}
	c.left.HourlyCost = max(0, left)
	return append(append(values, rest...), c.left)
}

// distinctive sets how many pods a label has at most if no two of them share a value: that of more is an identity, not a group.
const distinctive = 20

// labelsOf are the keys of labels by which pods can be grouped.
func labelsOf(f *top.Fleet) []LabelKey {
	type found struct {
		pods   int
		values map[string]bool
	}
	keys := map[string]*found{}
	for i := range f.Pods {
		for key, value := range f.Pods[i].Labels {
			of := keys[key]
			if of == nil {
				of = &found{values: map[string]bool{}}
				keys[key] = of
			}
			of.pods++
			of.values[value] = true
		}
	}
	out := []LabelKey{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		of := keys[key]
		if (len(of.values) < of.pods || of.pods <= distinctive) && !slices.Contains(generated, key) {
			out = append(out, LabelKey{key, of.pods, len(of.values)})
		}
	}
	slices.SortStableFunc(out, func(a, b LabelKey) int { return cmp.Compare(b.Pods, a.Pods) })
	return out[:min(len(out), mostLabels)]
}

// allCosts are the costs by namespace and by each label that is offered, by what the page requests.
func (s *state) allCosts() map[string]Costs {
	out := map[string]Costs{byNamespace: s.costs("")}
	for _, l := range out[byNamespace].Labels {
		out[byLabel+" "+l.Key] = s.costs(l.Key)
	}
	return out
}
