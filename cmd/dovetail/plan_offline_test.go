package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// m6iPool is a pool of m6i on demand.
const m6iPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m6i]}
---
`

// plannedTypes are the instance types that a plan launches, for pods and for buffers.
func plannedTypes(t *testing.T, stdin string, args ...string) (forPods, forBuffers []string) {
	t.Helper()
	args = append([]string{"plan", "-f", "-", "-o", "json", "--region", "eu-west-1"}, args...)
	stdout, stderr, err := command(stdin, args...)
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if err := judge(t, stdout); err != nil {
		t.Errorf("the schema refuses: %v", err)
	}
	type claim struct {
		Offering struct{ InstanceType, Zone string }
	}
	var report struct{ Claims, BufferClaims []claim }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Claims {
		forPods = append(forPods, c.Offering.InstanceType)
	}
	for _, c := range report.BufferClaims {
		forBuffers = append(forBuffers, c.Offering.InstanceType+" "+c.Offering.Zone)
	}
	return forPods, forBuffers
}

// With the feature gate NodeOverlay, the controller launches a node for a resource that only an overlay adds.
func TestPlanAppliesNodeOverlays(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 500m}, limits: {example.com/license: 1}}}]}
---
`
	overlay := func(spec, rest string) string {
		return "\n---\n{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {name: licenses}, spec: {" + spec + "}" + rest + "}\n---\n"
	}
	large := "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m6i.large]}], "
	if got, _ := plannedTypes(t, m6iPool+pod); len(got) > 0 {
		t.Errorf("without an overlay the plan launches %v", got)
	}
	if got, _ := plannedTypes(t, m6iPool+pod+overlay(large+"capacity: {example.com/license: 4}", "")); len(got) != 1 || got[0] != "m6i.large" {
		t.Errorf("with the overlay the plan launches %v, want m6i.large", got)
	}
	plain := strings.Replace(pod, ", limits: {example.com/license: 1}", "", 1)
	cheap := overlay(`requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m6i.xlarge]}], price: "0.01"`, "")
	if got, _ := plannedTypes(t, m6iPool+plain+cheap); len(got) != 1 || got[0] != "m6i.xlarge" {
		t.Errorf("with a price of $0.01 the plan launches %v, want m6i.xlarge", got)
	}
	conflicting := cheap + strings.Replace(cheap, "licenses", "prices", 1)
	_, stderr, _ := command(m6iPool+plain+conflicting, "plan", "-f", "-")
	if !strings.Contains(stderr, `NodeOverlay licenses changes nothing: NodeOverlay "prices" of the same weight already sets the price of on-demand m6i.xlarge`) {
		t.Errorf("an overlay that is not valid is not named:\n%s", stderr)
	}
	stdout, _, err := command(m6iPool+cheap, "instance-types", "-f", "-", "m6i.xlarge", "--region", "eu-west-1")
	if err != nil || !strings.Contains(stdout, "0.01") {
		t.Errorf("%v: instance-types does not show the overlay's price:\n%s", err, stdout)
	}
	taken := "apiVersion: dovetail.sh/v1\nkind: Snapshot\ntakenAt: 2026-01-01T00:00:00Z\n---\n"
	capacity := overlay(large+"capacity: {example.com/license: 4}", "")
	unschedulable := strings.Replace(pod, "spec:", `status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}`+"\nspec:", 1)
	_, stderr, _ = command(taken+m6iPool+unschedulable+capacity, "plan", "-f", "-")
	if !strings.Contains(stderr, "NodeOverlay licenses is left out: no controller of its cluster has evaluated it") {
		t.Errorf("an overlay of a cluster whose controller ignores overlays is applied:\n%s", stderr)
	}
}

// Pods have what the LimitRange of their namespace adds, and so do those of DaemonSets and of Jobs.
func TestPlanCountsLimitRanges(t *testing.T) {
	limits := func(namespace string) string {
		return `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: ` + namespace + `}
spec: {limits: [{type: Container, defaultRequest: {cpu: "1500m", memory: 1Gi}}]}
---
`
	}
	const daemon = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log, namespace: logging}
spec:
  selector: {matchLabels: {ds: log}}
  template: {metadata: {labels: {ds: log}}, spec: {containers: [{name: c, image: x}]}}
---
`
	const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}, {name: d, image: x, resources: {requests: {cpu: 200m}}}]}}}
---
`
	for _, c := range []struct{ name, stdin, want string }{
		{"none", m6iPool + daemon + job, "m6i.large"},
		{"of the DaemonSet's namespace", m6iPool + daemon + job + limits("logging"), "m6i.large"},
		{"of the Job's namespace", m6iPool + daemon + job + limits("shop"), "m6i.large"},
		{"of both", m6iPool + daemon + job + limits("shop") + limits("logging"), "m6i.xlarge"},
	} {
		if got, _ := plannedTypes(t, c.stdin); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: the plan launches %v, want %s", c.name, got, c.want)
		}
	}
}

// A buffer reserves what its pods will take: with the overhead and the node selector of their runtime class, and with the defaults of the
// namespace.
func TestPlanReservesTheRoomOfCapacityBuffers(t *testing.T) {
	runtime := func(rest string) string {
		return "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata" + rest + "}\n---\n"
	}
	const template = `
apiVersion: v1
kind: PodTemplate
metadata: {name: warm, namespace: shop}
template:
  spec:
    runtimeClassName: kata
    containers: [{name: c, image: x, resources: {limits: {cpu: "1"}}}]
---
`
	const buffer = `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: warm, namespace: shop}
spec: {podTemplateRef: {name: warm}, replicas: 1}
---
`
	const limits = `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: shop}
spec: {limits: [{type: Container, defaultRequest: {memory: 30Gi}}]}
---
`
	for _, c := range []struct{ name, stdin, want string }{
		{"plain", runtime(""), "m6i.large"},
		{"overhead", runtime(", overhead: {podFixed: {cpu: 6, memory: 2Gi}}"), "m6i.2xlarge"},
		{"node selector", runtime(", scheduling: {nodeSelector: {topology.kubernetes.io/zone: eu-west-1c}}"), "m6i.large eu-west-1c"},
		{"LimitRange", runtime("") + limits, "m6i.4xlarge"},
	} {
		_, got := plannedTypes(t, m6iPool+template+buffer+c.stdin)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: the plan launches %v for the buffer, want %s", c.name, got, c.want)
		}
	}
	stdout, _, err := command(m6iPool+template+buffer+runtime(""), "plan", "-f", "-", "--region", "eu-west-1")
	if err != nil || !strings.Contains(stdout, "shop/warm  fit on existing nodes: 0 of 1 pods; need new nodes: 1") {
		t.Errorf("%v: the table does not name the buffer:\n%s", err, stdout)
	}
	_, stderr, _ := command(m6iPool+template+buffer, "plan", "-f", "-", "--region", "eu-west-1")
	if !strings.Contains(stderr, `CapacityBuffer shop/warm reserves nothing: the API server would reject pods of the template: runtime class "kata"`) {
		t.Errorf("a buffer whose pods the API server rejects is not named:\n%s", stderr)
	}
}

// The API server refuses fields that it does not know, and names them.
func TestPlanRefusesUnknownFields(t *testing.T) {
	for _, c := range []struct{ name, stdin, want string }{
		{
			"a misspelled field of a NodePool", strings.Replace(m6iPool, "  template:\n    spec:\n", "  template:\n    spec:\n      expireAftr: 720h\n", 1),
			`NodePool general: unknown field "spec.template.spec.expireAftr", did you mean "expireAfter"?`,
		},
		{
			"in a list", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: x, resource: {}}]}}",
			`Pod a: unknown field "spec.containers[0].resource", did you mean "resources"?`,
		},
		{
			"in a map of nothing alike", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {zzzzzzzz: 1, template: {spec: {containers: [{name: c, image: x}]}}}}",
			`Deployment web: unknown field "spec.zzzzzzzz"`,
		},
		{
			"of an EC2NodeClass", `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: c}, spec: {rol: r, role: r,
  amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-0123456789abcdef0}], securityGroupSelectorTerms: [{id: sg-0123456789abcdef0}]}}`,
			`EC2NodeClass c: unknown field "spec.rol", did you mean "role"?`,
		},
	} {
		_, _, err := command(c.stdin, "plan", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	read := "{apiVersion: v1, kind: Pod, metadata: {name: a, uid: u-1}, spec: {newer: 1, containers: [{name: c, image: x}]}}"
	_, stderr, err := command(m6iPool+read, "plan", "-f", "-")
	if err != nil || !strings.Contains(stderr, `unknown field "spec.newer" is ignored`) {
		t.Errorf("%v: an object that an API server of a newer version has stored is refused:\n%s", err, stderr)
	}
}

// A pod that was resized in place to less comes back with its template's size, so its node cannot be emptied onto another.
func TestPlanDoesNotConsolidateByTheRequestsOfResizedPods(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("testdata/plan/resized.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	consolidated := func(stdin string) string {
		t.Helper()
		stdout, stderr, err := command(stdin, "plan", "-f", "-", "--consolidate", "--region", "eu-west-1", "--no-timings")
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		return stdout
	}
	if got := consolidated(string(text)); strings.Contains(got, "remove 1 node") {
		t.Errorf("a plan moves pods that come back larger than the room:\n%s", got)
	}
	small := strings.ReplaceAll(string(text), "cpu: 3700m", "cpu: 300m")
	if got, before := consolidated(small), consolidated(string(text)); got == before {
		t.Errorf("with a template of the same size nothing is consolidated:\n%s", got)
	}
}

// A small plan that is not proven optimal states what its gap is, not a percentage of a bound that counts parts of nodes.
func TestPlanStatesWhatASmallPlanLeavesUnused(t *testing.T) {
	pods := ""
	for name, cpu := range map[string]string{"a": "2100m", "b": "1950m", "c": "1"} {
		pods += "{apiVersion: v1, kind: Pod, metadata: {name: " + name +
			"}, spec: {containers: [{name: c, image: x, resources: {requests: {cpu: " + cpu + ", memory: 128Mi}}}]}}\n---\n"
	}
	stdout, _, err := command(m6iPool+pods, "plan", "-f", "-", "--region", "eu-west-1")
	flat := strings.Join(strings.Fields(stdout), " ")
	if err != nil || !strings.Contains(flat, "/h more The bound counts parts of nodes; unused: 2.") ||
		!strings.Contains(flat, " memory --explain-cost shows what makes up the difference Prices:") || strings.Contains(flat, "% more") {
		t.Errorf("%v:\n%s", err, stdout)
	}
}
