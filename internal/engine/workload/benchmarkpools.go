package workload

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// poolManifest is the part of a NodePool that benchmarks set. The type of the API would write defaults, too.
type poolManifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   named    `json:"metadata"`
	Spec       poolSpec `json:"spec"`
}

type named struct {
	Name string `json:"name"`
}

type poolSpec struct {
	Weight   int          `json:"weight,omitempty"`
	Template poolTemplate `json:"template"`
}

type poolTemplate struct {
	Spec poolTemplateSpec `json:"spec"`
}

type poolTemplateSpec struct {
	NodeClassRef karpv1.NodeClassReference `json:"nodeClassRef"`
	Requirements []poolRequirement         `json:"requirements"`
	Taints       []corev1.Taint            `json:"taints,omitempty"`
}

type poolRequirement struct {
	Key      string                      `json:"key"`
	Operator corev1.NodeSelectorOperator `json:"operator"`
	Values   []string                    `json:"values"`
}

func in(key string, values ...string) poolRequirement {
	return poolRequirement{key, corev1.NodeSelectorOpIn, values}
}

// newerThan requires instance types of a later generation.
func newerThan(generation int) poolRequirement {
	return poolRequirement{awsv1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, []string{strconv.Itoa(generation)}}
}

// poolOf returns a NodePool for Linux.
func poolOf(name string, weight int, requirements ...poolRequirement) *poolManifest {
	return &poolManifest{
		APIVersion: karpv1.GroupVersion.String(), Kind: "NodePool", Metadata: named{name},
		Spec: poolSpec{Weight: weight, Template: poolTemplate{poolTemplateSpec{
			NodeClassRef: karpv1.NodeClassReference{Group: "bench.example", Kind: "BenchNodeClass", Name: "default"},
			Requirements: append(requirements, in(corev1.LabelOSStable, string(corev1.Linux))),
		}}},
	}
}

// tainted adds a taint, which pods must tolerate.
func (p *poolManifest) tainted(key, value string) *poolManifest {
	p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
	return p
}

// pools returns the NodePools of a benchmark.
func (r Benchmark) pools() ([]any, error) {
	general := []poolRequirement{in(awsv1.LabelInstanceCategory, "c", "m", "r"), newerThan(2)}
	switch {
	case r.Kind == "multipool" && r.Pool == "":
		return multiPools(), nil
	case r.Kind == "multipool":
		return nil, fmt.Errorf("benchmark %s has pools of its own, and pool %q was requested", r.Kind, r.Pool)
	case r.Pool == "open":
		return []any{poolOf("default", 0)}, nil
	case r.Pool == "general":
		return []any{poolOf("default", 0, general...)}, nil
	case r.Pool == "ondemand":
		return []any{poolOf("default", 0, append(general, in(karpv1.LabelCapacityType, karpv1.CapacityTypeOnDemand))...)}, nil
	}
	return nil, fmt.Errorf("no pool has the name %q: want open, general or ondemand", r.Pool)
}

// multiPools are five pools with weights and taints, over both architectures and capacity types. They need EC2's
// instance types.
func multiPools() []any {
	categories := in(awsv1.LabelInstanceCategory, "c", "m", "r")
	capacity := func(types ...string) poolRequirement { return in(karpv1.LabelCapacityType, types...) }
	arch := func(names ...string) poolRequirement { return in(corev1.LabelArchStable, names...) }
	const spot, onDemand = karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand
	return []any{
		poolOf("arm-spot", 100, categories, newerThan(5), arch("arm64"), capacity(spot)),
		poolOf("amd-spot", 50, categories, newerThan(4), arch("amd64"), capacity(spot)),
		poolOf("on-demand", 10, categories, newerThan(4), arch("amd64", "arm64"), capacity(onDemand)),
		poolOf("db", 1, in(awsv1.LabelInstanceCategory, "r"), newerThan(4), capacity(onDemand)).tainted("dedicated", "db"),
		poolOf("gpu", 1, in(awsv1.LabelInstanceCategory, "g"), arch("amd64"), capacity(spot, onDemand)).tainted("nvidia.com/gpu", "true"),
	}
}

// CatalogFile is a catalog of instance types in the format that dovetail plan --catalog reads.
type CatalogFile struct {
	Name  string        `json:"name"`
	Zones []string      `json:"zones"`
	Types []CatalogType `json:"types"`
}

// CatalogType is an instance type of a CatalogFile.
type CatalogType struct {
	Name        string            `json:"name"`
	Arch        string            `json:"arch"`
	OS          []string          `json:"os"`
	Capacity    map[string]string `json:"capacity"`
	Allocatable map[string]string `json:"allocatable"`
	Labels      map[string]string `json:"labels"`
	Offerings   []CatalogOffering `json:"offerings"`
}

// CatalogOffering is an offering of a CatalogType. Its price is in $/h.
type CatalogOffering struct {
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
}

// LinearCatalog is the synthetic catalog that planners of this field are measured with: type i has i CPUs, 2i GiB and
// 10i pods at a linear price, in three zones, the last without spot.
func LinearCatalog(types int) *CatalogFile {
	const reservedMilliCPU, reservedMebi = 100, 10
	c := &CatalogFile{Name: fmt.Sprintf("fake-%d", types), Zones: BenchmarkZones()}
	for i := 1; i <= types; i++ {
		pods := strconv.Itoa(10 * i)
		t := CatalogType{
			Name: fmt.Sprintf("fake-%03d", i), Arch: "amd64", OS: []string{string(corev1.Linux), string(corev1.Windows)},
			Capacity: map[string]string{"cpu": strconv.Itoa(i), "memory": fmt.Sprintf("%dGi", 2*i), "pods": pods},
			Allocatable: map[string]string{
				"cpu": fmt.Sprintf("%dm", 1000*i-reservedMilliCPU), "memory": fmt.Sprintf("%dMi", 2048*i-reservedMebi), "pods": pods,
			},
			Labels: map[string]string{"integer": strconv.Itoa(i), "size": "small"},
		}
		if i > 4 {
			t.Labels["size"], t.Labels["special"] = "large", "optional"
		}
		price := 0.1*float64(i) + 0.1*float64(2*i<<30)/1e9
		for z, zone := range c.Zones {
			if z < len(c.Zones)-1 {
				t.Offerings = append(t.Offerings, CatalogOffering{zone, karpv1.CapacityTypeSpot, price})
			}
			t.Offerings = append(t.Offerings, CatalogOffering{zone, karpv1.CapacityTypeOnDemand, price})
		}
		c.Types = append(c.Types, t)
	}
	return c
}
