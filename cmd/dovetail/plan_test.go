package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	examplePool = "../../examples/plan/pool.yaml"
	exampleShop = "../../examples/plan/shop.yaml"
)

// command runs the program with stdin and returns what it prints.
func command(stdin string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.Execute()
	return out.String(), errs.String(), err
}

func TestPlanPrintsWhatToLaunch(t *testing.T) {
	stdout, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Nodes to launch", "shop/db", "Total: ", "Bound: $", "19 on new nodes, 0 on existing nodes, 0 without a node", "Took: "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
}

// Programs rely on each of these fields.
func TestPlanAsJSON(t *testing.T) {
	stdout, _, err := command(
		"{apiVersion: v1, kind: Pod, metadata: {name: huge}, spec: {containers: [{name: c, resources: {requests: {cpu: 9000}}}]}}",
		"plan",
		"-f",
		examplePool,
		"-f",
		exampleShop,
		"-f",
		"-",
		"-o",
		"json",
	)
	var code exitCode
	if !errors.As(err, &code) || code != 3 {
		t.Errorf("%v, want the exit code of pods that are left over", err)
	}
	var report struct {
		Claims []struct {
			NodePool string
			Offering struct {
				InstanceType, Zone, CapacityType string
				Price                            float64
			}
			InstanceTypes []string
			Requests      map[string]string
			Pods          []string
		}
		Existing      []any
		Unschedulable []struct {
			Pod     string
			Reasons []struct{ Code, NodePool, Message string }
		}
		Stats map[string]float64
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	pods, cost := 0, 0.0
	for _, c := range report.Claims {
		if c.NodePool != "general" || c.Offering.InstanceType != c.InstanceTypes[0] || c.Offering.Zone == "" || c.Requests["cpu"] == "" {
			t.Errorf("claim %+v", c)
		}
		pods, cost = pods+len(c.Pods), cost+c.Offering.Price
	}
	if pods != 19 || report.Existing == nil {
		t.Errorf("%d pods on new nodes, want 19; existing %v, want an empty list", pods, report.Existing)
	}
	if u := report.Unschedulable; len(u) != 1 || u[0].Pod != "default/huge" || len(u[0].Reasons) != 1 ||
		u[0].Reasons[0].Code != "Resources" ||
		u[0].Reasons[0].NodePool != "general" {
		t.Errorf("unschedulable %+v", u)
	}
	for _, name := range []string{
		"pods", "classes", "instanceTypes", "readSeconds", "compileSeconds", "solveSeconds", "printSeconds", "hourlyCost", "lowerBound",
		"peakRSSBytes",
	} {
		if report.Stats[name] <= 0 {
			t.Errorf("stats.%s is %v", name, report.Stats[name])
		}
	}
	if len(report.Stats) != 10 {
		t.Errorf("stats %v, want the ten that are documented", report.Stats)
	}
	if d := report.Stats["hourlyCost"] - cost; d > 1e-9 || d < -1e-9 {
		t.Errorf("the claims cost %v, the stats say %v", cost, report.Stats["hourlyCost"])
	}
}

func TestPlanPrintsTheSameBytesForTheSameInputs(t *testing.T) {
	run := func(files ...string) string {
		t.Helper()
		args := []string{"plan", "-o", "json", "--no-timings"}
		for _, f := range files {
			args = append(args, "-f", f)
		}
		stdout, _, err := command("", args...)
		if err != nil {
			t.Fatal(err)
		}
		return stdout
	}
	first := run(examplePool, exampleShop)
	if strings.Contains(first, "Seconds") || strings.Contains(first, "RSS") || !strings.Contains(first, `"hourlyCost": `) {
		t.Errorf("there are timings, or no costs, in:\n%s", first)
	}
	if again := run(exampleShop, examplePool); again != first {
		t.Error("the order of files changes the plan")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if alone := run(examplePool, exampleShop); alone != first {
		t.Error("the number of processors changes the plan")
	}
}

func TestPlanChoosesTheCatalog(t *testing.T) {
	const node = "{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {topology.kubernetes.io/region: %s}}}"
	for _, tt := range []struct {
		name, stdin string
		args        []string
		want        string
	}{
		{"by default", "", nil, "us-east-1"},
		{"of the nodes", strings.ReplaceAll(node, "%s", "us-west-2"), nil, "us-west-2"},
		{"as asked", strings.ReplaceAll(node, "%s", "us-west-2"), []string{"--catalog", "eu-west-1"}, "eu-west-1"},
		{"of a file", "", []string{"--catalog", "../../examples/catalog/instance-types.json"}, "eu-a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, _, err := command(tt.stdin, append([]string{"plan", "-f", examplePool, "-f", exampleShop, "-f", "-"}, tt.args...)...)
			if err != nil || !strings.Contains(stdout, tt.want) {
				t.Errorf("%v; no %s in:\n%s", err, tt.want, stdout)
			}
		})
	}
}

const windowsPool = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: windows}
spec:
  amiSelectorTerms: [{alias: windows2022@latest}]
  role: nodes
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: windows}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: windows}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [TYPE]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [CAPACITY]}
---
apiVersion: v1
kind: Pod
metadata: {name: iis}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  containers: [{name: c, image: iis, resources: {requests: {cpu: 1}}}]
`

// planned is the plan of one pod on a node of that type.
func planned(t *testing.T, manifest, region string) (price float64, derived bool, notes string) {
	t.Helper()
	stdout, stderr, err := command(manifest, "plan", "-f", "-", "--catalog", region, "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	var report struct {
		Claims []struct {
			Offering struct {
				Price        float64
				PriceDerived bool
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Claims) != 1 {
		t.Fatalf("%v: %s", err, stdout)
	}
	o := report.Claims[0].Offering
	return o.Price, o.PriceDerived, stderr
}

func TestPlanPricesWindowsNodesAsWindows(t *testing.T) {
	windows := strings.NewReplacer("TYPE", "m5.large", "CAPACITY", "on-demand").Replace(windowsPool)
	price, derived, notes := planned(t, windows, "us-east-1")
	if price != 0.188 || derived {
		t.Errorf("m5.large with Windows costs %v (derived: %v), want 0.188, as the price list has it\n%s", price, derived, notes)
	}
	linux := strings.NewReplacer(
		"windows2022@latest",
		"al2023@latest",
		"kubernetes.io/os: windows",
		"kubernetes.io/os: linux",
	).Replace(
		windows,
	)
	if price, _, _ := planned(t, linux, "us-east-1"); price != 0.096 {
		t.Errorf("m5.large with Linux costs %v, want 0.096", price)
	}
	spot := strings.NewReplacer("TYPE", "m5.large", "CAPACITY", "spot").Replace(windowsPool)
	price, derived, notes = planned(t, spot, "us-east-1")
	if price != 0.12368 || !derived || !strings.Contains(notes, "Windows costs $0.046 per vCPU and hour") {
		t.Errorf("m5.large with Windows costs %v as spot (derived: %v), want 0.12368, derived, and a note on it:\n%s", price, derived, notes)
	}
}

func TestPlanMarksPricesThatNoListHas(t *testing.T) {
	manifest := strings.NewReplacer(
		"TYPE",
		"m8i.large",
		"CAPACITY",
		"on-demand",
		"windows2022@latest",
		"al2023@latest",
		"kubernetes.io/os: windows",
		"kubernetes.io/os: linux",
	).Replace(
		windowsPool,
	)
	price, derived, notes := planned(t, manifest, "eu-west-1")
	if price != 0.11801 || !derived || !strings.Contains(notes, "m8i.large on-demand with linux") ||
		!strings.Contains(notes, "us-east-1's times 1.115") {
		t.Errorf("m8i.large costs %v in eu-west-1 (derived: %v), want 0.11801, derived, and a note on it:\n%s", price, derived, notes)
	}
	stdout, _, err := command(manifest, "plan", "-f", "-", "--catalog", "eu-west-1")
	if err != nil || !strings.Contains(stdout, "~0.1180") {
		t.Errorf("%v; no mark in:\n%s", err, stdout)
	}
	if _, derived, notes := planned(t, manifest, "us-east-1"); derived || strings.Contains(notes, "derived") {
		t.Errorf("us-east-1 lists m8i.large, and yet: %s", notes)
	}
}

func TestPlanOfChinaIsInYuan(t *testing.T) {
	manifest := strings.NewReplacer(
		"TYPE",
		"m5.large",
		"CAPACITY",
		"on-demand",
		"windows2022@latest",
		"al2023@latest",
		"kubernetes.io/os: windows",
		"kubernetes.io/os: linux",
	).Replace(
		windowsPool,
	)
	price, _, notes := planned(t, manifest, "cn-north-1")
	if price != 1.013 || !strings.Contains(notes, "prices are in CNY") {
		t.Errorf("m5.large costs %v in cn-north-1; %s", price, notes)
	}
}

func TestPlanNamesTypesWithoutAPrice(t *testing.T) {
	manifest := strings.NewReplacer(
		"TYPE",
		"x8aedz.large",
		"CAPACITY",
		"on-demand",
		"windows2022@latest",
		"al2023@latest",
		"kubernetes.io/os: windows",
		"kubernetes.io/os: linux",
	).Replace(
		windowsPool,
	)
	stdout, _, err := command(manifest, "plan", "-f", "-", "--catalog", "us-west-2", "-o", "json")
	var code exitCode
	if !errors.As(err, &code) || !strings.Contains(stdout, "no price is known of x8aedz.large") {
		t.Errorf("%v:\n%s", err, stdout)
	}
}

func TestPlanRefuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "instance-types.json")
	if err := os.WriteFile(broken, []byte(`{"types": [{"name": "m"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
		code exitCode
	}{
		{"no input", nil, "name files with -f", 2},
		{"an argument", []string{examplePool}, `unknown argument "../../examples/plan/pool.yaml"`, 2},
		{"unknown flag", []string{"--files", examplePool}, "unknown flag: --files (see dovetail plan --help)", 2},
		{"missing file", []string{"-f", "no/such"}, "no/such", 1},
		{"unknown output", []string{"-f", examplePool, "-o", "xml"}, `"xml" is not one of table, wide, json, yaml`, 2},
		{"unknown region", []string{"-f", examplePool, "--catalog", "mars-1"}, `"mars-1"`, 1},
		{"broken catalog", []string{"-f", examplePool, "--catalog", broken}, "types[0] (m): allocatable: has no cpu", 1},
		{"missing catalog", []string{"-f", examplePool, "--catalog", "none.json"}, "none.json", 1},
		{
			"overhead that is no number",
			[]string{"-f", examplePool, "--vm-memory-overhead-percent", "NaN"},
			"--vm-memory-overhead-percent NaN is not a fraction", 2,
		},
		{"more than is read", []string{"-f", examplePool, "--max-input", "10"}, examplePool + ": with it the inputs exceed 10", 1},
		{"no amount", []string{"-f", examplePool, "--max-input", "-1"}, "--max-input", 2},
		{"a catalog without end", []string{"-f", examplePool, "--catalog", "/dev/zero", "--max-input", "1Mi"}, "/dev/zero is larger than 1Mi", 1},
		{"a device", []string{"-f", "/dev/zero"}, "/dev/zero: is not text", 1},
		{"unknown policy", []string{"-f", examplePool, "--preference-policy", "Perhaps"}, "--preference-policy", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, _, err := command("", append([]string{"plan"}, tt.args...)...)
			if code := codeOf(err); code != tt.code || !strings.Contains(err.Error(), tt.want) || stdout != "" {
				t.Errorf("exit code %d, error %v, want %d, %q and nothing printed: %s", code, err, tt.code, tt.want, stdout)
			}
		})
	}
}

func TestPlanRefusesAnInvalidNamespace(t *testing.T) {
	_, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--namespace", "Not A Namespace")
	if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("%v", err)
	}
}

// Prices of another region must not pass for those of one's own.
func TestPlanOfAnUnknownRegionNotesWhichPricesItUses(t *testing.T) {
	node := "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {topology.kubernetes.io/region: us-iso-east-1}}}"
	for args, want := range map[string]bool{"": true, "--region=eu-west-1": false} {
		_, stderr, err := command(node, append([]string{"plan", "-f", examplePool, "-f", exampleShop, "-f", "-"}, strings.Fields(args)...)...)
		if err != nil || strings.Contains(stderr, `in region "us-iso-east-1", which is not in the catalog`) != want {
			t.Errorf("%q: %v, notes:\n%s", args, err, stderr)
		}
	}
}

func TestPlanThatPanicsExplainsHowToReportIt(t *testing.T) {
	err := solved(func() { panic("broken") })
	for _, want := range []string{"planning failed (panic: broken)", "report it with the files", "plan_test.go"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
