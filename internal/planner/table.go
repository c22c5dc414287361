package planner

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// hoursPerMonth is the average number of hours in a month: 365 * 24 / 12.
const hoursPerMonth = 730

// narrow is the width in columns of a table that fits every terminal.
const narrow = 80

// Table prints the report for people, in 80 columns as far as names allow.
func (r *Report) Table(w io.Writer) error { return r.table(w, narrow) }

// WideTable prints the report with one line for each group of equal nodes to launch, however long.
func (r *Report) WideTable(w io.Writer) error { return r.table(w, 0) }

// table prints the report. A width of 0 means no limit.
func (r *Report) table(w io.Writer, width int) error {
	var b strings.Builder
	r.changes(&b, width)
	if width == 0 {
		r.wideLaunches(&b)
	} else {
		r.launches(&b, width)
	}
	r.use(&b)
	r.placements(&b, width)
	r.buffers(&b)
	r.rejections(&b, width)
	r.preferencesSection(&b, width)
	r.drift(&b, width)
	r.consolidation(&b, width)
	r.total(&b, width)
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

// launchGroup is a number of equal nodes to launch.
type launchGroup struct {
	*schedule.Launch
	count int
	// uses are the uses of CPU, memory, other requested resources, and pods; who names the pods.
	uses []string
	who  []string
}

func (l *launchGroup) key() string {
	return strings.Join(
		slices.Concat(
			[]string{l.Pool.Name, l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, each(l.Offering)},
			l.uses,
			l.who,
		),
		"\t",
	)
}

// launchGroups returns the nodes to launch, in the order of the plan.
func (r *Report) launchGroups() []*launchGroup {
	names := r.resources()
	var out []*launchGroup
	known := map[string]*launchGroup{}
	for i := range r.Plan.Launches {
		l := &launchGroup{Launch: &r.Plan.Launches[i]}
		for _, name := range names {
			has := l.InstanceTypes[0].Allocatable[name]
			l.uses = append(l.uses, use(name, l.Requests[name], has))
		}
		l.who = workloadNames(l.Pods)
		if known[l.key()] == nil {
			known[l.key()] = l
			out = append(out, l)
		}
		known[l.key()].count++
	}
	return out
}

// launches lists the nodes to launch, and below each what it is used for.
func (r *Report) launches(b *strings.Builder, width int) {
	names := r.resources()
	var rows [][]string
	var details []string
	for _, l := range r.launchGroups() {
		rows = append(
			rows,
			[]string{strconv.Itoa(l.count), l.Pool.Name, l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, each(l.Offering)},
		)
		var uses []string
		for i, name := range names {
			if l.uses[i] != "-" {
				uses = append(uses, string(name)+" "+l.uses[i])
			}
		}
		details = append(details, wrap(below, uses, width)+wrap(below, append([]string{"for " + l.who[0]}, l.who[1:]...), width))
	}
	detailedTable{"Nodes to launch", []string{"COUNT", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH"}, rows, details}.print(b)
}

// wrap joins items, and starts a new line where one would exceed the width.
func wrap(indent string, items []string, width int) string {
	out, line := "", indent
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		switch {
		case line == indent:
			line += item
		case width == 0 || len(line)+1+len(item) <= width:
			line += " " + item
		default:
			out, line = out+line+"\n", indent+item
		}
	}
	return out + line + "\n"
}

// fold breaks text into lines of at most the width, all with the indent, and with two more columns after the first
// line.
func fold(indent, text string, width int) string {
	out, line := "", indent
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == indent:
			line += word
		case width == 0 || len(line)+1+len(word) <= width:
			line += " " + word
		default:
			out, line = out+line+"\n", indent+"  "+word
		}
	}
	return out + line + "\n"
}

// wideLaunches lists the nodes to launch; equal ones share a line.
func (r *Report) wideLaunches(b *strings.Builder) {
	columns := []string{"COUNT", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH"}
	for _, name := range r.resources() {
		columns = append(columns, strings.ToUpper(string(name)))
	}
	var rows [][]string
	for _, l := range r.launchGroups() {
		row := []string{
			strconv.Itoa(l.count),
			l.Pool.Name,
			l.InstanceTypes[0].Name,
			l.Offering.Zone,
			l.Offering.CapacityType,
			each(l.Offering),
		}
		rows = append(rows, append(append(row, l.uses...), strings.Join(l.who, ", ")))
	}
	section(b, "Nodes to launch", append(columns, "FOR"), rows)
}

// use prints how much of all nodes to launch is requested, if there is more than one.
func (r *Report) use(b *strings.Builder) {
	if len(r.Plan.Launches) < 2 {
		return
	}
	var rows [][]string
	for _, name := range r.resources() {
		var taken, has resource.Quantity
		for i := range r.Plan.Launches {
			l := &r.Plan.Launches[i]
			taken.Add(l.Requests[name])
			has.Add(l.InstanceTypes[0].Allocatable[name])
		}
		rows = append(rows, []string{string(name), amount(name, taken), amount(name, has), percent(taken, has)})
	}
	section(b, "Use of all nodes to launch", []string{"RESOURCE", "REQUESTED", "ALLOCATABLE", "USE"}, rows)
}

// resources are those that the table shows: CPU, memory, other resources that any launch uses, and pods.
func (r *Report) resources() []corev1.ResourceName {
	return append(append([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, r.extraResources()...), corev1.ResourcePods)
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

// use formats how much of the allocatable amount is requested.
func use(name corev1.ResourceName, taken, has resource.Quantity) string {
	if has.Sign() == 0 {
		return "-"
	}
	return fmt.Sprintf("%s/%s (%s)", amount(name, taken), amount(name, has), percent(taken, has))
}

func percent(part, whole resource.Quantity) string {
	if whole.Sign() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*part.AsApproximateFloat64()/whole.AsApproximateFloat64())
}

// amount formats a quantity for people: to two places, bytes in their largest unit.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	value := q.AsApproximateFloat64()
	unit := ""
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		for _, u := range []string{"Ki", "Mi", "Gi", "Ti"} {
			if value < 1024 {
				break
			}
			value, unit = value/1024, u
		}
	}
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(value, 'f', 2, 64), "0"), ".") + unit
}

// each is the price of a node; a "~" marks a derived one.
func each(o catalog.Offering) string {
	if o.PriceDerived {
		return "~" + dollars(o.Price)
	}
	return dollars(o.Price)
}

func dollars(price float64) string { return strconv.FormatFloat(price, 'f', 4, 64) }

// workloadNames names pods by their workload: shop/web x3, shop/db-0.
func workloadNames(pods []*corev1.Pod) []string {
	var out []string
	for _, g := range workloads(pods) {
		if g.pods == 1 {
			out = append(out, g.name)
			continue
		}
		out = append(out, fmt.Sprintf("%s x%d", g.name, g.pods))
	}
	return out
}

// workload is a number of pods of one workload, or a pod without one.
type workload struct {
	kind, name string // of the workload; its name with the namespace
	pods       int
}

// workloads returns the workloads of pods, by name.
func workloads(pods []*corev1.Pod) []workload {
	counts := map[workload]int{}
	for _, p := range pods {
		counts[workloadOf(p)]++
	}
	out := make([]workload, 0, len(counts))
	for g, n := range counts {
		g.pods = n
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b workload) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind)) })
	return out
}

// workloadOf returns the workload by which people know a pod: the Deployment, not its ReplicaSet.
func workloadOf(p *corev1.Pod) workload {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return workload{kind: "Pod", name: name(p)}
	}
	hash := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if owner.Kind == "ReplicaSet" && hash != "" {
		return workload{kind: "Deployment", name: p.Namespace + "/" + strings.TrimSuffix(owner.Name, "-"+hash)}
	}
	return workload{kind: owner.Kind, name: p.Namespace + "/" + owner.Name}
}

func (g workload) String() string {
	if g.kind == "Pod" {
		return "Pod " + g.name
	}
	return fmt.Sprintf("%s of %s %s", plural(g.pods, "pod"), g.kind, g.name)
}

func (r *Report) placements(b *strings.Builder, width int) {
	if len(r.Plan.Placements) == 0 {
		return
	}
	if width == 0 {
		var rows [][]string
		for _, p := range r.Plan.Placements {
			rows = append(rows, []string{p.Node, strconv.Itoa(len(p.Pods)), strings.Join(workloadNames(p.Pods), ", ")})
		}
		section(b, "Nodes that take pods", []string{"NODE", "PODS", "FOR"}, rows)
		return
	}
	fmt.Fprintln(b, "Nodes that take pods")
	for _, p := range r.Plan.Placements {
		fmt.Fprintf(b, "  %s takes %s\n%s", p.Node, plural(len(p.Pods), "pod"), wrap(below, workloadNames(p.Pods), width))
	}
	fmt.Fprintln(b)
}

// rejections lists the pods without a node, grouped by their reasons.
func (r *Report) rejections(b *strings.Builder, width int) {
	alike := map[string][]*corev1.Pod{}
	var order []string
	for _, u := range r.Plan.Rejected {
		var text strings.Builder
		for _, reason := range u.Reasons {
			where := ""
			if reason.NodePool != "" {
				where = fmt.Sprintf("nodepool %s: ", reason.NodePool)
			}
			text.WriteString(fold("    ", fmt.Sprintf("%s%s (%s)", where, reason.Message, reason.Code), width))
		}
		if alike[text.String()] == nil {
			order = append(order, text.String())
		}
		alike[text.String()] = append(alike[text.String()], u.Pod)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintln(b, "Pods without a node")
	for _, text := range order {
		var who []string
		for _, g := range workloads(alike[text]) {
			who = append(who, g.String())
		}
		fmt.Fprintf(b, "%s:\n%s", strings.TrimSuffix(wrap("  ", who, width), "\n"), text)
	}
	fmt.Fprintln(b)
}

func (r *Report) total(b *strings.Builder, width int) {
	onNew, onExisting := 0, 0
	for i := range r.Plan.Launches {
		onNew += len(r.Plan.Launches[i].Pods)
	}
	for _, p := range r.Plan.Placements {
		onExisting += len(p.Pods)
	}
	total := r.Plan.Stats.HourlyCost + r.Plan.Stats.NodeCost
	fmt.Fprintf(
		b,
		"Total: %s to launch for $%s/h ($%.2f a month)",
		plural(len(r.Plan.Launches), "node"),
		dollars(total),
		hoursPerMonth*total,
	)
	if extra := r.Plan.Stats.NodeCost; extra > 0 {
		fmt.Fprintf(b, ",\n       $%s/h of it beside their prices", dollars(extra))
	}
	fmt.Fprintln(b)
	if extra := r.Plan.Stats.PreferenceCost; extra > 0 {
		fmt.Fprintf(b, "Prefs: $%s/h of it for preferences of pods\n", dollars(extra))
	}
	if bound := r.Plan.Stats.LowerBound; bound > 0 {
		fmt.Fprintf(b, "Bound: $%s/h, which no plan can beat; %s\n", dollars(bound), r.gap(total, bound))
	}
	r.ruleCosts(b, width)
	fmt.Fprintf(b, "Pods:  %d on new nodes, %d on existing nodes, %d without a node\n", onNew, onExisting, len(r.Plan.Rejected))
	if e := r.Effort; e != nil {
		fmt.Fprintf(
			b,
			"Took:  %.2f s to read, %.2f s to compile, %.2f s to plan%s, %.2f s to print; at most %d MiB of memory\n",
			e.ReadSeconds,
			e.CompileSeconds,
			e.SolveSeconds,
			pace(r.Plan.Stats, e),
			e.PrintSeconds(),
			e.PeakRSS()>>20,
		)
	}
}

// wholeNodes is how many of the most expensive nodes of a plan its bound must be worth for a percentage to mean something. The bound
// counts parts of nodes: a node more than its parts is then at most a twentieth.
const wholeNodes = 20

// gap states how far the cost of the plan is above the bound. A small plan is mostly above it by the unused part of a node.
func (r *Report) gap(total, bound float64) string {
	largest := 0.0
	unused := map[corev1.ResourceName]resource.Quantity{}
	for i := range r.Plan.Launches {
		l := &r.Plan.Launches[i]
		largest = max(largest, l.Offering.Price)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			left := unused[name]
			left.Add(l.InstanceTypes[0].Allocatable[name])
			left.Sub(l.Requests[name])
			unused[name] = left
		}
	}
	more := total - bound
	if bound >= wholeNodes*largest || more < 0.0001 {
		return fmt.Sprintf("this plan costs %.1f %% more", max(0, 100*(total/bound-1)))
	}
	return fmt.Sprintf("this plan costs $%s/h more\n       The bound counts parts of nodes; unused: %s cpu, %s memory", dollars(more),
		amount(corev1.ResourceCPU, unused[corev1.ResourceCPU]), amount(corev1.ResourceMemory, unused[corev1.ResourceMemory]))
}

// pace formats how fast the plan was made, if there was anything to plan.
func pace(s schedule.Stats, e *Effort) string {
	if s.Pods == 0 || e.SolveSeconds <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f pods/s)", float64(s.Pods)/e.SolveSeconds)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
