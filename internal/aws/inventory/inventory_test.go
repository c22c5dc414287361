package inventory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// fakeEC2 lists types and offerings.
type fakeEC2 struct {
	types     []ec2types.InstanceTypeInfo
	offerings []ec2types.InstanceTypeOffering
	listed    int
}

func (s *fakeEC2) DescribeInstanceTypes(
	context.Context,
	*ec2.DescribeInstanceTypesInput,
	...func(*ec2.Options),
) (*ec2.DescribeInstanceTypesOutput, error) {
	s.listed++
	return &ec2.DescribeInstanceTypesOutput{InstanceTypes: s.types}, nil
}

func (s *fakeEC2) DescribeInstanceTypeOfferings(
	context.Context,
	*ec2.DescribeInstanceTypeOfferingsInput,
	...func(*ec2.Options),
) (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
	return &ec2.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: s.offerings}, nil
}

// testSource is a source with all its dependencies, in two zones.
type testSource struct {
	*inventory.Source
	ec2         *fakeEC2
	unavailable *unavailableofferings.Cache
	observed    *discoveredmemory.Memory
	shifted     string
	now         time.Time
}

func newTestSource(t testing.TB, sold ...string) *testSource {
	t.Helper()
	data, err := offline.Load()
	if err != nil {
		t.Fatal(err)
	}
	w := &testSource{ec2: &fakeEC2{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	w.unavailable, w.observed = unavailableofferings.New(clock), discoveredmemory.New(clock)
	for _, name := range sold {
		typ, ok := data.Type(name)
		if !ok {
			t.Fatalf("the catalog has no %s", name)
		}
		w.ec2.types = append(w.ec2.types, instancetype.FromOffline(typ))
		for _, zone := range []string{"us-east-1a", "us-east-1b"} {
			w.ec2.offerings = append(
				w.ec2.offerings,
				ec2types.InstanceTypeOffering{InstanceType: ec2types.InstanceType(name), Location: aws.String(zone)},
			)
		}
	}
	resolver, err := instancetype.New(instancetype.Settings{Region: "us-east-1", MemoryOverhead: 0.075, Expressions: true})
	if err != nil {
		t.Fatal(err)
	}
	w.Source = inventory.New(inventory.Config{
		EC2: w.ec2, Resolver: resolver, UnavailableOfferings: w.unavailable, DiscoveredMemory: w.observed, Now: clock,
		Prices:      pricing.New(pricing.Config{Region: "us-east-1", Fallback: data, Now: clock}),
		ZoneShifted: func(id string) bool { return id == w.shifted },
	})
	return w
}

// class is a node class with a subnet in either zone.
func class(change ...func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: types.UID("default"), ResourceVersion: "1"}}
	c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	c.Status.Subnets = []awsv1.Subnet{
		{ID: "subnet-a", Zone: "us-east-1a", ZoneID: "use1-az1"},
		{ID: "subnet-b", Zone: "us-east-1b", ZoneID: "use1-az2"},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func (w *testSource) list(t testing.TB, c *awsv1.EC2NodeClass) []*catalog.InstanceType {
	t.Helper()
	all, err := w.Types(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// available returns the available offerings of a list.
func available(all []*catalog.InstanceType) (out []string) {
	for _, it := range all {
		for _, o := range it.Offerings {
			if o.Available {
				out = append(out, strings.Join([]string{it.Name, o.CapacityType, o.Zone}, " "))
			}
		}
	}
	return out
}

func TestNodeClassesOfWindowsAndLinuxInOneClusterPayTheirOwnPrices(t *testing.T) {
	w := newTestSource(t, "m5.large", "m7g.large")
	windows := class(func(c *awsv1.EC2NodeClass) {
		c.Name, c.UID = "windows", "windows"
		c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "windows2022@latest"}}
	})
	for _, tt := range []struct {
		class *awsv1.EC2NodeClass
		want  float64
	}{{class(), 0.096}, {windows, 0.188}} {
		for _, it := range w.list(t, tt.class) {
			for _, o := range it.Offerings {
				if o.Available && it.Name == "m5.large" && o.CapacityType == "on-demand" && o.Price != tt.want {
					t.Errorf("%s of class %s costs %v in %s, want %v", it.Name, tt.class.Name, o.Price, o.Zone, tt.want)
				}
				if it.Name == "m7g.large" && tt.class == windows && o.Available {
					t.Errorf("%s runs Windows in %s", it.Name, o.Zone)
				}
			}
		}
	}
}

func TestEmptyListingsAreErrors(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(*testSource, *awsv1.EC2NodeClass)
	}{
		{"EC2 returns no types", "no instance types found", func(w *testSource, _ *awsv1.EC2NodeClass) { w.ec2.types = nil }},
		{"EC2 returns no offerings", "no instance type offerings found", func(w *testSource, _ *awsv1.EC2NodeClass) { w.ec2.offerings = nil }},
		{"the class has no subnets", "no subnets found", func(_ *testSource, c *awsv1.EC2NodeClass) { c.Status.Subnets = nil }},
		{"kubelet settings that cannot be read", "spec.kubelet", func(_ *testSource, c *awsv1.EC2NodeClass) {
			c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"podsPerCore": "many"}`)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := newTestSource(t, "m5.large"), class()
			tt.change(w, c)
			if _, err := w.Types(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFailedListingsAreNotCached(t *testing.T) {
	for _, text := range []string{"0 - 1", "2147483648", "1 / (vcpus - vcpus)"} {
		t.Run("maxPods "+text, func(t *testing.T) {
			w := newTestSource(t, "m5.large", "c5.large")
			broken := class(func(c *awsv1.EC2NodeClass) {
				c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"maxPods": "` + text + `"}`)}
			})
			for range 2 { // not cached: it fails again
				if _, err := w.Types(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "spec.kubelet.maxPods") {
					t.Errorf("got %v", err)
				}
			}
			if failing, of, err := w.FailingExpressions(t.Context(), broken); len(failing) != 2 || of != 2 || err == nil {
				t.Errorf("%q of %d fail: %v", failing, of, err)
			}
			broken.Spec.Kubelet.Raw = []byte(`{"maxPods": "vcpus * 7"}`)
			if got := w.list(t, broken)[0].Capacity.Pods().Value(); got != 14 {
				t.Errorf("corrected: %d pods, want 14", got)
			}
		})
	}
}

// Resolved types are cached as long as nothing about them has changed.
func TestOnlyTypesWithChangedAvailabilityAreResolvedAgain(t *testing.T) {
	t.Run("one type is unavailable", func(t *testing.T) {
		w, c := newTestSource(t, "m5.large", "c5.large", "r5.large"), class()
		before := w.list(t, c)
		if again := w.list(t, c); &again[0] != &before[0] {
			t.Error("the list is made anew though nothing has changed")
		}
		w.unavailable.MarkOffering(catalog.OfferingKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
		after := w.list(t, c)
		for i := range after {
			if same := after[i] == before[i]; same == (after[i].Name == "m5.large") {
				t.Errorf("%s is the same: %v", after[i].Name, same)
			}
		}
		if got := available(after); len(got) != 11 || slices.Contains(got, "m5.large spot us-east-1a") {
			t.Errorf("available: %q", got)
		}
		if got := available(before); len(got) != 12 {
			t.Errorf("the list that was handed out before has changed: %q", got)
		}
		w.now = w.now.Add(unavailableofferings.TTL)
		if got := available(w.list(t, c)); len(got) != 12 {
			t.Errorf("three minutes later: %q", got)
		}
		if w.ec2.listed != 1 {
			t.Errorf("EC2 was called %d times", w.ec2.listed)
		}
	})
	t.Run("two node classes do not hide changes from one another", func(t *testing.T) {
		w, both := newTestSource(t, "m5.large"), class()
		one := class(func(c *awsv1.EC2NodeClass) { c.Status.Subnets = c.Status.Subnets[:1] })
		w.list(t, both)
		w.list(t, one)
		w.unavailable.MarkOffering(catalog.OfferingKey{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
		if got := available(w.list(t, one)); len(got) != 1 {
			t.Errorf("one zone: %q", got)
		}
		if got := available(w.list(t, both)); len(got) != 3 {
			t.Errorf("both zones: %q", got)
		}
	})
}

// Those who query while types are being resolved get the same list: each of their own would be 17 MB.
func TestCallersAtOnceShareAList(t *testing.T) {
	w, c := newTestSource(t, "a1.large", "c5.large", "m4.large", "m5.large", "m5d.large", "r5.large"), class()
	if err := w.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	const callers = 50
	lists, start := make([][]*catalog.InstanceType, callers), make(chan struct{})
	var group sync.WaitGroup
	for i := range lists {
		group.Go(func() {
			<-start
			lists[i], _ = w.Types(t.Context(), c)
		})
	}
	close(start)
	group.Wait()
	for i, list := range lists {
		if len(list) != 6 || &list[0] != &lists[0][0] {
			t.Fatalf("caller %d has a list of its own, or none: %v", i, list)
		}
	}
}

// described is everything that resolved types show of capacity and availability.
func described(all []*catalog.InstanceType) string {
	var b strings.Builder
	for _, it := range all {
		fmt.Fprintln(&b, it.Name, it.Requirements, it.Capacity, it.Allocatable)
	}
	return b.String() + strings.Join(available(all), "\n")
}

// Everything that types depend on is part of the cache key. Each change shows at once, even if UID and version of the
// class stay the same.
func TestChangesShowInTypes(t *testing.T) {
	amis := func(c *awsv1.EC2NodeClass) { c.Status.AMIs = []awsv1.AMI{{ID: "ami-1"}} }
	for _, tt := range []struct {
		name   string
		change func(*testSource, *awsv1.EC2NodeClass)
	}{
		{"the image family", func(_ *testSource, c *awsv1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest" }},
		{"nested virtualization", func(_ *testSource, c *awsv1.EC2NodeClass) {
			c.Spec.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: "enabled"}
		}},
		{"enclaves", func(_ *testSource, c *awsv1.EC2NodeClass) {
			c.Spec.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true}
		}},
		{"network interfaces", func(_ *testSource, c *awsv1.EC2NodeClass) {
			c.Spec.NetworkInterfaces = []awsv1.NetworkInterface{{DeviceIndex: 7, InterfaceType: awsv1.InterfaceTypeInterface}}
		}},
		{"connection tracking", func(_ *testSource, c *awsv1.EC2NodeClass) { c.Spec.ConnectionTracking = &awsv1.ConnectionTracking{} }},
		{"subnets", func(_ *testSource, c *awsv1.EC2NodeClass) { c.Status.Subnets = c.Status.Subnets[1:] }},
		{"kubelet settings", func(_ *testSource, c *awsv1.EC2NodeClass) {
			c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"maxPods": 3}`)}
		}},
		{"instance store", func(_ *testSource, c *awsv1.EC2NodeClass) { c.Spec.InstanceStorePolicy = awsv1.InstanceStoreRAID0 }},
		{"a zone that is shifted away from", func(w *testSource, _ *awsv1.EC2NodeClass) { w.shifted = "use1-az1" }},
		{"memory that was seen", func(w *testSource, c *awsv1.EC2NodeClass) {
			w.observed.Note("m4.large", discoveredmemory.Images(c.Status.AMIs), resource.MustParse("7000Mi"))
		}},
		{"what is sold", func(w *testSource, _ *awsv1.EC2NodeClass) {
			w.ec2.offerings = w.ec2.offerings[1:]
			if err := w.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := newTestSource(t, "a1.large", "m4.large", "m5d.large"), class(amis)
			before := described(w.list(t, c))
			tt.change(w, c)
			if after := described(w.list(t, c)); after == before {
				t.Errorf("nothing has changed:\n%s", after)
			}
		})
	}
	t.Run("other images, other memory", func(t *testing.T) {
		w, c := newTestSource(t, "m5.large"), class(amis)
		estimate := w.list(t, c)[0].Capacity.Memory().DeepCopy()
		w.observed.Note("m5.large", discoveredmemory.Images(c.Status.AMIs), resource.MustParse("7000Mi"))
		if got := w.list(t, c)[0].Capacity.Memory(); got.Cmp(resource.MustParse("7000Mi")) != 0 {
			t.Errorf("seen: %s", got)
		}
		c.Status.AMIs[0].ID = "ami-2"
		if got := w.list(t, c)[0].Capacity.Memory(); got.Cmp(estimate) != 0 {
			t.Errorf("with another image: %s, want %s", got, &estimate)
		}
	})
}
