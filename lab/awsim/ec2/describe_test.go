package ec2_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
)

func allTypes(t *testing.T, a *account, filters ...types.Filter) (names []string, pages int) {
	t.Helper()
	p := awsec2.NewDescribeInstanceTypesPaginator(a, &awsec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100), Filters: filters})
	for p.HasMorePages() {
		pages++
		for _, i := range must(p.NextPage(t.Context()))(t).InstanceTypes {
			names = append(names, string(i.InstanceType))
		}
	}
	return names, pages
}

func TestInstanceTypesPage(t *testing.T) {
	a := open(t)
	names, pages := allTypes(t, a)
	if len(names) <= 800 || pages != (len(names)+99)/100 {
		t.Errorf("%d types on %d pages", len(names), pages)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("types are not sorted or not unique")
	}
}

func TestInstanceTypeFilters(t *testing.T) {
	a := open(t)
	catalog := must(offline.Load())(t)
	region := func(keep func(offline.Type) bool) (want []string) {
		for _, typ := range catalog.Types() {
			_, onDemand := catalog.OnDemand("us-east-1", typ.Name)
			_, spot := catalog.Spot("us-east-1", typ.Name)
			if (onDemand || spot) && catalog.ZoneIDs("us-east-1", typ.Name) != nil && keep(typ) {
				want = append(want, typ.Name)
			}
		}
		return want
	}
	for name, c := range map[string]struct {
		filters []types.Filter
		keep    func(offline.Type) bool
	}{
		"what a node autoscaler asks for": {
			[]types.Filter{filter("supported-virtualization-type", "hvm"), filter("processor-info.supported-architecture", "x86_64", "arm64")},
			func(typ offline.Type) bool {
				return slices.Contains(typ.Architectures, "x86_64") || slices.Contains(typ.Architectures, "arm64")
			},
		},
		"bare metal": {[]types.Filter{filter("bare-metal", "true")}, func(typ offline.Type) bool { return typ.BareMetal }},
		"wildcard": {[]types.Filter{filter("instance-type", "m5.*")}, func(typ offline.Type) bool {
			return strings.HasPrefix(typ.Name,
				"m5.")
		}},
		"one character": {
			[]types.Filter{filter("instance-type", "?5.large")},
			func(typ offline.Type) bool { return len(typ.Name) == 8 && strings.HasSuffix(typ.Name, "5.large") },
		},
		"values are or": {
			[]types.Filter{filter("vcpu-info.default-vcpus", "2", "4")},
			func(typ offline.Type) bool { return typ.VCPUs == 2 || typ.VCPUs == 4 },
		},
		"filters are and": {
			[]types.Filter{filter("hypervisor", "xen"), filter("burstable-performance-supported", "true")},
			func(typ offline.Type) bool { return typ.Hypervisor == "xen" && typ.Burstable },
		},
		"nothing": {[]types.Filter{filter("instance-type", "m5")}, func(offline.Type) bool { return false }},
		"memory": {
			[]types.Filter{filter("memory-info.size-in-mib", "8192")},
			func(typ offline.Type) bool { return typ.MemoryMiB == 8192 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := allTypes(t, a, c.filters...)
			if want := region(c.keep); !slices.Equal(got, want) {
				t.Errorf("%d types %v\nwant %d %v", len(got), got, len(want), want)
			}
		})
	}
}

// TestInstanceTypeFields reads a GPU type with local disks as an autoscaler does.
func TestInstanceTypeFields(t *testing.T) {
	a := open(t)
	out := must(
		a.DescribeInstanceTypes(t.Context(), &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"g5.12xlarge"}}),
	)(
		t,
	)
	i := out.InstanceTypes[0]
	got := fmt.Sprint(
		*i.VCpuInfo.DefaultVCpus, *i.MemoryInfo.SizeInMiB, i.ProcessorInfo.SupportedArchitectures, i.Hypervisor, i.SupportedUsageClasses,
		*i.GpuInfo.Gpus[0].Name, *i.GpuInfo.Gpus[0].Manufacturer, *i.GpuInfo.Gpus[0].Count, *i.InstanceStorageInfo.TotalSizeInGB,
		i.InstanceStorageInfo.NvmeSupport, *i.NetworkInfo.Ipv4AddressesPerInterface, *i.NetworkInfo.DefaultNetworkCardIndex,
		*i.NetworkInfo.NetworkCards[0].MaximumNetworkInterfaces, *i.NetworkInfo.EfaInfo.MaximumEfaInterfaces,
	)
	want := "48 196608 [x86_64]nitro[on-demand spot]A10GNVIDIA4 3800required50 0 15 1"
	if got != want {
		t.Errorf("g5.12xlarge: %s\nwant %s", got, want)
	}
}

func TestOfferings(t *testing.T) {
	a := open(t)
	zones := map[string]int{}
	p := awsec2.NewDescribeInstanceTypeOfferingsPaginator(a, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
	})
	for p.HasMorePages() {
		for _, o := range must(p.NextPage(t.Context()))(t).InstanceTypeOfferings {
			zones[string(o.InstanceType)]++
		}
	}
	names, _ := allTypes(t, a)
	scarce := 0
	for _, name := range names {
		switch zones[name] {
		case 2:
			scarce++
		case 3:
		default:
			t.Errorf("%s is offered in %d zones", name, zones[name])
		}
	}
	if share := float64(scarce) / float64(len(names)); share < 0.03 || share > 0.2 {
		t.Errorf("%d of %d types lack a zone", scarce, len(names))
	}
}

func TestSpotPrices(t *testing.T) {
	a := open(t)
	catalog := must(offline.Load())(t)
	quotes := 0
	p := awsec2.NewDescribeSpotPriceHistoryPaginator(a, &awsec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(a.Clock.Now()),
	})
	for p.HasMorePages() {
		for _, q := range must(p.NextPage(t.Context()))(t).SpotPriceHistory {
			quotes++
			average, _ := catalog.Spot("us-east-1", string(q.InstanceType))
			price := must(strconv.ParseFloat(*q.SpotPrice, 64))(t)
			if price < 0.85*average-1e-4 || price > 1.15*average+1e-4 {
				t.Errorf("%s in %s: %g, regional average %g", q.InstanceType, *q.AvailabilityZone, price, average)
			}
		}
	}
	if quotes < 2000 {
		t.Errorf("%d quotes", quotes)
	}
}

func TestSpotPricesOfWindowsHaveItsLicense(t *testing.T) {
	a := open(t)
	price := func(product string) float64 {
		out := must(a.DescribeSpotPriceHistory(t.Context(), &awsec2.DescribeSpotPriceHistoryInput{
			InstanceTypes: []types.InstanceType{"m5.large"}, AvailabilityZone: aws.String("us-east-1a"),
			ProductDescriptions: []string{product}, StartTime: aws.Time(a.Clock.Now()),
		}))(t)
		return must(strconv.ParseFloat(*out.SpotPriceHistory[0].SpotPrice, 64))(t)
	}
	if license := price("Windows") - price("Linux/UNIX"); math.Abs(license-0.092) > 1e-6 {
		t.Errorf("Windows costs %v more than Linux, want 0.092", license)
	}
}

func TestInstanceTypesHaveVolumeLimits(t *testing.T) {
	a := open(t)
	out := must(
		a.DescribeInstanceTypes(t.Context(), &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m6i.2xlarge"}}),
	)(
		t,
	)
	ebs := out.InstanceTypes[0].EbsInfo
	if aws.ToInt32(ebs.MaximumEbsAttachments) != 27 || ebs.AttachmentLimitType != types.AttachmentLimitTypeShared {
		t.Errorf("m6i.2xlarge takes %d volumes (%s), want 27, shared", aws.ToInt32(ebs.MaximumEbsAttachments), ebs.AttachmentLimitType)
	}
}

func TestNetworkFilters(t *testing.T) {
	a := open(t)
	for name, c := range map[string]struct {
		filters []types.Filter
		want    int
	}{
		"by id":              {[]types.Filter{filter("subnet-id", a.subnets[0], a.subnets[1])}, 2},
		"by tag":             {[]types.Filter{filter("tag:Name", "us-east-1b")}, 1},
		"by tag and tag":     {[]types.Filter{filter("tag:Name", "us-east-1b"), filter("tag:tier", "public")}, 0},
		"by tag key":         {[]types.Filter{filter("tag-key", "tier")}, 3},
		"by value wildcard":  {[]types.Filter{filter("tag:Name", "us-*")}, 3},
		"by zone id":         {[]types.Filter{filter("availability-zone-id", "use1-az3")}, 1},
		"wildcard, escaped":  {[]types.Filter{filter("tag:Name", `us-\*`)}, 0},
		"by vpc and by zone": {[]types.Filter{filter("vpc-id", a.vpc), filter("availability-zone", "us-east-1a")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			out := must(a.DescribeSubnets(t.Context(), &awsec2.DescribeSubnetsInput{Filters: c.filters, MaxResults: aws.Int32(500)}))(t)
			if len(out.Subnets) != c.want {
				t.Errorf("%d subnets, want %d", len(out.Subnets), c.want)
			}
		})
	}
	groups := must(
		a.DescribeSecurityGroups(
			t.Context(),
			&awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{filter("group-name", "nodes", "default")}},
		),
	)(
		t,
	)
	if len(groups.SecurityGroups) != 2 {
		t.Errorf("%d security groups by name, want the one made and the VPC's default", len(groups.SecurityGroups))
	}
}

func TestImages(t *testing.T) {
	a := open(t)
	ask := func(in awsec2.DescribeImagesInput) int {
		return len(must(a.DescribeImages(t.Context(), &in))(t).Images)
	}
	named := []types.Filter{filter("name", "amazon-eks-node-al2023-x86_64-standard-1.36-*")}
	if n := ask(awsec2.DescribeImagesInput{Filters: named, Owners: []string{"self", "amazon"}}); n != 2 {
		t.Errorf("%d images of a release line, want 2", n)
	}
	if n := ask(awsec2.DescribeImagesInput{Filters: named, Owners: []string{"self"}}); n != 0 {
		t.Errorf("%d own images, want none", n)
	}
	out := must(a.DescribeImages(t.Context(), &awsec2.DescribeImagesInput{ImageIds: []string{a.arm}}))(t)
	img := out.Images[0]
	created, err := time.Parse(time.RFC3339, *img.CreationDate)
	if img.Architecture != types.ArchitectureValuesArm64 || err != nil || created.Year() != 2026 || *img.ImageOwnerAlias != "amazon" {
		t.Errorf("image: %s, created %s, of %s", img.Architecture, *img.CreationDate, *img.ImageOwnerAlias)
	}

	a.Sim.EC2().DeprecateImage(a.x86)
	a.Clock.Advance(time.Second)
	if n := ask(awsec2.DescribeImagesInput{Filters: named}); n != 1 {
		t.Errorf("%d images with one deprecated, want 1", n)
	}
	if n := ask(awsec2.DescribeImagesInput{Filters: named, IncludeDeprecated: aws.Bool(true)}); n != 2 {
		t.Errorf("%d images, deprecated included, want 2", n)
	}
}

// TestImageParameters checks that each SSM parameter leads to an image of the kind it names.
func TestImageParameters(t *testing.T) {
	values := image.Parameters("us-east-1")
	images := map[string]image.Image{}
	for _, img := range image.List("us-east-1") {
		if other, taken := images[img.ID]; taken {
			t.Errorf("%s and %s have the ID %s", img.Name, other.Name, img.ID)
		}
		images[img.ID] = img
	}
	for parameter, name := range map[string]string{
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id":                                     "amazon-eks-node-al2023-x86_64-standard-1.36-v20260715",
		"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.33-v20260610/image_id": "amazon-eks-node-al2023-arm64-nvidia-1.33-v20260610",
		"/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id":                                                    "amazon-eks-gpu-node-1.32-v20260715",
		"/aws/service/bottlerocket/aws-k8s-1.36-nvidia/arm64/latest/image_id":                                                            "bottlerocket-aws-k8s-1.36-nvidia-arm64-v1.59.0-a7e0c4d9",
		"/aws/service/bottlerocket/aws-k8s-1.31/x86_64/1.58.0/image_id":                                                                  "bottlerocket-aws-k8s-1.31-x86_64-v1.58.0-3d1ff8a2",
		"/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.35/image_id":                                   "Windows_Server-2025-English-Core-EKS_Optimized-1.35-2026.07.15",
		"/aws/service/eks/optimized-ami/1.33/amazon-linux-2/recommended/image_id":                                                        "",
		"/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.34/image_id":                                   "",
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/neuron/recommended/image_id":                                        "",
	} {
		if got := images[values[parameter]].Name; got != name {
			t.Errorf("%s leads to %q, want %q", parameter, got, name)
		}
	}
}

// TestInstancesPageWhileTheyCome reads a list in pages of five while instances come and go.
func TestInstancesPageWhileTheyCome(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	ids := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 12, types.InstanceTypeM5Large)))(t))
	a.Clock.Advance(time.Minute)
	var got []string
	p := awsec2.NewDescribeInstancesPaginator(a, &awsec2.DescribeInstancesInput{
		MaxResults: aws.Int32(5), Filters: []types.Filter{filter("tag:pool", "general"), filter("instance-state-name", "running")},
	})
	for p.HasMorePages() {
		for _, r := range must(p.NextPage(t.Context()))(t).Reservations {
			for _, i := range r.Instances {
				got = append(got, *i.InstanceId)
			}
		}
		if len(got) == 5 {
			must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{ids[4]}}))(t)
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("pages gave %v\nlaunched   %v", got, ids)
	}
}

func TestInstanceStatus(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t)
	a.Clock.Advance(time.Second)
	status := func() (list []types.InstanceStatus) {
		return must(a.DescribeInstanceStatus(t.Context(), &awsec2.DescribeInstanceStatusInput{}))(t).InstanceStatuses
	}
	if n := len(status()); n != 0 {
		t.Errorf("%d statuses while pending, want none", n)
	}
	a.Clock.Advance(2 * time.Second)
	if got := status()[0].SystemStatus.Status; got != types.SummaryStatusInitializing {
		t.Errorf("just running: %s", got)
	}
	a.Clock.Advance(time.Minute)
	if got := status()[0]; got.InstanceStatus.Status != types.SummaryStatusOk ||
		got.InstanceStatus.Details[0].Status != types.StatusTypePassed {
		t.Errorf("a minute later: %+v", got.InstanceStatus)
	}
	impaired := must(
		a.DescribeInstanceStatus(
			t.Context(),
			&awsec2.DescribeInstanceStatusInput{Filters: []types.Filter{filter("instance-status.status", "impaired")}},
		),
	)(
		t,
	)
	if n := len(impaired.InstanceStatuses); n != 0 {
		t.Errorf("%d impaired", n)
	}
}

func TestTags(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t))[0]
	a.Clock.Advance(time.Second)
	must(
		a.CreateTags(t.Context(), &awsec2.CreateTagsInput{Resources: []string{id, a.subnets[0]}, Tags: tags("Name", "x", "pool", "other")}),
	)(
		t,
	)
	i := a.describe(t, filter("tag:Name", "x"))[0]
	if tagValue(i.Tags, "pool") != "other" {
		t.Errorf("tags %v", i.Tags)
	}
	must(a.DeleteTags(t.Context(), &awsec2.DeleteTagsInput{Resources: []string{id}, Tags: []types.Tag{
		{Key: aws.String("Name")}, {Key: aws.String("pool"), Value: aws.String("general")},
	}}))(t)
	out := must(
		a.DescribeTags(
			t.Context(),
			&awsec2.DescribeTagsInput{Filters: []types.Filter{filter("resource-id", id, a.subnets[0]), filter("key", "Name", "pool")}},
		),
	)(
		t,
	)
	got := map[string]string{}
	for _, tag := range out.Tags {
		got[string(tag.ResourceType)+" "+*tag.Key] = *tag.Value
	}
	if want := "map[instance pool:other subnet Name:x subnet pool:other]"; fmt.Sprint(got) != want {
		t.Errorf("tags %v, want %s", got, want)
	}
	_, err := a.CreateTags(
		t.Context(),
		&awsec2.CreateTagsInput{Resources: []string{a.subnets[1], "i-0123456789abcdef0"}, Tags: tags("k", "v")},
	)
	if awsimtest.Code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("tag an unknown instance: %v", err)
	}
	subnet := must(a.DescribeSubnets(t.Context(), &awsec2.DescribeSubnetsInput{SubnetIds: a.subnets[1:2]}))(t).Subnets[0]
	if tagValue(subnet.Tags, "k") != "" {
		t.Error("a refused call tagged the resource that exists")
	}
}
