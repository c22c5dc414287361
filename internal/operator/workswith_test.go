package operator

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// The dashboards of kubernetes-autoscaling-mixin select and group the metrics of nodes by these. node_name is the node's own.
func TestMetricsOfNodesHaveTheLabelsOfTheMixin(t *testing.T) {
	var has []string
	for _, key := range nodeLabels() {
		has = append(has, strings.ReplaceAll(key[strings.LastIndex(key, "/")+1:], "-", "_"))
	}
	for _, label := range []string{
		"nodepool", "region", "zone", "arch", "os", "instance_type", "capacity_type", "instance_cpu", "instance_memory", "instance_network_bandwidth",
	} {
		if !slices.Contains(has, label) {
			t.Errorf("no metric of nodes has the label %s, only %v", label, has)
		}
	}
}

// OpenCost prices a node by these labels. A node has those of its instance type and offering: each must have one value there.
func TestNodesHaveTheLabelsThatOpenCostReads(t *testing.T) {
	data, err := offline.Load("us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	region, err := offlineregion.New(data, instancetype.Settings{Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	types, err := region.Types(nil)
	if err != nil || len(types) < 500 {
		t.Fatalf("%d types (%v)", len(types), err)
	}
	single := func(sets []requirement.Set, key string) bool {
		for _, s := range sets {
			for _, r := range s.API() {
				if r.Key == key && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 && r.Values[0] != "" {
					return true
				}
			}
		}
		return false
	}
	for _, it := range types {
		for i := range it.Offerings {
			for _, key := range []string{
				corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelArchStable, corev1.LabelOSStable,
				karpv1.LabelCapacityType,
			} {
				if !single([]requirement.Set{it.Offerings[i].Requirements, it.Requirements}, key) {
					t.Fatalf("%s in %s: no label %s", it.Name, it.Offerings[i].Zone, key)
				}
			}
		}
	}
}
