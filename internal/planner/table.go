package planner

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Table prints the report for people, in 80 columns as far as names allow.
func (r *Report) Table(w io.Writer) error { return r.table(w, report.Width) }

// WideTable prints the report with one line for each group of equal nodes to launch, however long.
func (r *Report) WideTable(w io.Writer) error { return r.table(w, 0) }

// table prints the report. A width of 0 means no limit.
func (r *Report) table(w io.Writer, width int) error {
	p := &report.Page{Width: width}
	r.changes(p)
	if width == 0 {
		r.wideLaunches(p)
	} else {
		r.launches(p)
	}
	r.use(p)
	r.placements(p)
	r.buffers(p)
	r.rejections(p)
	r.preferencesSection(p)
	r.drift(p)
	r.consolidation(p)
	r.total(p)
	_, err := p.WriteTo(w)
	return err
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
func (r *Report) launches(p *report.Page) {
	names := r.resources()
	var rows [][]string
	var details []string
	groups := r.launchGroups()
	cheapest := cheapestOfSame(groups)
	for _, l := range groups {
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
		detail := p.Part()
		detail.List(below, uses)
		detail.List(below, append([]string{"for " + l.who[0]}, l.who[1:]...))
		if why := l.dearerThan(cheapest[l.same()]); why != "" {
			detail.Indented(below, why)
		}
		details = append(details, detail.String())
	}
	p.Section("Nodes to launch", []string{"COUNT", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH"}, rows, details...)
}

// wideLaunches lists the nodes to launch; equal ones share a line.
func (r *Report) wideLaunches(p *report.Page) {
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
	p.Section("Nodes to launch", append(columns, "FOR"), rows)
}

// use prints how much of all nodes to launch is requested, if there is more than one.
func (r *Report) use(p *report.Page) {
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
	p.Section("Use of all nodes to launch", []string{"RESOURCE", "REQUESTED", "ALLOCATABLE", "USE"}, rows)
}

// resources returns those that the table shows: CPU, memory, other resources that any launch uses, and pods.
func (r *Report) resources() []corev1.ResourceName {
	return append(append([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, r.extraResources()...), corev1.ResourcePods)
}

// extraResources returns those besides CPU, memory and pods that any launch uses, by name.
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

// percent is a part of a whole as a share; "-" of nothing.
func percent(part, whole resource.Quantity) string {
	if whole.Sign() == 0 {
		return "-"
	}
	return report.Share(part.AsApproximateFloat64() / whole.AsApproximateFloat64())
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
		return "~" + report.Price(o.Price)
	}
	return report.Price(o.Price)
}

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
	return fmt.Sprintf("%s of %s %s", report.Plural(g.pods, "pod"), g.kind, g.name)
}

func (r *Report) placements(p *report.Page) {
	if len(r.Plan.Placements) == 0 {
		return
	}
	if p.Width == 0 {
		var rows [][]string
		for _, pl := range r.Plan.Placements {
			rows = append(rows, []string{pl.Node, strconv.Itoa(len(pl.Pods)), strings.Join(workloadNames(pl.Pods), ", ")})
		}
		p.Section("Nodes that take pods", []string{"NODE", "PODS", "FOR"}, rows)
		return
	}
	p.Printf("Nodes that take pods\n")
	for _, pl := range r.Plan.Placements {
		p.Printf("  %s takes %s\n", pl.Node, report.Plural(len(pl.Pods), "pod"))
		p.List(below, workloadNames(pl.Pods))
	}
	p.Blank()
}

// rejections lists the pods without a node, grouped by their reasons.
func (r *Report) rejections(p *report.Page) {
	byReasons := map[string][]*corev1.Pod{}
	var order []string
	for _, u := range r.Plan.Rejected {
		text := p.Part()
		for _, reason := range u.Reasons {
			where := ""
			if reason.NodePool != "" {
				where = fmt.Sprintf("nodepool %s: ", reason.NodePool)
			}
			text.Indented("    ", fmt.Sprintf("%s%s (%s)", where, wording.Reason(reason), reason.Code))
		}
		if byReasons[text.String()] == nil {
			order = append(order, text.String())
		}
		byReasons[text.String()] = append(byReasons[text.String()], u.Pod)
	}
	if len(order) == 0 {
		return
	}
	p.Printf("Pods without a node\n")
	for _, text := range order {
		var who []string
		for _, g := range workloads(byReasons[text]) {
			who = append(who, g.String())
		}
		names := p.Part()
		names.List("  ", who)
		p.Printf("%s:\n%s", strings.TrimSuffix(names.String(), "\n"), text)
	}
	p.Blank()
}

func (r *Report) total(p *report.Page) {
	onNew, onExisting := 0, 0
	for i := range r.Plan.Launches {
		onNew += len(r.Plan.Launches[i].Pods)
	}
	for _, p := range r.Plan.Placements {
		onExisting += len(p.Pods)
	}
	total := r.Plan.Stats.HourlyCost + r.Plan.Stats.NodeCost
	p.Printf("Total: %s to launch for %s ($%.2f a month)",
		report.Plural(len(r.Plan.Launches), "node"),
		report.Hourly(total),
		report.HoursPerMonth*total,
	)
	if extra := r.Plan.Stats.NodeCost; extra > 0 {
		p.Printf(",\n       %s of it beside their prices", report.Hourly(extra))
	}
	p.Blank()
	if extra := r.Plan.Stats.PreferenceCost; extra > 0 {
		p.Printf("Prefs: %s of it for preferences of pods\n", report.Hourly(extra))
	}
	if bound := r.Plan.Stats.LowerBound; bound > 0 {
		if total <= bound*(1+provenWithin) {
			p.Printf("Bound: %s, which no plan can beat: this plan is optimal (proven)\n", report.Hourly(bound))
		} else {
			p.Printf("Bound: %s, which no plan can beat; %s\n", report.Hourly(bound), r.gap(total, bound))
		}
		if total-bound >= attribution.LeastCost && r.RuleCosts == nil {
			p.Printf("       --explain-cost shows what makes up the difference\n")
		}
	}
	r.ruleCosts(p)
	if r.Prices != "" {
		p.Prices(r.Prices)
	}
	p.Printf("Pods:  %d on new nodes, %d on existing nodes, %d without a node\n", onNew, onExisting, len(r.Plan.Rejected))
	if e := r.Effort; e != nil {
		p.Labeled("Took:  ", "       ", fmt.Sprintf(
			"%.2f s to read, %.2f s to compile, %.2f s to plan%s, %.2f s to print; at most %d MiB of memory",
			e.ReadSeconds,
			e.CompileSeconds,
			e.SolveSeconds,
			pace(r.Plan.Stats, e),
			e.PrintSeconds(),
			e.PeakRSS()>>20,
		))
	}
}

// provenWithin is the share of a cost that rounding may take.
const provenWithin = 1e-6

// wholeNodes sets how many of the most expensive nodes of a plan its bound must be worth for a percentage to mean something. The bound
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
	return fmt.Sprintf("this plan costs %s more\n       The bound counts parts of nodes; unused: %s cpu, %s memory", report.Hourly(more),
		amount(corev1.ResourceCPU, unused[corev1.ResourceCPU]), amount(corev1.ResourceMemory, unused[corev1.ResourceMemory]))
}

// pace formats how fast the plan was made, if there was anything to plan.
func pace(s schedule.Stats, e *Effort) string {
	if s.Pods == 0 || e.SolveSeconds <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f pods/s)", float64(s.Pods)/e.SolveSeconds)
}
