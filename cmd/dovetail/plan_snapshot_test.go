package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clusterNow is a snapshot of two nodes of NodePool general, m5.xlarge on demand, with three pods of the Deployment shop/web on them,
// a pod of the StatefulSet shop/db, and a daemon on each.
const clusterNow = "testdata/plan/now.yaml"

// besideReport describes what plan -o json prints of a snapshot and what comes beside it.
type besideReport struct {
	Claims        []struct{ Pods []string }
	Existing      []struct{ Pods []string }
	Unschedulable []any
	Changes       []struct {
		Kind, Name                         string
		Was, Now, Added, Removed, Replaced int
		Fields                             []string
	}
	Drift *struct {
		Nodes []struct {
			Node, Reason, Stays string
			HourlyCost          float64
			Fields              []string
		}
		Launches []struct {
			Offering struct {
				InstanceType string
				Price        float64
			}
			Pods []string
		}
		HourlyCost, ReplacedHourlyCost float64
	}
	Consolidation *struct {
		Commands []struct {
			Reason        string
			Nodes         []struct{ Node string }
			Launches      []struct{ InstanceTypes []string }
			HourlySavings float64
		}
		Kept          []struct{ Node, Reason string }
		HourlySavings float64
	}
}

// planned counts the pods of a workload that are planned.
func (r besideReport) planned(prefix string) int {
	n := 0
	for _, list := range [][]struct{ Pods []string }{r.Claims, r.Existing} {
		for _, of := range list {
			for _, pod := range of.Pods {
				if strings.HasPrefix(pod, prefix) {
					n++
				}
			}
		}
	}
	return n
}

// planBeside plans the snapshot with a file beside it, and prints it as a table as well.
func planBeside(t *testing.T, text string, args ...string) (besideReport, string) {
	t.Helper()
	edited := filepath.Join(t.TempDir(), "edited.yaml")
	if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"plan", "--no-timings", "--catalog", "testdata/plan/catalog.json", "-f", clusterNow, "-f", edited}, args...)
	stdout, stderr, err := command("", append(args, "-o", "json")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var report besideReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	if err := judge(t, stdout); err != nil {
		t.Error(err)
	}
	table, _, err := command("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return report, table
}

func deployment(replicas int, cpu string) string {
	return fmt.Sprintf(
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: %d, selector: {matchLabels: {app: web}}, "+
			"template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: web, resources: {requests: {cpu: %s}}}]}}}}",
		replicas,
		cpu,
	)
}

func TestPlanOfAnEditedWorkloadBesideASnapshot(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		pods       string // prefix of those that are planned
		planned    int
		change     string
	}{
		{"as it is", deployment(3, "500m"), "shop/web", 0, ""},
		{"spelled otherwise", deployment(3, "0.5"), "shop/web", 0, ""},
		{"as many as an autoscaler wants", strings.ReplaceAll(deployment(9, "500m"), "replicas: 9, ", ""), "shop/web", 0, ""},
		{"scaled up", deployment(30, "500m"), "shop/web", 27, "Deployment shop/web: 30 pods instead of 3 (27 added)"},
		{"scaled down", deployment(1, "500m"), "shop/web", 0, "Deployment shop/web: 1 pod instead of 3 (2 removed)"},
		{"scaled to nothing", deployment(0, "500m"), "shop/web", 0, "Deployment shop/web: 0 pods instead of 3 (3 removed)"},
		{
			"another template", deployment(3, "3"), "shop/web", 3,
			"Deployment shop/web: 3 pods instead of 3 (3 replaced)\n         spec.template.spec.containers[0].resources.requests.cpu",
		},
		{"another template and fewer", deployment(2, "3"), "shop/web", 2, "Deployment shop/web: 2 pods instead of 3 (1 removed, 2 replaced)"},
		{
			"a StatefulSet",
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {replicas: 3, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: db, resources: {requests: {cpu: 1}}}]}}}}",
			"shop/db", 2, "StatefulSet shop/db: 3 pods instead of 1 (2 added)",
		},
		{
			"a ReplicaSet",
			"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-7f9, namespace: shop}, spec: {replicas: 4, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: web, resources: {requests: {cpu: 500m}}}]}}}}",
			"shop/web", 1, "ReplicaSet shop/web-7f9: 4 pods instead of 3 (1 added)",
		},
		{
			"a DaemonSet",
			"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: shop}, spec: {template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: agent, resources: {requests: {cpu: 1}}}]}}}}",
			"shop/agent", 0,
			"DaemonSet shop/agent: 2 pods instead of 2 (2 replaced)\n         spec.template.spec.containers[0].resources.requests.cpu",
		},
		{"a new one", strings.ReplaceAll(deployment(2, "1"), "name: web", "name: new"), "shop/new", 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, table := planBeside(t, tt.text)
			if got := report.planned(tt.pods); got != tt.planned {
				t.Errorf("%d pods of %s are planned, want %d:\n%s", got, tt.pods, tt.planned, table)
			}
			if tt.change == "" && len(report.Changes) > 0 || !strings.Contains(table, tt.change) {
				t.Errorf("changes %+v, want %q:\n%s", report.Changes, tt.change, table)
			}
		})
	}
}

func TestScalingDownBesideASnapshotEmptiesANode(t *testing.T) {
	report, table := planBeside(t, deployment(0, "500m"), "--consolidate")
	if report.Consolidation == nil || len(report.Consolidation.Commands) == 0 || report.Consolidation.Commands[0].Reason != "Empty" ||
		report.Consolidation.Commands[0].Nodes[0].Node != "node-0" || report.Consolidation.HourlySavings <= 0 {
		t.Errorf("consolidation %+v, want node-0 removed as empty:\n%s", report.Consolidation, table)
	}
}

// Daemons of the edited DaemonSet weigh on the nodes that exist, not only on new ones.
func TestAnEditedDaemonSetTakesRoomOnTheNodesOfTheSnapshot(t *testing.T) {
	const daemons = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: shop}, spec: {template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: agent, resources: {requests: {cpu: %s}}}]}}}}\n---\n"
	small, _ := planBeside(t, fmt.Sprintf(daemons, "100m")+deployment(7, "500m"))
	large, _ := planBeside(t, fmt.Sprintf(daemons, "2500m")+deployment(7, "500m"))
	if len(small.Claims) != 0 || len(large.Claims) == 0 {
		t.Errorf("%d nodes to launch with the small daemon, %d with the large; want none and some", len(small.Claims), len(large.Claims))
	}
}

func pool(change string) string {
	return `apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: "100%"}]}
  template:
` + change
}

const (
	classRef  = "      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}\n"
	onDemand  = "        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}\n"
	amd64     = "        - {key: kubernetes.io/arch, operator: In, values: [amd64]}\n"
	arm64     = "        - {key: kubernetes.io/arch, operator: In, values: [arm64]}\n"
	asItWas   = "    spec:\n" + classRef + "      requirements:\n" + onDemand + amd64
	withTaint = "    spec:\n      startupTaints: [{key: example.com/new, effect: NoSchedule}]\n" + classRef + "      requirements:\n" + onDemand + amd64
)

func TestPlanOfAnEditedNodePoolBesideASnapshotShowsDrift(t *testing.T) {
	for _, tt := range []struct{ name, text, reason, field string }{
		{"as it was", pool(asItWas), "", ""},
		{
			"a requirement", pool("    spec:\n" + classRef + "      requirements:\n" + onDemand + arm64), "RequirementsDrifted",
			"NodePool general spec.template.spec.requirements[kubernetes.io/arch]",
		},
		{"a taint", pool(withTaint), "NodePoolDrifted", "NodePool general spec.template.spec.startupTaints"},
		{
			"a label", pool("    metadata: {labels: {team: a}}\n" + asItWas), "NodePoolDrifted",
			"NodePool general spec.template.metadata.labels.team",
		},
		{"its weight", strings.Replace(pool(asItWas), "spec:\n", "spec:\n  weight: 10\n", 1), "", ""},
		{
			"its node class", `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: nodes, amiSelectorTerms: [{alias: al2023@latest}],
  subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], detailedMonitoring: true}}`,
			"NodeClassDrift", "EC2NodeClass default spec.detailedMonitoring",
		},
		{
			"a node class as it was", `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: nodes, amiSelectorTerms: [{alias: al2023@latest}],
  subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}}`, "", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, table := planBeside(t, tt.text)
			if tt.reason == "" {
				if report.Drift != nil {
					t.Errorf("drift %+v, want none", report.Drift)
				}
				return
			}
			if report.Drift == nil || len(report.Drift.Nodes) != 2 {
				t.Fatalf("drift %+v, want both nodes:\n%s", report.Drift, table)
			}
			for _, d := range report.Drift.Nodes {
				if d.Reason != tt.reason || !slices.Contains(d.Fields, tt.field) || d.HourlyCost <= 0 || d.Stays != "" {
					t.Errorf("%+v, want %s by %s", d, tt.reason, tt.field)
				}
			}
			pods, cost := 0, 0.0
			for _, l := range report.Drift.Launches {
				pods, cost = pods+len(l.Pods), cost+l.Offering.Price
			}
			if pods != 4 || cost != report.Drift.HourlyCost || report.Drift.ReplacedHourlyCost <= cost {
				t.Errorf(
					"launches for %d pods at %v, want the four of both nodes, for less than %v:\n%s",
					pods,
					cost,
					report.Drift.ReplacedHourlyCost,
					table,
				)
			}
			for _, want := range []string{"Nodes that drift", "node-0", tt.reason, tt.field, "Drift: 2 nodes of 2 replaced by"} {
				if !strings.Contains(strings.Join(strings.Fields(table), " "), want) {
					t.Errorf("no %q in:\n%s", want, table)
				}
			}
		})
	}
}

func TestPlanWithConsolidate(t *testing.T) {
	report, table := planBeside(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "--consolidate")
	c := report.Consolidation
	if c == nil || len(c.Commands) == 0 || c.HourlySavings <= 0 || len(c.Commands[0].Nodes) == 0 {
		t.Fatalf("consolidation %+v, want nodes removed: both are nearly empty\n%s", c, table)
	}
	for _, want := range []string{"Consolidation 1 (Underutilized): remove", "saves $", "Consolidation: "} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
	without, table := planBeside(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	if without.Consolidation != nil || strings.Contains(table, "Consolidation") {
		t.Errorf("consolidation is shown though nobody wants to know:\n%s", table)
	}
}

// A pending pod that comes to a node that drifts needs a place, too, when that node is replaced.
func TestDriftCountsThePodsThatComeToTheNode(t *testing.T) {
	report, table := planBeside(t, pool(withTaint)+"---\n"+deployment(4, "500m"))
	pods := 0
	for _, l := range report.Drift.Launches {
		pods += len(l.Pods)
	}
	if report.planned("shop/web") != 1 || len(report.Claims) != 0 || pods != 5 {
		t.Errorf("launches for %d pods, want the four of the nodes and the new one:\n%s", pods, table)
	}
}

func TestDriftSaysWhyANodeStays(t *testing.T) {
	const held = "---\n{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, annotations: {karpenter.sh/do-not-disrupt: 'true'}}, " +
		"spec: {nodeName: node-1, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}"
	report, table := planBeside(t, pool(withTaint)+held)
	if report.Drift == nil || len(report.Drift.Nodes) != 2 {
		t.Fatalf("drift %+v", report.Drift)
	}
	for _, d := range report.Drift.Nodes {
		if stays := strings.Contains(d.Stays, "do-not-disrupt"); stays != (d.Node == "node-1") {
			t.Errorf("%+v, want node-1 to stay for its pod, and node-0 to go", d)
		}
	}
	if !strings.Contains(table, "stays: ") || !strings.Contains(table, "Drift: 1 node of 2 replaced by") {
		t.Errorf("no reason in:\n%s", table)
	}
}
