package launch

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// spell writes candidates as "type:capacityType@price,...", cheapest first.
func spell(all []candidate) string {
	var out []string
	for _, c := range all {
		var offers []string
		for _, o := range c.offerings {
			offers = append(offers, fmt.Sprintf("%s@%v", o.CapacityType, o.Price))
		}
		out = append(out, c.Name+":"+strings.Join(offers, ","))
	}
	return strings.Join(out, " ")
}

func gpus(n string) corev1.ResourceList {
	return corev1.ResourceList{awsv1.ResourceNVIDIAGPU: resource.MustParse(n)}
}

func TestCandidates(t *testing.T) {
	const a = "us-east-1a"
	unavailable := offer("on-demand", 0.01, a)
	unavailable.Available = false
	od, both := requirement.In(karpv1.LabelCapacityType, "on-demand"), requirement.In(karpv1.LabelCapacityType, "spot", "on-demand")
	manyTypes := requirement.Exists(corev1.LabelInstanceTypeStable).WithMinValues(2)
	for _, tc := range []struct {
		name     string
		reqs     []requirement.Requirement
		requests corev1.ResourceList
		types    []*catalog.InstanceType
		want     string
	}{
		{"cheapest first, by name among equals", []requirement.Requirement{od}, nil, []*catalog.InstanceType{
			machine("c", nil, offer("on-demand", 0.2, a)), machine("b", nil, offer("on-demand", 0.1, a)), machine("a", nil, offer("on-demand", 0.2, a)),
		}, "b:on-demand@0.1 a:on-demand@0.2 c:on-demand@0.2"},
		{"what is not to be had is not asked for", []requirement.Requirement{od}, nil, []*catalog.InstanceType{
			machine("a", nil, unavailable), machine("b", nil, offer("on-demand", 0.1, a)),
		}, "b:on-demand@0.1"},
		{"nothing fits", []requirement.Requirement{od}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}, []*catalog.InstanceType{
			machine("a", nil, offer("on-demand", 0.1, a)),
		}, ""},
		{"a nitro sandbox is no capacity", []requirement.Requirement{od}, corev1.ResourceList{awsv1.ResourceNitroSandbox: resource.MustParse("1")}, []*catalog.InstanceType{
			machine("a", nil, offer("on-demand", 0.1, a)),
		}, "a:on-demand@0.1"},
		{"another zone", []requirement.Requirement{od, requirement.In(corev1.LabelTopologyZone, "us-east-1b")}, nil, []*catalog.InstanceType{
			machine("a", nil, offer("on-demand", 0.1, a), offer("on-demand", 0.3, "us-east-1b")),
		}, "a:on-demand@0.3"},
		{"metal and GPUs are left to those who ask", []requirement.Requirement{od}, nil, []*catalog.InstanceType{
			machine("g5.xlarge", gpus("1"), offer("on-demand", 0.1, a)), machine("m5.metal", nil, offer("on-demand", 0.1, a)), machine("m5.xlarge", nil, offer("on-demand", 0.2, a)),
		}, "m5.xlarge:on-demand@0.2"},
		{"GPUs where nothing else fits", []requirement.Requirement{od}, gpus("1"), []*catalog.InstanceType{
			machine("g5.xlarge", gpus("1"), offer("on-demand", 0.1, a)), machine("m5.xlarge", nil, offer("on-demand", 0.2, a)),
		}, "g5.xlarge:on-demand@0.1"},
		{"with minValues nothing is left out", []requirement.Requirement{both, manyTypes}, nil, []*catalog.InstanceType{
			machine("g5.xlarge", gpus("1"), offer("spot", 0.9, a)), machine("m5.xlarge", nil, offer("on-demand", 0.2, a)),
		}, "m5.xlarge:on-demand@0.2 g5.xlarge:spot@0.9"},
		{"spot dearer than the cheapest on-demand offering", []requirement.Requirement{both}, nil, []*catalog.InstanceType{
			machine("a", nil, offer("spot", 0.3, a), offer("on-demand", 0.4, a)), machine("b", nil, offer("spot", 0.1, a), offer("on-demand", 0.2, a)),
		}, "b:spot@0.1,on-demand@0.2 a:on-demand@0.4"},
		{"spot as dear as on-demand", []requirement.Requirement{both}, nil, []*catalog.InstanceType{
			machine("a", nil, offer("spot", 0.2, a), offer("on-demand", 0.2, a)),
		}, "a:spot@0.2,on-demand@0.2"},
		{"only spot is allowed", []requirement.Requirement{requirement.In(karpv1.LabelCapacityType, "spot")}, nil, []*catalog.InstanceType{
			machine("a", nil, offer("spot", 0.9, a), offer("on-demand", 0.2, a)),
		}, "a:spot@0.9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := candidates(tc.types, requirement.NewSet(tc.reqs...), tc.requests, true)
			if s := spell(got); s != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, want %q; %v", s, tc.want, err)
			}
		})
	}
}

func TestSixtyCheapestTypes(t *testing.T) {
	var types []*catalog.InstanceType
	for n := range 100 {
		types = append(types, machine(fmt.Sprintf("t%03d", n), nil, offer("on-demand", float64(100-n), "us-east-1a")))
	}
	got, err := candidates(types, requirement.Set{}, nil, true)
	if err != nil || len(got) != 60 || got[0].Name != "t099" || got[59].Name != "t040" {
		t.Errorf("%d types, %v", len(got), err)
	}
	reqs := requirement.NewSet(requirement.Exists(corev1.LabelInstanceTypeStable).WithMinValues(61))
	if _, err := candidates(types, reqs, nil, true); err == nil {
		t.Error("61 different types were asked for, 60 are left, and nobody minds")
	}
	if _, err := candidates(types, reqs, nil, false); err != nil {
		t.Errorf("best effort: %v", err)
	}
}

func TestCapacityTypeAndTenancy(t *testing.T) {
	const a = "us-east-1a"
	spot := []candidate{{machine("a", nil), []catalog.Offering{offer("spot", 0.1, a), offer("on-demand", 0.2, a)}}}
	none := []candidate{{machine("a", nil), []catalog.Offering{offer("on-demand", 0.2, a)}}}
	for _, tc := range []struct {
		name    string
		all     []candidate
		allowed requirement.Set
		want    string
	}{
		{"spot where it is allowed and there is some", spot, requirement.NewSet(requirement.In(karpv1.LabelCapacityType, "spot", "on-demand")), "spot"},
		{"spot where nothing is said", spot, requirement.Set{}, "spot"},
		{"none to be had", none, requirement.NewSet(requirement.In(karpv1.LabelCapacityType, "spot", "on-demand")), "on-demand"},
		{"not allowed", spot, requirement.NewSet(requirement.In(karpv1.LabelCapacityType, "on-demand")), "on-demand"},
	} {
		if got := capacityType(tc.all, tc.allowed); got != tc.want {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
	for name, tc := range map[string]struct {
		reqs requirement.Set
		want string
	}{
		"nothing said":   {requirement.Set{}, "default"},
		"both":           {requirement.NewSet(requirement.In(awsv1.LabelInstanceTenancy, "default", "dedicated")), "default"},
		"dedicated only": {requirement.NewSet(requirement.In(awsv1.LabelInstanceTenancy, "dedicated")), "dedicated"},
	} {
		if got := tenancy(tc.reqs); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
