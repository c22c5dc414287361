package support

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func paths(fields []Field) (paths []string) {
	for _, f := range fields {
		paths = append(paths, f.Path)
	}
	return paths
}

func TestUnsupportedNodePool(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"nothing", "{}", nil},
		{
			"what works",
			"{weight: 1, limits: {cpu: 1}, disruption: {consolidationPolicy: WhenEmpty, budgets: [{nodes: 10%}, {nodes: '0', reasons: [Empty]}]}}",
			nil,
		},
		{"replicas", "{replicas: 0}", nil},
		{"default policy", "{disruption: {consolidationPolicy: WhenEmptyOrUnderutilized}}", nil},
		{"balanced policy", "{disruption: {consolidationPolicy: Balanced}}", nil},
		{"budget for drift", "{disruption: {budgets: [{nodes: 10%}, {nodes: '0', reasons: [Empty, Drifted]}]}}", nil},
		{"budget for underutilized nodes", "{disruption: {budgets: [{nodes: '0', reasons: [Underutilized]}]}}", nil},
		{
			"budget for repair", "{disruption: {budgets: [{nodes: '0', reasons: [Empty, Unhealthy]}, {nodes: '1', reasons: [Unhealthy]}]}}",
			nil,
		},
		{
			"reserved capacity",
			"{template: {spec: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot, reserved]}]}}}",
			nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &karpv1.NodePool{}
			if err := yaml.UnmarshalStrict([]byte(tt.spec), &p.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, paths(UnsupportedNodePool(p))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsupportedNodeClass(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"nothing", "{}", nil},
		{"what works", "{role: a, kubelet: {maxPods: 5, kubeReserved: {cpu: 100m}}, instanceStorePolicy: RAID0}", nil},
		{"reservations", "{capacityReservationSelectorTerms: [{id: cr-1}]}", nil},
		{"placement group", "{placementGroupSelector: {name: a}}", nil},
		{
			"podsPerCore on Bottlerocket",
			"{amiFamily: Bottlerocket, kubelet: {podsPerCore: 2, maxPods: 5}}",
			[]string{"spec.kubelet.podsPerCore"},
		},
		{
			"podsPerCore by an alias",
			"{amiSelectorTerms: [{alias: bottlerocket@latest}], kubelet: {podsPerCore: 2}}",
			[]string{"spec.kubelet.podsPerCore"},
		},
		{"podsPerCore on AL2", "{amiFamily: AL2, kubelet: {podsPerCore: 2}}", nil},
		{
			"what AL2 and Windows have no setting for",
			"{amiFamily: AL2, kubelet: {topologyManagerPolicy: none, cpuManagerPolicy: static}}",
			[]string{"spec.kubelet.cpuManagerPolicy", "spec.kubelet.topologyManagerPolicy"},
		},
		{"any field on AL2023", "{amiFamily: AL2023, kubelet: {topologyManagerPolicy: none, clusterDNS: [10.0.0.1, 10.0.0.2]}}", nil},
		{
			"two DNS servers on Windows",
			"{amiFamily: Windows2022, kubelet: {clusterDNS: [10.0.0.1, 10.0.0.2]}}",
			[]string{"spec.kubelet.clusterDNS[]"},
		},
		{"a kubelet of no use", "{amiFamily: AL2, kubelet: [1]}", nil},
		{"pods by expression", "{kubelet: {maxPods: vcpus * 10}}", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &awsv1.EC2NodeClass{}
			if err := yaml.UnmarshalStrict([]byte(tt.spec), &c.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, paths(UnsupportedNodeClass(c))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The page lists exactly what the program knows, in the program's words.
func TestDocumentation(t *testing.T) {
	var want []string
	add := func(kind, field, message string) {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", kind, field, message))
	}
	for _, g := range nodePoolGaps() {
		add("NodePool", "`"+g.Path+"`", g.Message)
	}
	for _, g := range nodeClassGaps() {
		add("EC2NodeClass", "`"+g.Path+"`", g.Message)
	}
	page, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Accepted, without effect\n")
	if !found {
		t.Fatal("the page has no section on what is accepted without effect")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for line := range strings.Lines(section) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| Kind ") {
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/compatibility.md (-program +page):\n%s", diff)
	}
}
