package planner

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// hoursPerMonth is what a month's bill counts on average.
const hoursPerMonth = 730

// Table prints the report for people.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	r.launches(&b)
	r.placements(&b)
	r.rejections(&b)
	r.total(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// section prints a heading and rows in columns, unless there are no rows.
func section(b *strings.Builder, title string, columns []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(b, title)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{columns}, rows...) {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // a strings.Builder takes everything
	fmt.Fprintln(b)
}

// launches lists the nodes to buy; those that are alike share a line.
func (r *Report) launches(b *strings.Builder) {
	extra := r.extraResources()
	columns := []string{"COUNT", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH", "CPU", "MEMORY"}
	for _, name := range extra {
		columns = append(columns, strings.ToUpper(string(name)))
	}
	columns = append(columns, "PODS", "FOR")
	var rows [][]string
	counts := map[string]int{}
	at := map[string]int{}
	for i := range r.Plan.Launches {
		l := &r.Plan.Launches[i]
		row := []string{
			"", l.Pool.Name, l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, dollars(l.Offering.Price),
			use(l, corev1.ResourceCPU), use(l, corev1.ResourceMemory),
		}
		for _, name := range extra {
			row = append(row, use(l, name))
		}
		row = append(row, use(l, corev1.ResourcePods), crowd(l.Pods))
		key := strings.Join(row, "\t")
		if counts[key]++; counts[key] == 1 {
			at[key] = len(rows)
			rows = append(rows, row)
		}
		rows[at[key]][0] = strconv.Itoa(counts[key])
	}
	section(b, "Nodes to buy", columns, rows)
}

// extraResources are those besides CPU, memory and pods that any launch uses, by name.
func (r *Report) extraResources() []corev1.ResourceName {
	seen := map[corev1.ResourceName]bool{}
	for i := range r.Plan.Launches {
		for name, q := range r.Plan.Launches[i].Requests {
			seen[name] = seen[name] || q.Sign() > 0
		}
	}
	for _, always := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		delete(seen, always)
	}
	maps.DeleteFunc(seen, func(_ corev1.ResourceName, used bool) bool { return !used })
	return slices.Sorted(maps.Keys(seen))
}

// use tells how much of what pods can have is taken.
func use(l *schedule.Launch, name corev1.ResourceName) string {
	taken, has := l.Requests[name], l.InstanceTypes[0].Allocatable[name]
	if has.Sign() == 0 {
		return "-"
	}
	return fmt.Sprintf("%s/%s (%.0f%%)", amount(name, taken), amount(name, has), 100*taken.AsApproximateFloat64()/has.AsApproximateFloat64())
}

// amount spells a quantity for people: to two places, bytes in their largest unit.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	value := q.AsApproximateFloat64()
	unit := ""
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		for _, u := range []string{"Ki", "Mi", "Gi", "Ti"} {
			if value < 1024 {
				break
			}
			value, unit = value/1024, u
		}
	}
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(value, 'f', 2, 64), "0"), ".") + unit
}

func dollars(price float64) string { return strconv.FormatFloat(price, 'f', 4, 64) }

// crowd names pods by what they belong to: shop/web x3, shop/db-0.
func crowd(pods []*corev1.Pod) string {
	counts := map[string]int{}
	var order []string
	for _, p := range pods {
		group := name(p)
		if owner := metav1.GetControllerOf(p); owner != nil {
			group = p.Namespace + "/" + owner.Name
		}
		if counts[group]++; counts[group] == 1 {
			order = append(order, group)
		}
	}
	slices.Sort(order)
	for i, group := range order {
		if n := counts[group]; n > 1 {
			order[i] = fmt.Sprintf("%s x%d", group, n)
		}
	}
	return strings.Join(order, ", ")
}

func (r *Report) placements(b *strings.Builder) {
	var rows [][]string
	for _, p := range r.Plan.Placements {
		rows = append(rows, []string{p.Node, strconv.Itoa(len(p.Pods)), crowd(p.Pods)})
	}
	section(b, "Nodes that take pods", []string{"NODE", "PODS", "FOR"}, rows)
}

// rejections lists the pods without a node; those with the same reasons together.
func (r *Report) rejections(b *strings.Builder) {
	groups := map[string][]*corev1.Pod{}
	var order []string
	for _, u := range r.Plan.Rejected {
		text := ""
		for _, reason := range u.Reasons {
			text += "    "
			if reason.NodePool != "" {
				text += fmt.Sprintf("nodepool %s: ", reason.NodePool)
			}
			text += fmt.Sprintf("%s (%s)\n", reason.Message, reason.Code)
		}
		if groups[text] == nil {
			order = append(order, text)
		}
		groups[text] = append(groups[text], u.Pod)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintln(b, "Pods without a node")
	for _, text := range order {
		fmt.Fprintf(b, "  %s\n%s", crowd(groups[text]), text)
	}
	fmt.Fprintln(b)
}

func (r *Report) total(b *strings.Builder) {
	bought, found := 0, 0
	for i := range r.Plan.Launches {
		bought += len(r.Plan.Launches[i].Pods)
	}
	for _, p := range r.Plan.Placements {
		found += len(p.Pods)
	}
	total := r.Plan.Stats.HourlyCost + r.Plan.Stats.NodeCost
	fmt.Fprintf(b, "Total: %s to buy for $%s/h ($%.2f a month)", plural(len(r.Plan.Launches), "node"), dollars(total), hoursPerMonth*total)
	if extra := r.Plan.Stats.NodeCost; extra > 0 {
		fmt.Fprintf(b, ", $%s/h of it beside their prices", dollars(extra))
	}
	fmt.Fprintln(b)
	if bound := r.Plan.Stats.LowerBound; bound > 0 {
		fmt.Fprintf(b, "Bound: $%s/h is the least that nodes for these pods can cost; this is %.1f %% more\n", dollars(bound), max(0, 100*(total/bound-1)))
	}
	fmt.Fprintf(b, "Pods:  %d on new nodes, %d on nodes that are there, %d without a node\n", bought, found, len(r.Plan.Rejected))
	if e := r.Effort; e != nil {
		fmt.Fprintf(b, "Took:  %.3f s to read, %.3f s to plan, at most %d MiB of memory\n", e.CompileSeconds, e.SolveSeconds, e.PeakRSS()>>20)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
