package instancetype_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/expression"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// withExpressions are the settings with expressions evaluated.
var withExpressions = instancetype.Settings{Region: "us-east-1", MemoryOverhead: 0.075, Expressions: true}

func podsExpression(text string) func(*instancetype.Class) {
	return func(c *instancetype.Class) { v := intstr.FromString(text); c.Kubelet.MaxPods = &v }
}

func TestExpressions(t *testing.T) {
	for _, tt := range []struct {
		name, instanceType string
		class              instancetype.Class
		pods               int64
		memory             string // withheld from pods
	}{
		{"pods by vCPU", "m5.xlarge", class(awsv1.AMIFamilyAL2023, podsExpression("vcpus * 5")), 20, "993Mi"},
		{"pods by interface", "m5.xlarge", class(awsv1.AMIFamilyAL2023, podsExpression("default_enis * ips_per_eni")), 60, "993Mi"},
		{"what the family would take", "m5.xlarge", class(awsv1.AMIFamilyBottlerocket, podsExpression("min(max_pods, 30)")), 30, "685Mi"},
		{"what Windows would take", "m5.xlarge", class(awsv1.AMIFamilyWindows2022, podsExpression("max_pods - 10")), 100, "1455Mi"},
		{"podsPerCore counts, too", "m5.xlarge", class(awsv1.AMIFamilyAL2023, podsExpression("max_pods"), podsPerCore(2)), 8, "993Mi"},
		{
			"reserved by the pods that maxPods comes to", "m5.xlarge",
			class(awsv1.AMIFamilyAL2023, podsExpression("vcpus * 5"), func(c *instancetype.Class) {
				c.Kubelet.KubeReserved = map[string]string{"memory": "max_pods * 10"}
			}), 20, "308Mi", // 200 rounded up to 208, and 100
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			it := resolved(t, withExpressions, info(t, tt.instanceType), tt.class, market())
			if pods(it) != tt.pods {
				t.Errorf("%d pods, want %d", pods(it), tt.pods)
			}
			expect(t, "overhead", overhead(it, corev1.ResourceMemory), tt.memory)
		})
	}
	t.Run("cpu 73, memory 100", func(t *testing.T) {
		c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
			c.Kubelet.KubeReserved = map[string]string{"cpu": "vcpus * 0 + 73", "memory": "vcpus * 25"}
		})
		it := resolved(t, withExpressions, info(t, "m5.xlarge"), c, market())
		expect(t, "cpu overhead", overhead(it, corev1.ResourceCPU), "80m")
		expect(t, "memory overhead", overhead(it, corev1.ResourceMemory), "212Mi") // 112 and 100
	})
}

func TestExpressionsThatFail(t *testing.T) {
	_, infos := supported(t)
	for _, text := range []string{"0 - 1", "2147483648", "1 / (vcpus - vcpus)"} {
		t.Run("maxPods "+text, func(t *testing.T) {
			_, err := resolver(t, withExpressions).ResolveAll(infos, class(awsv1.AMIFamilyAL2023, podsExpression(text)), market())
			var failed *expression.FailedError
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), "spec.kubelet.maxPods") {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("one that does not compile", func(t *testing.T) {
		_, err := resolver(t, withExpressions).ResolveAll(infos, class(awsv1.AMIFamilyAL2023, podsExpression("cores * 8")), market())
		var invalid *expression.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a type for which one fails is left out, the others are not", func(t *testing.T) {
		types, err := resolver(
			t,
			withExpressions,
		).ResolveAll(
			infos,
			class(awsv1.AMIFamilyAL2023, podsExpression("100 / (vcpus - 4)")),
			market(),
		)
		if err != nil {
			t.Fatal(err)
		}
		if len(types) != len(infos) {
			t.Errorf("%d of %d types are listed", len(types), len(infos))
		}
		for _, it := range types {
			cpus, _ := it.Requirements.Get(awsv1.LabelInstanceCPU).Single()
			if cpus == "4" && (len(offered(it)) > 0 || !strings.Contains(it.Offerings[0].UnavailableMessage, "division by zero")) {
				t.Errorf("%s: %q, %s", it.Name, offered(it), it.Offerings[0].UnavailableMessage)
			}
			if it.Name == "m5.2xlarge" && (len(offered(it)) != 4 || pods(it) != 25) {
				t.Errorf("%s: %q, %d pods", it.Name, offered(it), pods(it))
			}
		}
	})
}

// A Windows node class cannot use an instance type without x86.
func TestWindowsOnArmIsUnavailable(t *testing.T) {
	t.Run("no OS value, cannot match", func(t *testing.T) {
		it := resolve(t, "m6g.large", class(awsv1.AMIFamilyWindows2022))
		if got := offered(it); len(got) > 0 {
			t.Errorf("available: %q", got)
		}
		for _, name := range []string{"windows", "linux"} {
			if it.Requirements.Overlaps(requirement.NewSet(requirement.In(corev1.LabelOSStable, name))) {
				t.Errorf("matches %s", name)
			}
		}
	})
}

func TestLocalZone(t *testing.T) {
	t.Run("a subnet in a local zone", func(t *testing.T) {
		const zone = "us-east-1-bos-1a"
		c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
			c.Subnets = append(c.Subnets, awsv1.Subnet{ID: "subnet-4", Zone: zone, ZoneID: "use1-bos1-az1"})
		})
		m := market()
		m.Zones = append(m.Zones, zone)
		it := resolved(t, settings, info(t, "m5.large"), c, m)
		if got := offered(it); !slices.Contains(got, "on-demand "+zone) || !slices.Contains(got, "spot "+zone) {
			t.Errorf("available: %q", got)
		}
		if !it.Requirements.Get(corev1.LabelTopologyZone).Has(zone) || !it.Requirements.Get(awsv1.LabelZoneID).Has("use1-bos1-az1") {
			t.Error("the type is not in the zone")
		}
	})
}

func inGroup(strategy string, partitions int) func(*instancetype.Class) {
	return func(c *instancetype.Class) {
		c.Group = placement.Group{ID: "pg-1", Strategy: strategy, Partitions: partitions}
	}
}

func TestPlacementGroups(t *testing.T) {
	for _, tt := range []struct {
		name, instanceType, strategy string
		partitions                   int
		offerings                    int
		why                          string
	}{
		{"close together", "m5.large", placement.Cluster, 0, 6, ""},
		{"close together, burstable", "t3.large", placement.Cluster, 0, 6, "it cannot be in a placement group of strategy cluster"},
		{"spread", "t3.large", placement.Spread, 0, 6, ""},
		{"partitions", "m5.large", placement.Partition, 7, 42, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			it := resolve(t, tt.instanceType, class(awsv1.AMIFamilyAL2023, inGroup(tt.strategy, tt.partitions)))
			if len(it.Offerings) != tt.offerings || it.Offerings[0].UnavailableMessage != tt.why || it.Offerings[0].Available != (tt.why == "") {
				t.Errorf("%d offerings, the first %v (%q)", len(it.Offerings), it.Offerings[0].Available, it.Offerings[0].UnavailableMessage)
			}
			got := labels(it.Requirements)
			wanted := absent
			if tt.partitions > 0 {
				wanted = "1,2,3,4,5,6,7"
			}
			if got[awsv1.LabelPlacementGroupID] != "pg-1" || got[awsv1.LabelPlacementGroupPartition] != wanted {
				t.Errorf("group %q, partitions %q", got[awsv1.LabelPlacementGroupID], got[awsv1.LabelPlacementGroupPartition])
			}
		})
	}
	t.Run("a partition without capacity leaves the others", func(t *testing.T) {
		m := market()
		m.Unavailable = func(p instancetype.PartitionedOffering) bool { return p.Partition == "2" }
		m.Remaining = func(string) int { return 3 }
		c := class(awsv1.AMIFamilyAL2023, inGroup(placement.Partition, 3), func(c *instancetype.Class) {
			c.Reservations = []awsv1.CapacityReservation{reservation("cr-1", "us-east-1a")}
		})
		it := resolved(t, settings, info(t, "m5.large"), c, m)
		for _, o := range it.Offerings {
			partition, ok := o.Requirements.Get(awsv1.LabelPlacementGroupPartition).Single()
			reachable := o.Zone != "us-east-1c"
			if !ok || o.Available != (reachable && partition != "2") {
				t.Errorf("%s in %s, partition %q: available %v (%s)", o.CapacityType, o.Zone, partition, o.Available, o.UnavailableMessage)
			}
		}
	})
}

// Half a GPU is a GPU to the pods that request one.
func TestFractionalGPU(t *testing.T) {
	i := info(t, "g4dn.xlarge")
	i.GpuInfo.Gpus[0].Count, i.GpuInfo.Gpus[0].LogicalGpuCount, i.GpuInfo.Gpus[0].GpuPartitionSize = aws.Int32(
		0,
	), aws.Int32(
		1,
	), aws.Float64(
		0.5,
	)
	it := resolved(t, settings, i, class(awsv1.AMIFamilyAL2023), market())
	gpus := it.Allocatable[awsv1.ResourceNVIDIAGPU]
	if label, _ := it.Requirements.Get(awsv1.LabelInstanceGPUCount).Single(); gpus.Value() != 1 || label != "1" {
		t.Errorf("%d GPUs, label %q", gpus.Value(), label)
	}
}

// Every unavailable offering has a reason, and no other has.
func TestUnavailableReasons(t *testing.T) {
	_, infos := supported(t)
	m := market()
	m.Unavailable = func(p instancetype.PartitionedOffering) bool {
		return p.InstanceType == "m5.large" && p.CapacityType == "spot"
	}
	types, err := resolver(t, settings).ResolveAll(infos, class(awsv1.AMIFamilyAL2023), m)
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for _, it := range types {
		for _, o := range it.Offerings {
			if o.Available != (o.UnavailableMessage == "") {
				t.Errorf("%s %s in %s: available %v, why %q", it.Name, o.CapacityType, o.Zone, o.Available, o.UnavailableMessage)
			}
			why[it.Name+" "+o.CapacityType+" "+o.Zone] = o.UnavailableMessage
		}
	}
	for place, want := range map[string]string{
		"m5.large on-demand us-east-1a": "",
		"m5.large on-demand us-east-1c": instancetype.NoSubnet,
		"m5.large spot us-east-1a":      instancetype.NoCapacity,
		"a1.large on-demand us-east-1a": "AL2023 does not run on its processor",
	} {
		if why[place] != want {
			t.Errorf("%s: %q, want %q", place, why[place], want)
		}
	}
}

// A reservation is paid for, but its price is never zero, so that larger types are not preferred.
func TestReservedOfferingWithoutAPrice(t *testing.T) {
	m := market()
	m.OnDemand = func(string) (float64, bool) { return 0, false }
	m.Remaining = func(string) int { return 1 }
	c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
		c.Reservations = []awsv1.CapacityReservation{reservation("cr-1", "us-east-1a")}
	})
	it := resolved(t, settings, info(t, "m5.large"), c, m)
	i := slices.IndexFunc(it.Offerings, func(o catalog.Offering) bool { return o.CapacityType == karpv1.CapacityTypeReserved })
	if o := it.Offerings[i]; !o.Available || o.Price <= 0 || o.Price > 1e-6 {
		t.Errorf("%+v", o)
	}
}
