package launch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// describeCandidates writes candidates as "type:capacityType@price,...", cheapest first.
func describeCandidates(all []candidate) string {
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
	unavailable := offering("on-demand", 0.01, a)
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
			instanceType("c", nil, offering("on-demand", 0.2, a)), instanceType("b", nil, offering("on-demand", 0.1, a)), instanceType("a", nil,
				offering("on-demand", 0.2, a)),
		}, "b:on-demand@0.1 a:on-demand@0.2 c:on-demand@0.2"},
		{"unavailable offerings are not requested", []requirement.Requirement{od}, nil, []*catalog.InstanceType{
			instanceType("a", nil, unavailable), instanceType("b", nil, offering("on-demand", 0.1, a)),
		}, "b:on-demand@0.1"},
		{"nothing fits", []requirement.Requirement{od}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}, []*catalog.InstanceType{
			instanceType("a", nil, offering("on-demand", 0.1, a)),
		}, ""},
		{"another zone", []requirement.Requirement{od, requirement.In(corev1.LabelTopologyZone, "us-east-1b")}, nil, []*catalog.InstanceType{
			instanceType("a", nil, offering("on-demand", 0.1, a), offering("on-demand", 0.3, "us-east-1b")),
		}, "a:on-demand@0.3"},
		{"bare metal and GPUs only when nothing else fits", []requirement.Requirement{od}, nil, []*catalog.InstanceType{
			instanceType("g5.xlarge", gpus("1"), offering("on-demand", 0.1, a)), instanceType("m5.metal", nil, offering("on-demand", 0.1, a)),
			instanceType("m5.xlarge", nil, offering("on-demand", 0.2, a)),
		}, "m5.xlarge:on-demand@0.2"},
		{"GPUs where nothing else fits", []requirement.Requirement{od}, gpus("1"), []*catalog.InstanceType{
			instanceType("g5.xlarge", gpus("1"), offering("on-demand", 0.1, a)), instanceType("m5.xlarge", nil, offering("on-demand", 0.2, a)),
		}, "g5.xlarge:on-demand@0.1"},
		{"with minValues nothing is left out", []requirement.Requirement{both, manyTypes}, nil, []*catalog.InstanceType{
			instanceType("g5.xlarge", gpus("1"), offering("spot", 0.9, a)), instanceType("m5.xlarge", nil, offering("on-demand", 0.2, a)),
		}, "m5.xlarge:on-demand@0.2 g5.xlarge:spot@0.9"},
		{"spot dearer than the cheapest on-demand offering", []requirement.Requirement{both}, nil, []*catalog.InstanceType{
			instanceType("a", nil, offering("spot", 0.3, a), offering("on-demand", 0.4, a)), instanceType("b", nil, offering("spot", 0.1, a),
				offering("on-demand", 0.2, a)),
		}, "b:spot@0.1,on-demand@0.2 a:on-demand@0.4"},
		{"a type with a dear spot offering keeps the other", []requirement.Requirement{both}, nil, []*catalog.InstanceType{
			instanceType("a", nil, offering("spot", 0.5, a), offering("on-demand", 0.4, a)),
		}, "a:on-demand@0.4"},
		{
			"what an overlay adds to an offering counts",
			[]requirement.Requirement{od},
			corev1.ResourceList{"example.com/x": resource.MustParse("1")},
			[]*catalog.InstanceType{
				instanceType("a", nil, with("example.com/x", offering("on-demand", 0.1, a))),
			},
			"a:on-demand@0.1",
		},
		{
			"but not for another zone's, or one that is not to be had",
			[]requirement.Requirement{od, requirement.In(corev1.LabelTopologyZone, a)},
			corev1.ResourceList{"example.com/x": resource.MustParse("1")},
			[]*catalog.InstanceType{
				instanceType("a", nil, with("example.com/x", offering("on-demand", 0.1, "us-east-1b")), offering("on-demand", 0.1, a)),
				instanceType("b", nil, with("example.com/x", unavailable), offering("on-demand", 0.1, a)),
			},
			"",
		},
		{"spot as dear as on-demand", []requirement.Requirement{both}, nil, []*catalog.InstanceType{
			instanceType("a", nil, offering("spot", 0.2, a), offering("on-demand", 0.2, a)),
		}, "a:spot@0.2,on-demand@0.2"},
		{"only spot is allowed", []requirement.Requirement{requirement.In(karpv1.LabelCapacityType, "spot")}, nil, []*catalog.InstanceType{
			instanceType("a", nil, offering("spot", 0.9, a), offering("on-demand", 0.2, a)),
		}, "a:spot@0.9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := candidates(tc.types, requirement.NewSet(tc.reqs...), tc.requests, true)
			if s := describeCandidates(got); s != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, want %q; %v", s, tc.want, err)
			}
		})
	}
}

// with is an offering with a node that has one of a resource.
func with(name corev1.ResourceName, o catalog.Offering) catalog.Offering {
	o.Allocatable = corev1.ResourceList{name: resource.MustParse("1")}
	return o
}

func TestCheapestTypesAreLaunched(t *testing.T) {
	var types []*catalog.InstanceType
	for n := range 100 {
		types = append(types, instanceType(fmt.Sprintf("t%03d", n), nil, offering("on-demand", float64(100-n), "us-east-1a")))
	}
	reqs := requirement.NewSet(requirement.Exists(corev1.LabelInstanceTypeStable).WithMinValues(61))
	t.Run("a hundred fit, the sixty cheapest are requested", func(t *testing.T) {
		got, err := candidates(types, requirement.Set{}, nil, true)
		if err != nil || len(got) != 60 || got[0].Name != "t099" || got[59].Name != "t040" {
			t.Errorf("%d types, %v", len(got), err)
		}
	})
	t.Run("61 different ones are needed, and the policy is strict", func(t *testing.T) {
		if _, err := candidates(types, reqs, nil, true); err == nil {
			t.Error("60 are left, and nobody minds")
		}
		l := newFakeEC2().start(newOrder()).Launcher
		l.cfg.StrictMinValues = true
		o := newOrder(types...)
		sixtyOne := 61
		o.Claim.Spec.Requirements = append(
			o.Claim.Spec.Requirements,
			karpv1.Requirement{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: &sixtyOne},
		)
		_, err := l.Launch(t.Context(), o, nil)
		var scarce *cloudprovider.InsufficientCapacityError
		if !errors.As(err, &scarce) {
			t.Errorf("want insufficient capacity, got %v", err)
		}
	})
	t.Run("best effort", func(t *testing.T) {
		if got, err := candidates(types, reqs, nil, false); err != nil || len(got) != 60 {
			t.Errorf("%d types, %v", len(got), err)
		}
	})
}

func TestCapacityTypeAndTenancy(t *testing.T) {
	const a = "us-east-1a"
	spot := []candidate{{instanceType("a", nil), []catalog.Offering{offering("spot", 0.1, a), offering("on-demand", 0.2, a)}}}
	none := []candidate{{instanceType("a", nil), []catalog.Offering{offering("on-demand", 0.2, a)}}}
	for _, tc := range []struct {
		name    string
		all     []candidate
		allowed requirement.Set
		want    string
	}{
		{
			"spot where it is allowed and there is some", spot, requirement.NewSet(requirement.In(karpv1.LabelCapacityType, "spot", "on-demand")),
			"spot",
		},
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
