package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed runs the command and returns the first word of each line below the heading.
func listed(t *testing.T, args ...string) []string {
	t.Helper()
	stdout, _, err := command("", append([]string{"instance-types", "-o", "name"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(stdout)
}

func TestInstanceTypesOfARegion(t *testing.T) {
	stdout, _, err := command("", "instance-types", "--region", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) < 700 {
		t.Errorf("%d lines", len(lines))
	}
	for _, want := range []string{"TYPE", "ALLOCATABLE", "UNAVAILABLE", "\nm5.large ", "AL2023 does not run on its processor"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q", want)
		}
	}
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "m5.large ") })
	if got, want := strings.Join(strings.Fields(lines[i]), " "), "m5.large 2 7.4Gi 29 1.93 / 6.7Gi a,b,d,e,f 0.0960 0.0317"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInstanceTypesMarkDerivedPrices(t *testing.T) {
	stdout, _, err := command("", "instance-types", "--region", "eu-west-1", "m5.large", "m8i.large")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" 0.1070 ", " ~0.1180 ", "~ marks a derived price, which is in no price list (prices of May 2025;"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
	if stdout, _, _ := command("", "instance-types", "--region", "eu-west-1", "m5.large"); strings.Contains(stdout, "~") {
		t.Errorf("a mark where nothing is derived:\n%s", stdout)
	}
	stdout, _, err = command("", "instance-types", "--region", "eu-west-1", "m8i.large", "-o", "json")
	if err != nil || !strings.Contains(stdout, `"priceDerived": true`) || !strings.Contains(stdout, `"priceBasis": "prices of May 2025`) {
		t.Errorf("%v:\n%s", err, stdout)
	}
}

func TestInstanceTypesOfWindowsCostMore(t *testing.T) {
	stdout, _, err := command("", "instance-types", "--region", "us-east-1", "--ami-family", "Windows2022", "m5.large")
	if err != nil || !strings.Contains(stdout, " 0.1880 ") {
		t.Errorf("%v:\n%s", err, stdout)
	}
}

func TestInstanceTypesAreFiltered(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"by name", []string{"m5.large"}, "m5.large"},
		{
			"by patterns, sorted by size",
			[]string{"m5.*large", "m7g.medium"},
			"m5.large m5.xlarge m5.2xlarge m5.4xlarge m5.8xlarge m5.12xlarge m5.16xlarge m5.24xlarge m7g.medium",
		},
		{"by label", []string{"-l", "family=m7g,cpu>8,cpu<64"}, "m7g.4xlarge m7g.8xlarge m7g.12xlarge"},
		{
			"by the label's full name",
			[]string{"-l", "karpenter.k8s.aws/instance-family in (m7g),karpenter.k8s.aws/instance-size=metal"},
			"m7g.metal",
		},
		{"by a label's absence", []string{"-l", "!gpu-count", "g4dn.*", "m5.large"}, "m5.large"},
		{"by what must fit", []string{"-l", "family=m5", "--requests", "cpu=40,memory=180Gi"}, "m5.16xlarge m5.24xlarge m5.metal"},
		{"by a resource", []string{"-l", "family=g4dn", "--requests", "nvidia.com/gpu=4"}, "g4dn.12xlarge g4dn.metal"},
		{"by availability", []string{"--available", "a1.*", "m5.large"}, "m5.large"},
		{"by family", []string{"--ami-family", "Bottlerocket", "--available", "a1.large"}, "a1.large"},
		{"limited", []string{"-l", "family=m5", "--limit", "2"}, "m5.large m5.xlarge"},
		{"by CPU", []string{"--sort", "cpu", "m5.2xlarge", "c5.large"}, "c5.large m5.2xlarge"},
		{"by memory", []string{"--sort", "memory", "r5.large", "c5.xlarge"}, "c5.xlarge r5.large"},
		{
			"by price",
			[]string{"--sort", "price", "-l", "capacity-type=on-demand", "r5.large", "c5.large", "a1.medium"},
			"c5.large r5.large a1.medium",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(listed(t, tt.args...), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

const typesOfAPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    metadata: {labels: {team: a}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5, a1]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  role: node
  kubelet: {maxPods: "instance_type == 'm5.4xlarge' ? 1 / 0 : vcpus * 9"}
status:
  subnets:
  - {id: subnet-0123456789abcdef0, zone: us-east-1b, zoneID: use1-az2}
`

// typesJSON describes what programs rely on.
type typesJSON struct {
	Region, NodePool, NodeClass string
	InstanceTypes               []struct {
		Name                  string
		Available             bool
		Why                   string
		Capacity, Allocatable map[string]string
		Labels                map[string][]string
		Offerings             []struct {
			Zone, CapacityType, Why string
			Available               bool
			Price                   float64
		}
	}
}

func TestInstanceTypesOfANodePool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(path, []byte(typesOfAPool), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) (out typesJSON) {
		t.Helper()
		stdout, _, err := command("", append([]string{"instance-types", "-f", path, "-o", "json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(stdout), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := read()
	if got.Region != "us-east-1" || got.NodePool != "general" || got.NodeClass != "default" || len(got.InstanceTypes) != 15 {
		t.Errorf("%s, %s, %s, %d types", got.Region, got.NodePool, got.NodeClass, len(got.InstanceTypes))
	}
	for _, it := range got.InstanceTypes {
		available := 0
		for _, o := range it.Offerings {
			if o.CapacityType != "on-demand" || o.Available != (o.Why == "") {
				t.Errorf("%s: %+v", it.Name, o)
			}
			if o.Available {
				available++
			}
		}
		switch it.Name {
		case "m5.xlarge":
			if available != 1 || !it.Available || it.Capacity["pods"] != "36" || it.Labels["topology.kubernetes.io/zone"][0] != "us-east-1b" {
				t.Errorf("%+v", it)
			}
		case "m5.4xlarge":
			if it.Available || !strings.Contains(it.Why, "division by zero") {
				t.Errorf("%+v", it)
			}
		case "a1.large":
			if it.Available || it.Why != "AL2023 does not run on its processor" {
				t.Errorf("%+v", it)
			}
		}
	}
	_, stderr, err := command("", "instance-types", "-f", path, "c5.large")
	if codeOf(err) != exitIncomplete || !strings.Contains(stderr, "excludes 1 types; --all") {
		t.Errorf("%q, %v", stderr, err)
	}
	all := read("--all", "c5.large", "m5.large")
	if len(all.InstanceTypes) != 2 ||
		!strings.Contains(all.InstanceTypes[0].Why, "the NodePool requires karpenter.k8s.aws/instance-family in (") {
		t.Errorf("%+v", all.InstanceTypes)
	}
	if spot := all.InstanceTypes[1].Offerings; !slices.ContainsFunc(spot, func(o struct {
		Zone, CapacityType, Why string
		Available               bool
		Price                   float64
	},
	) bool {
		return o.CapacityType == "spot" && strings.Contains(o.Why, "the NodePool requires karpenter.sh/capacity-type")
	}) {
		t.Errorf("%+v", spot)
	}
	if class := read("--nodeclass", "default", "c5.large"); len(class.InstanceTypes) != 1 || class.NodePool != "" {
		t.Errorf("%+v", class)
	}
}

func TestInstanceTypesOfACatalogFile(t *testing.T) {
	if got := listed(t, "--catalog", "../../examples/catalog/instance-types.json"); len(got) == 0 || slices.Contains(got, "m5.large") {
		t.Errorf("%q", got)
	}
}

func TestInstanceTypesRefuses(t *testing.T) {
	two := strings.ReplaceAll(typesOfAPool, "name: general", "name: first") + "---" + strings.Split(typesOfAPool, "---")[0]
	for _, tt := range []struct {
		name, stdin string
		args        []string
		code        exitCode
		want        string
	}{
		{"a pattern that is none", "", []string{"m5.["}, 2, "is not a pattern"},
		{"an unknown label", "", []string{"-l", "colour=blue"}, 2, "colour is not a label of instance types"},
		{"a selector that is none", "", []string{"-l", "cpu in ("}, 2, "--selector"},
		{"requests that are none", "", []string{"--requests", "cpu"}, 2, `"cpu" is not a resource and an amount`},
		{"an unknown order", "", []string{"--sort", "beauty"}, 2, "use one of name, price, cpu, memory"},
		{"an unknown output", "", []string{"-o", "xml"}, 2, `"xml" is not one of table, wide, json, yaml, name`},
		{"an unknown family", "", []string{"--ami-family", "Ubuntu"}, 2, "AL2023"},
		{"a pool of nowhere", "", []string{"--nodepool", "general"}, 2, "need -f or --live"},
		{"a cluster and files", "", []string{"--live", "-f", "-"}, 2, "--live and -f"},
		{"a region and a catalog", "", []string{"--region", "us-east-1", "--catalog", "x.json"}, 2, "use only one of them"},
		{"a misspelled region", "", []string{"--region", "us-esat-1"}, 1, `--region: there are no prices of region "us-esat-1", did you mean us-east-1?`},
		{"an unknown region", "", []string{"--region", "mars-1"}, 1, `--region: there are no prices of region "mars-1"`},
		{"an unknown pool", typesOfAPool, []string{"-f", "-", "--nodepool", "other"}, 1, `there is no NodePool "other", only general`},
		{"several pools", two, []string{"-f", "-"}, 1, "choose one of first, general with --nodepool"},
		{"nothing is as asked for", "", []string{"m99.large"}, 3, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := command(tt.stdin, append([]string{"instance-types"}, tt.args...)...)
			if err == nil || codeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("code %d, %v; want %d, %q", codeOf(err), err, tt.code, tt.want)
			}
		})
	}
	_, _, err := command("", "instance-types", "--live", "--context", "no-such-context")
	if err == nil || errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "find the cluster") {
		t.Errorf("got %v", err)
	}
}
