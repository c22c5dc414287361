package awstest

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// launchOne launches a claim for the class.
func (s *launchFixture) launchOne(name string, requirements ...karpv1.Requirement) launchResult {
	got, err := s.Launch(s.t.Context(), claim(name, requirements...), s.class)
	return launchResult{got, err}
}

// offerings reports whether an offering is believed to be available.
func (s *launchFixture) offerings(class *awsv1.EC2NodeClass, instanceType, zone, capacityType string) bool {
	types, err := s.InstanceTypes(s.t.Context(), class)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range typeNamed(s.t.(*testing.T), types, instanceType).Offerings {
		if o.Zone == zone && o.CapacityType == capacityType && o.Available {
			return true
		}
	}
	return false
}

// deny makes a pool fail.
func (s *launchFixture) fail(p awsim.Pool, code, message string) {
	s.Sim.FailPool(p, protocol.Errorf(code, "%s", message))
}

func instanceTypes(names ...string) karpv1.Requirement {
	return in(corev1.LabelInstanceTypeStable, names...)
}

func zones(names ...string) karpv1.Requirement { return in(corev1.LabelTopologyZone, names...) }

func TestResultsOfAFleet(t *testing.T) {
	const a, b = "us-east-1a", "us-east-1b"
	t.Run("no capacity anywhere", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large"}, 0)
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large"), zones(a, b)); !withoutCapacity(got.err) {
			t.Fatal(got.err)
		}
		if s.offerings(s.class, "m5.large", a, "on-demand") || s.offerings(s.class, "m5.large", b, "on-demand") ||
			!s.offerings(s.class, "m5.large", a, "spot") ||
			!s.offerings(s.class, "c5.large", a, "on-demand") {
			t.Error("what EC2 did not have was not remembered, or more than that")
		}
		slices.Sort(s.meter.failed)
		if want := []string{"us-east-1a/use1-az1/on-demand/LaunchFailed", "us-east-1b/use1-az2/on-demand/LaunchFailed"}; !slices.Equal(
			s.meter.failed,
			want,
		) {
			t.Errorf("counted %v", s.meter.failed)
		}
	})
	t.Run("no capacity here, not allowed there", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: a}, 0)
		s.fail(awsim.Pool{InstanceType: "m5.large", Zone: b}, "UnauthorizedOperation", "You are not authorized to perform this operation.")
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large"), zones(a, b)); reasonOf(got.err) != "Unauthorized" {
			t.Error(got.err)
		}
	})
	t.Run("the service-linked role of spot is missing", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.fail(
			awsim.Pool{Lifecycle: "spot"},
			"AuthFailure.ServiceLinkedRoleCreationNotPermitted",
			"The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
		)
		got := s.launchOne("x", in(karpv1.LabelCapacityType, "spot", "on-demand"), instanceTypes("m5.large"))
		if !withoutCapacity(got.err) || !strings.Contains(got.err.Error(), "the service-linked role of EC2 Spot is missing") ||
			s.offerings(s.class, "c5.large", a, "spot") {
			t.Errorf("%v; spot is offered: %v", got.err, s.offerings(s.class, "c5.large", a, "spot"))
		}
		if got := s.launchOne("y", in(karpv1.LabelCapacityType, "spot", "on-demand"), instanceTypes("m5.large")); got.err != nil ||
			got.Labels[karpv1.LabelCapacityType] != "on-demand" {
			t.Errorf("the next launch: %s, %v", got.Labels[karpv1.LabelCapacityType], got.err)
		}
	})
	t.Run("too many fleets, of a pool and of the whole call", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.fail(awsim.Pool{InstanceType: "m5.large"}, "MaxFleetCountExceeded", "Fleet quota")
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large"), zones(a)); !withoutCapacity(got.err) ||
			s.offerings(s.class, "m5.large", a, "on-demand") {
			t.Error(got.err)
		}
		s.Sim.Inject(awsim.Fault{Service: "ec2", Action: "CreateFleet", Error: protocol.Errorf("MaxFleetCountExceeded", "Fleet quota")})
		if got := s.launchOne("y", onDemand, instanceTypes("c5.large"), zones(a)); !withoutCapacity(got.err) ||
			s.offerings(s.class, "c5.large", a, "on-demand") ||
			!s.offerings(s.class, "c5.large", b, "on-demand") {
			t.Errorf("refused as a whole: %v", got.err)
		}
		if want := "//on-demand/FleetQuotaExceeded"; s.meter.failed[len(s.meter.failed)-1] != want {
			t.Errorf("counted %v", s.meter.failed)
		}
	})
	reservedOnly := in(karpv1.LabelCapacityType, "reserved")
	t.Run("reservations that are full", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		id := s.reserve(1)
		s.reserving()
		other := s.start(s.config("uid-2"))
		theirs := reserving()
		resolve(t, other, theirs)
		if _, err := other.Launch(t.Context(), claim("theirs", anyCapacity), theirs); err != nil || room(t, s.cloud, s.class)[id] != 1 {
			t.Fatal(err)
		}
		if got := s.launchOne("x", reservedOnly); !withoutCapacity(got.err) || room(t, s.cloud, s.class)[id] != 0 ||
			!s.offerings(s.class, "m5.large", a, "on-demand") {
			t.Errorf("%v, room %v", got.err, room(t, s.cloud, s.class))
		}
	})
	t.Run("called too often for a reservation", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		id := s.reserve(1)
		s.reserving()
		s.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "CreateFleet",
				Error:   protocol.Errorf("RequestLimitExceeded", "Request limit exceeded.").WithStatus(503),
			},
		)
		if got := s.launchOne("x", reservedOnly); reasonOf(got.err) != "RequestLimitExceeded" || room(t, s.cloud, s.class)[id] != 1 ||
			s.Launching("uid-of-x") {
			t.Errorf("%v, room %v", got.err, room(t, s.cloud, s.class))
		}
	})
	t.Run("a subnet without addresses", func(t *testing.T) {
		s := newLaunchFixture(t, 1, func(c *awsv1.EC2NodeClass) {
			c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"kubernetes.io/cluster/" + clusterName: "*"}}}
		})
		if n := len(s.class.Status.Subnets); n < 2 {
			t.Fatalf("%d subnets", n)
		}
		subnet := func(n int) string {
			return s.sent("CreateFleet")[n].Get("LaunchTemplateConfigs.1.Overrides.1.SubnetId")
		}
		s.fail(awsim.Pool{InstanceType: "m5.large"}, "InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet")
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large"), zones(a)); !withoutCapacity(got.err) ||
			s.offerings(s.class, "m5.large", a, "on-demand") {
			t.Error(got.err)
		}
		if got := s.launchOne("y", onDemand, instanceTypes("c5.large"), zones(a)); got.err != nil || subnet(0) == subnet(1) {
			t.Errorf("%v; subnets %s and %s", got.err, subnet(0), subnet(1))
		}
	})
	t.Run("an instance, and errors beside it", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large"}, 0)
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large", "m5.xlarge"), zones(a)); got.err != nil ||
			s.offerings(s.class, "m5.large", a, "on-demand") ||
			len(s.meter.failed) != 1 {
			t.Errorf("%v, counted %v", got.err, s.meter.failed)
		}
	})
	t.Run("a spread group that takes no more in a zone", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		s.group("apart", "spread", 0)
		s.class = placing(awsv1.PlacementGroupSelector{Name: "apart"})
		resolve(t, s.cloud, s.class)
		s.fail(
			awsim.Pool{InstanceType: "m5.large", Zone: a},
			"InsufficientInstanceCapacity",
			"You have reached the limit of instances in this spread placement group",
		)
		if got := s.launchOne("x", onDemand, instanceTypes("m5.large", "m5.xlarge"), zones(a)); got.err != nil {
			t.Fatal(got.err)
		}
		for _, name := range []string{"m5.large", "m5.xlarge"} {
			if s.offerings(s.class, name, a, "on-demand") || !s.offerings(s.class, name, b, "on-demand") ||
				!s.offerings(nodeClassLike(s.class), name, a, "on-demand") {
				t.Errorf("%s: the group's zone is not closed, or more than that", name)
			}
		}
	})
	template := func(s *launchFixture) {
		admin := ec2.NewFromConfig(s.Config)
		for _, l := range awsimtest.OK(admin.DescribeLaunchTemplates(s.t.Context(), nil))(s.t).LaunchTemplates {
			awsimtest.OK(admin.DeleteLaunchTemplate(s.t.Context(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: l.LaunchTemplateId}))(s.t)
		}
	}
	t.Run("a launch template that has vanished", func(t *testing.T) {
		s := newLaunchFixture(t, 2)
		if b := s.launchOne("x", onDemand); b.err != nil {
			t.Fatal(b.err)
		}
		template(s)
		if b := s.launchOne("y", onDemand); b.err != nil || len(s.runningInstances()) != 2 {
			t.Errorf("%d instances, %v", len(s.runningInstances()), b.err)
		}
		for _, b := range s.launchBatch(sameRequirements(2)...) {
			if b.err != nil {
				t.Fatal(b.err)
			}
		}
		template(s)
		more := sameRequirements(4)[2:]
		for _, b := range s.launchBatch(more...) {
			if b.err != nil {
				t.Errorf("together: %v", b.err)
			}
		}
		if len(s.runningInstances()) != 6 {
			t.Errorf("%d instances", len(s.runningInstances()))
		}
	})
	t.Run("a launch template that vanishes twice", func(t *testing.T) {
		s := newLaunchFixture(t, 2)
		s.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "CreateFleet",
				Times:   4,
				Error:   protocol.Errorf("InvalidLaunchTemplateName.NotFoundException", "no such template"),
			},
		)
		if b := s.launchOne("x", onDemand); reasonOf(b.err) == "" {
			t.Error(b.err)
		}
		for _, b := range s.launchBatch(sameRequirements(2)...) {
			if reasonOf(b.err) == "" {
				t.Errorf("together: %v", b.err)
			}
		}
		if n := s.called("CreateFleet"); n != 4 || len(s.runningInstances()) != 0 {
			t.Errorf("%d calls, %d instances", n, len(s.runningInstances()))
		}
	})
}

// reserving has the shop's class use the reservations that there are by now.
func (s *launchFixture) reserving() {
	s.class = reserving()
	s.class.Generation = 2
	resolve(s.t, s.cloud, s.class)
}

// nodeClassLike is a class as resolved, without the placement group.
func nodeClassLike(class *awsv1.EC2NodeClass) *awsv1.EC2NodeClass {
	out := class.DeepCopy()
	out.Spec.PlacementGroupSelector = nil
	out.UID += "-free"
	return out
}

func TestTagsAndReadsOfAnInstance(t *testing.T) {
	s := newLaunchFixture(t, 1)
	one := claim("general-1", onDemand)
	got, err := s.Launch(t.Context(), one, s.class)
	if err != nil {
		t.Fatal(err)
	}
	s.advancePastDelays()
	id := s.runningInstances()[0].ID
	admin := ec2.NewFromConfig(s.Config)
	tag := func(key, value string) {
		awsimtest.OK(
			admin.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: &key, Value: &value}}}),
		)(
			t,
		)
	}
	t.Run("a Name that is there stays, the others are written", func(t *testing.T) {
		awsimtest.OK(
			admin.DeleteTags(
				t.Context(),
				&ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: ptr("karpenter.sh/nodeclaim")}}},
			),
		)(
			t,
		)
		tag("Name", "mine")
		before := s.called("CreateTags")
		if err := s.Name(t.Context(), got.ProviderID, "node-1", "general-1"); err != nil {
			t.Fatal(err)
		}
		sent := s.sent("CreateTags")[before]
		if tags := s.runningInstances()[0].Tags; tags["Name"] != "mine" || tags["karpenter.sh/nodeclaim"] != "general-1" ||
			sent.Get("Tag.1.Key") != "karpenter.sh/nodeclaim" ||
			sent.Get("Tag.2.Key") != "" {
			t.Errorf("tags %v, sent %v", tags, sent)
		}
	})
	t.Run("nothing is missing, nobody is called", func(t *testing.T) {
		before := s.called("CreateTags")
		if err := s.Name(t.Context(), got.ProviderID, "node-1", "general-1"); err != nil || s.called("CreateTags") != before {
			t.Errorf("%d calls, %v", s.called("CreateTags")-before, err)
		}
	})
	t.Run("an instance without the tag of a node class is not listed", func(t *testing.T) {
		awsimtest.OK(
			admin.DeleteTags(
				t.Context(),
				&ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: ptr("karpenter.k8s.aws/ec2nodeclass")}}},
			),
		)(
			t,
		)
		if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("listed %d, %v", len(all), err)
		}
		tag("karpenter.k8s.aws/ec2nodeclass", "default")
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("listed %d, %v", len(all), err)
		}
	})
	t.Run("one that is shutting down is not ended again", func(t *testing.T) {
		for range 2 {
			if err := s.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.called("TerminateInstances"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("one that has ended is not found", func(t *testing.T) {
		s.advancePastDelays()
		if _, err := s.Get(t.Context(), got.ProviderID); !gone(err) {
			t.Error(err)
		}
	})
	t.Run("one that was known and is not listed any more is forgotten", func(t *testing.T) {
		second, err := s.Launch(t.Context(), claim("general-2", onDemand), s.class)
		if err != nil {
			t.Fatal(err)
		}
		s.advancePastDelays()
		if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
			t.Fatalf("listed %d, %v", len(all), err)
		}
		awsimtest.OK(
			admin.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{s.runningInstances()[0].ID}}),
		)(
			t,
		)
		s.advancePastDelays()
		if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("listed %d, %v", len(all), err)
		}
		if _, err := s.Get(t.Context(), second.ProviderID); !gone(err) {
			t.Error(err)
		}
	})
}
