package awstest

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func ptr[T any](v T) *T { return &v }

func gone(err error) bool { return errors.Is(err, cloudprovider.ErrNotFound) }

// sentRequest is one launch: the requests to EC2, and the result.
type sentRequest struct {
	fleet, template url.Values
	got             cloudprovider.Launched
	err             error
}

// overrides counts the overrides of the CreateFleet request.
func (o sentRequest) overrides() (n int) {
	for key := range o.fleet {
		if strings.HasSuffix(key, ".InstanceType") {
			n++
		}
	}
	return n
}

const data = "LaunchTemplateData."

func TestCreateFleetRequest(t *testing.T) {
	type (
		class  = awsv1.EC2NodeClass
		claims = karpv1.NodeClaim
	)
	annotated := func(key string) func(*claims) {
		return func(c *claims) { c.Annotations = map[string]string{key: "true"} }
	}
	requesting := func(name corev1.ResourceName) func(*claims) {
		return func(c *claims) { c.Spec.Resources.Requests[name] = resource.MustParse("1") }
	}
	devices := func(c *claims) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationRequestedDRADrivers, awsv1.DRADriverEFA)
	}
	only := func(requirements ...karpv1.Requirement) func(*claims) {
		return func(c *claims) { c.Spec.Requirements = requirements }
	}
	all := func(changes ...func(*claims)) func(*claims) {
		return func(c *claims) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	said := func(c *class) { c.Spec.Context = "my-context" }
	cards := func(kinds ...string) func(*class) {
		return func(c *class) {
			for n, kind := range kinds {
				c.Spec.NetworkInterfaces = append(c.Spec.NetworkInterfaces, awsv1.NetworkInterface{DeviceIndex: int32(n), InterfaceType: kind})
			}
		}
	}
	efa := func(o sentRequest) string {
		q := o.got.Capacity[awsv1.ResourceEFA]
		return q.String()
	}
	withEFA := only(onDemand, instanceTypes("c5n.9xlarge"))
	for _, tt := range []struct {
		name  string
		class func(*class)
		claim func(*claims)
		cfg   func(*adapter.Config)
		// want is compared with what see returns.
		see  func(o sentRequest) string
		want string
		// fails where the simulated EC2 does not support the parameters; the test checks only the request.
		fails bool
	}{
		{name: "the class's context is sent", class: said, see: func(o sentRequest) string { return o.fleet.Get("Context") }, want: "my-context"},
		{
			name: "but not where minValues were relaxed", class: said, claim: annotated("karpenter.sh/nodeclaim-min-values-relaxed"),
			see: func(o sentRequest) string { return o.fleet.Get("Context") },
		},
		{
			name: "a price overlay, on demand", claim: annotated("karpenter.sh/price-overlay-applied"),
			see: func(o sentRequest) string { return o.fleet.Get("OnDemandOptions.AllocationStrategy") }, want: "prioritized",
		},
		{
			name: "a price overlay, spot", claim: all(only(in(karpv1.LabelCapacityType, "spot")), annotated("karpenter.sh/price-overlay-applied")),
			see: func(o sentRequest) string { return o.fleet.Get("SpotOptions.AllocationStrategy") }, want: "capacity-optimized-prioritized",
		},
		{
			name: "no price overlay, on demand", see: func(o sentRequest) string { return o.fleet.Get("OnDemandOptions.AllocationStrategy") },
			want: "lowest-price",
		},
		{
			name: "no price overlay, spot", claim: only(in(karpv1.LabelCapacityType, "spot")),
			see: func(o sentRequest) string { return o.fleet.Get("SpotOptions.AllocationStrategy") }, want: "price-capacity-optimized",
		},
		{name: "no tenancy is requested", see: func(o sentRequest) string { return o.template.Get(data + "Placement.Tenancy") }, want: "default"},
		{
			name: "both tenancies are allowed", claim: only(onDemand, in(awsv1.LabelInstanceTenancy, "dedicated", "default")),
			see: func(o sentRequest) string { return o.template.Get(data + "Placement.Tenancy") }, want: "default",
		},
		{name: "only dedicated", claim: only(onDemand, in(awsv1.LabelInstanceTenancy, "dedicated")), see: func(o sentRequest) string {
			return o.template.Get(data+"Placement.Tenancy") + " " + o.got.Labels[awsv1.LabelInstanceTenancy]
		}, want: "dedicated dedicated"},
		{name: "EFA is requested", claim: all(withEFA, requesting(awsv1.ResourceEFA)), see: func(o sentRequest) string {
			return o.template.Get(data+"NetworkInterface.1.InterfaceType") + " " + efa(o)
		}, want: "efa 1"},
		{
			name: "devices of EFA are requested", claim: all(withEFA, devices),
			see: func(o sentRequest) string {
				return o.template.Get(data+"NetworkInterface.1.InterfaceType") + " " + efa(o)
			}, want: "efa 1",
		},
		{name: "EFA that is not", claim: withEFA, see: func(o sentRequest) string {
			return o.template.Get(data+"NetworkInterface.1.InterfaceType") + " " + efa(o)
		}, want: " 0"},
		{name: "a class with one efa-only interface", class: cards("interface", "efa-only"), claim: withEFA, see: efa, want: "1"},
		{name: "a class with plain interfaces", class: cards("interface"), claim: withEFA, see: efa, want: "0"},
		{
			name: "enclaves", class: func(c *class) { c.Spec.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true} },
			see: func(o sentRequest) string { return o.template.Get(data + "EnclaveOptions.Enabled") }, want: "true",
		},
		{name: "no enclaves", see: func(o sentRequest) string { return o.template.Get(data + "EnclaveOptions.Enabled") }, want: "false"},
		{name: "reserved capacity is switched off", cfg: func(c *adapter.Config) { c.ReservedCapacity = false }, see: func(o sentRequest) string {
			return o.template.Get(data + "CapacityReservationSpecification.CapacityReservationPreference")
		}},
		{name: "no reservation is requested", see: func(o sentRequest) string {
			return o.template.Get(data + "CapacityReservationSpecification.CapacityReservationPreference")
		}, want: "none"},
		{name: "20G are 19 GiB", class: func(c *class) {
			c.Spec.BlockDeviceMappings = []awsv1.BlockDeviceMapping{{DeviceName: "/dev/xvdb", EBS: &awsv1.BlockDevice{VolumeSize: ptr(resource.MustParse("20G"))}}}
		}, see: func(o sentRequest) string { return o.template.Get(data + "BlockDeviceMapping.1.Ebs.VolumeSize") }, want: "19"},
		{
			name: "the family Custom has no disks of ours, and is taken to have 20Gi", class: func(c *class) { c.Spec.AMIFamily = "Custom" },
			see: func(o sentRequest) string {
				return o.template.Get(data+"BlockDeviceMapping.1.DeviceName") + " " + o.got.Capacity.StorageEphemeral().String()
			}, want: " 20Gi",
		},
		{name: "no public address on an efa-only interface", class: func(c *class) {
			cards("interface", "efa-only")(c)
			c.Spec.AssociatePublicIPAddress = ptr(true)
		}, claim: withEFA, fails: true, see: func(o sentRequest) string {
			return o.template.Get(data+"NetworkInterface.1.AssociatePublicIpAddress") + " " + o.template.Get(data+"NetworkInterface.2.AssociatePublicIpAddress")
		}, want: "true "},
		{
			name: "prefixes in an IPv6 cluster", class: func(c *class) { c.Spec.IPPrefixCount = ptr(int32(2)) },
			cfg: func(c *adapter.Config) { c.Cluster.DNS = "fd00::a" }, fails: true, see: func(o sentRequest) string {
				nic := data + "NetworkInterface.1."
				return o.template.Get(nic+"Ipv6PrefixCount") + " " + o.template.Get(nic+"PrimaryIpv6") + " " + o.template.Get(nic+"Ipv6AddressCount") + " " + o.template.Get(nic+"Ipv4PrefixCount")
			}, want: "2 true 1 ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			if tt.cfg != nil {
				tt.cfg(&cfg)
			}
			c := w.start(cfg)
			class, one := nodeClass("default"), claim("general-1", onDemand)
			if tt.class != nil {
				tt.class(class)
			}
			if tt.claim != nil {
				tt.claim(one)
			}
			resolve(t, c, class)
			var o sentRequest
			o.got, o.err = c.Launch(t.Context(), one, class)
			if (o.err != nil) != tt.fails {
				t.Fatal(o.err)
			}
			o.fleet, o.template = w.sent("CreateFleet")[0], w.sent("CreateLaunchTemplate")[0]
			if got := tt.see(o); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestOnePoolOnceWithPartitions(t *testing.T) {
	t.Run("a group of seven partitions makes no more overrides", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.group("parts", "partition", 7)
		s.class = placing(awsv1.PlacementGroupSelector{Name: "parts"})
		resolve(t, s.cloud, s.class)
		if b := s.launchOne("x", onDemand, instanceTypes("m5.large", "c5.large"), zones("us-east-1a", "us-east-1b")); b.err != nil {
			t.Fatal(b.err)
		}
		if n := (sentRequest{fleet: s.sent("CreateFleet")[0]}).overrides(); n != 4 {
			t.Errorf("%d overrides for two types in two zones", n)
		}
	})
}

func TestLaunchesThatAreNotMade(t *testing.T) {
	t.Run("a tag that is not the user's", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.class.Spec.Tags["karpenter.sh/nodepool"] = "other"
		b := s.launchOne("x", onDemand)
		var unready *cloudprovider.NodeClassNotReadyError
		if !errors.As(b.err, &unready) || s.called("CreateFleet") != 0 {
			t.Errorf("%v, %d calls", b.err, s.called("CreateFleet"))
		}
		r := s.ResolveNodeClass(t.Context(), s.class)
		if got := conditionOf(r, awsv1.ConditionValidationSucceeded); got.Reason != "TagValidationFailed" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a Name of the user's is the instance's", func(t *testing.T) {
		s := newLaunchFixture(t, 1, func(c *awsv1.EC2NodeClass) { c.Spec.Tags["Name"] = "mine" })
		b := s.launchOne("x", onDemand)
		if b.err != nil {
			t.Fatal(b.err)
		}
		s.advancePastDelays()
		if err := s.Name(t.Context(), b.ProviderID, "node-1", "x"); err != nil || s.runningInstances()[0].Tags["Name"] != "mine" {
			t.Errorf("%v, tags %v", err, s.runningInstances()[0].Tags)
		}
	})
}
