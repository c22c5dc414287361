package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
)

const metricsPage = "../../docs/metrics.md"

// metricsIntroduction begins the page.
const metricsIntroduction = `# Metrics

The controller serves metrics at ` + "`/metrics`" + ` on port 8080 (` + "`--metrics-port`" + `), in Prometheus' text format. The value
` + "`serviceMonitor.enabled`" + ` of the chart makes the Prometheus operator scrape them.

- Karpenter's metrics have the names, types and labels of Karpenter 1.15, so dashboards and alerts for it work. Their stability is
  Karpenter's: stable, beta, alpha or deprecated.
- Metrics that only Dovetail has begin with ` + "`dovetail_`" + `.
- All metrics are listed from the start, also those without series: ` + "`HELP` and `TYPE`" + ` come before the first event.
- Counters with few known label values begin with 0: kinds of interruption, disruption decisions, results of reboots and writes,
  causes of surplus launches. Others appear with their first event: failed launches, for example.
- ` + "`karpenter_scheduler_queue_depth` and `karpenter_scheduler_unfinished_work_seconds`" + ` exist while a plan is computed.
  NodePools and CapacityBuffers have no finalizer, so the metrics of how long their deletion takes have no series.
- Gauges of deleted objects disappear, at the latest with the next disruption pass. Only the leader has series of pods, nodes and
  conditions.
- ` + "`dovetail_nodepools_hourly_savings` and `dovetail_nodepools_saved_dollars`" + ` are kept in memory. A restart of the process begins
  at 0, and leaves out commands that are half done then; a failover to a replica that runs already loses nothing. The recording keeps the
  savings of each decision: ` + "`dovetail recording list`" + `.
- ` + "`--disable-cluster-state-observability`" + ` turns off the metrics of single pods and nodes, of the limits and usage of NodePools,
  and of conditions, except those of EC2NodeClasses.
`

// metricsOutro names what the page leaves out.
const metricsOutro = `
## Go and the process

` + "`go_*` and `process_*`" + ` are those of Prometheus' Go library: memory, garbage collection, goroutines, CPU, open files.
`

// metricsGroup is a section of the page: the metrics with some prefixes.
type metricsGroup struct {
	title    string
	prefixes []string
	note     string
}

// metricsGroups are in the order of the page. A metric belongs to the first group with the longest prefix that its name has.
var metricsGroups = []metricsGroup{
	{title: "Only in Dovetail", prefixes: []string{ourPrefix}},
	{title: "NodeClaims", prefixes: []string{"karpenter_nodeclaims_"}},
	{
		title: "Nodes and the cluster", prefixes: []string{"karpenter_nodes_", "karpenter_cluster_"},
		note: "*node labels* are the well-known labels of nodes by the part of their keys after the slash, with `_` for `-`: " +
			"`zone`, `instance_type`, `nodepool`, `capacity_type`, `arch` and others; and `node_name`, `phase`, `managed`.",
	},
	{title: "NodePools", prefixes: []string{"karpenter_nodepools_"}},
	{title: "Pods", prefixes: []string{"karpenter_pods_", "karpenter_pod_deletion_cost_"}},
	{title: "Planning", prefixes: []string{"karpenter_scheduler_", "karpenter_cluster_state_"}},
	{title: "Disruption", prefixes: []string{"karpenter_voluntary_disruption_", "karpenter_consolidation_"}},
	{title: "Interruption", prefixes: []string{"karpenter_interruption_"}},
	{title: "AWS", prefixes: []string{"karpenter_cloudprovider_", "karpenter_ec2nodeclasses_", "aws_sdk_go_"}},
	{
		title: "Conditions and deletion", prefixes: []string{"operator_"},
		note: "Those without a kind in their names are deprecated in Karpenter: they have the labels `group` and `kind` instead.",
	},
	{title: "Program and libraries", prefixes: []string{""}},
}

// groupOf is the index of a metric's group.
func groupOf(name string) int {
	group, longest := len(metricsGroups)-1, 0
	for i, g := range metricsGroups {
		for _, prefix := range g.prefixes {
			if strings.HasPrefix(name, prefix) && len(prefix) > longest {
				group, longest = i, len(prefix)
			}
		}
	}
	return group
}

// libraryMetrics returns those of controller-runtime and its libraries, without those of the Go runtime and the process.
func libraryMetrics(t *testing.T) []inventory.Metric {
	t.Helper()
	registry, err := inventory.New(ctrlmetrics.Registry)
	if err != nil {
		t.Fatal(err)
	}
	all, err := registry.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m inventory.Metric) bool {
		return strings.HasPrefix(m.Name, "go_") || strings.HasPrefix(m.Name, "process_")
	})
}

// The page lists all metrics as the code declares them. UPDATE=1 writes it.
func TestMetricsPage(t *testing.T) {
	want := renderMetricsPage(t)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(metricsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(metricsPage)
	if err != nil || string(got) != want {
		t.Errorf("docs/metrics.md is stale (%v): run make generate", err)
	}
}

func renderMetricsPage(t *testing.T) string {
	t.Helper()
	k := readKarpenter(t)
	all := append(allMetrics(t, prometheus.NewRegistry()), libraryMetrics(t)...)
	slices.SortFunc(all, func(a, b inventory.Metric) int {
		return cmp.Or(cmp.Compare(groupOf(a.Name), groupOf(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	var page strings.Builder
	page.WriteString(metricsIntroduction)
	group := -1
	for _, m := range all {
		if m.Help == "" || m.Type == "" {
			t.Errorf("%s has no meaning or no type: %+v", m.Name, m)
		}
		if g := groupOf(m.Name); g != group {
			group = g
			fmt.Fprintf(&page, "\n## %s\n\n", metricsGroups[g].title)
			if note := metricsGroups[g].note; note != "" {
				fmt.Fprintf(&page, "%s\n\n", note)
			}
			page.WriteString("| Name | Type | Labels | Meaning | Stability |\n|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, labelsCell(m), m.Help, stability(k, m.Name))
	}
	page.WriteString(metricsOutro)
	return page.String()
}

// stability is Karpenter's. Ours are kept from version to version; those of libraries that Karpenter does not document are theirs.
func stability(k karpenter, name string) string {
	own := "of the library"
	if strings.HasPrefix(name, ourPrefix) {
		own = "Dovetail"
	}
	return cmp.Or(k.Metrics[name].Stability, k.LibraryMetrics[name].Stability, own)
}

// labelsCell lists labels; those of nodes are many, and explained once.
func labelsCell(m inventory.Metric) string {
	labels, cell := m.Labels, []string{}
	if slices.Contains(labels, "node_name") {
		cell = append(cell, "*node labels*")
		labels = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l != "resource_type" })
	}
	for _, label := range labels {
		cell = append(cell, "`"+label+"`")
	}
	return cmp.Or(strings.Join(cell, ", "), "–")
}
