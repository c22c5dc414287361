package awstest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func typeNamed(t *testing.T, types []*catalog.InstanceType, name string) *catalog.InstanceType {
	t.Helper()
	i := slices.IndexFunc(types, func(t *catalog.InstanceType) bool { return t.Name == name })
	if i < 0 {
		t.Fatalf("there is no type %s", name)
	}
	return types[i]
}

func offering(t *testing.T, all *catalog.InstanceType, zone, capacityType string) catalog.Offering {
	t.Helper()
	i := slices.IndexFunc(all.Offerings, func(o catalog.Offering) bool { return o.Zone == zone && o.CapacityType == capacityType })
	if i < 0 {
		t.Fatalf("%s is not offered as %s in %s", all.Name, capacityType, zone)
	}
	return all.Offerings[i]
}

func TestInstanceTypes(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	if _, err := c.InstanceTypes(t.Context(), class); err == nil || !strings.Contains(err.Error(), "no subnets found") {
		t.Errorf("a class without subnets: %v", err)
	}
	resolve(t, c, class)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	types, err := c.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if len(types) < 800 {
		t.Errorf("only %d types", len(types))
	}
	for _, it := range types {
		for _, o := range it.Offerings {
			if o.Available && o.Price <= 0 {
				t.Errorf("%s in %s (%s) is free", it.Name, o.Zone, o.CapacityType)
			}
		}
	}
	m5 := typeNamed(t, types, "m5.large")
	od, spot := offering(t, m5, "us-east-1a", "on-demand"), offering(t, m5, "us-east-1a", "spot")
	if od.Price != 0.096 || spot.Price >= od.Price {
		t.Errorf("m5.large costs %v on demand and %v as spot", od.Price, spot.Price)
	}
	if price, ok := c.Price("m5.large", "us-east-1a", "spot"); !ok || price != spot.Price {
		t.Errorf("spot price %v, the offering has %v", price, spot.Price)
	}
}

func TestSpotIsPreferredWhereAllowed(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	got, err := c.Launch(t.Context(), claim("general-1", in(karpv1.LabelCapacityType, "spot", "on-demand")), class)
	if err != nil {
		t.Fatal(err)
	}
	if i := w.runningInstances()[0]; i.Lifecycle != "spot" || got.Labels[karpv1.LabelCapacityType] != "spot" {
		t.Errorf("lifecycle %q, label %q", i.Lifecycle, got.Labels[karpv1.LabelCapacityType])
	}
	w.advancePastDelays()
	if seen, err := c.Get(t.Context(), got.ProviderID); err != nil || seen.CapacityType != "spot" {
		t.Errorf("read as %q, %v", seen.CapacityType, err)
	}
}

func TestNoCapacity(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	general := claim("general-1", onDemand, in(corev1.LabelInstanceTypeStable, "m5.large"), in(corev1.LabelTopologyZone, "us-east-1a"))
	w.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: "us-east-1a", Lifecycle: "on-demand"}, 0)
	_, err := c.Launch(t.Context(), general, class)
	var scarce *cloudprovider.InsufficientCapacityError
	if !errors.As(err, &scarce) || !strings.Contains(err.Error(), "m5.large/us-east-1a") {
		t.Fatalf("want insufficient capacity, got %v", err)
	}
	available := func(zone string) bool {
		types, err := c.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		return offering(t, typeNamed(t, types, "m5.large"), zone, "on-demand").Available
	}
	if available("us-east-1a") || !available("us-east-1b") {
		t.Errorf("available in a: %v, in b: %v", available("us-east-1a"), available("us-east-1b"))
	}
	calls := w.called("CreateFleet")
	if _, err := c.Launch(t.Context(), claim("general-2", general.Spec.Requirements...), class); !errors.As(err, &scarce) ||
		w.called("CreateFleet") != calls {
		t.Errorf("the launch repeated a call for unavailable capacity: %v", err)
	}
	w.Clock.Advance(unavailableofferings.TTL)
	if !available("us-east-1a") {
		t.Error("three minutes later the offering is not tried again")
	}
}

func TestErrorsOfAFleet(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  *protocol.Error
		reason string
	}{
		{"throttled", protocol.Errorf("RequestLimitExceeded", "Request limit exceeded.").WithStatus(503), "RequestLimitExceeded"},
		{"denied by an SCP", protocol.Errorf("UnauthorizedOperation",
			"You are not authorized with an explicit deny in a service control policy"), "Unauthorized"},
		{"profile is not known yet", protocol.Errorf("InvalidParameterValue",
			"Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"), "InstanceProfileNameInvalid"},
		{"unheard of", protocol.Errorf("SomethingNew", "?"), "LaunchFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.start(w.config("uid-1"))
			class := nodeClass("default")
			resolve(t, c, class)
			w.Sim.Inject(awsim.Fault{Service: "ec2", Action: "CreateFleet", Error: tc.fault})
			_, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
			var create *cloudprovider.CreateError
			if !errors.As(err, &create) || create.Reason != tc.reason || !strings.Contains(create.Message, tc.fault.Message) {
				t.Errorf("want reason %s, got %v", tc.reason, err)
			}
		})
	}
}

// Nodes of every family can be launched: EC2 takes their launch templates, and their user data is theirs.
func TestFamilies(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	for _, tc := range []struct{ alias, userData string }{
		{"al2@latest", "/etc/eks/bootstrap.sh 'blue'"},
		{"al2023@latest", "kind: NodeConfig"},
		{"bottlerocket@latest", "cluster-name = 'blue'"},
		{"windows2022@latest", "-EKSClusterName 'blue'"},
	} {
		t.Run(tc.alias, func(t *testing.T) {
			class := nodeClass(strings.TrimSuffix(tc.alias, "@latest"))
			class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: tc.alias}}
			resolve(t, c, class)
			got, err := c.Launch(t.Context(), claim("of-"+class.Name, onDemand), class)
			if err != nil {
				t.Fatal(err)
			}
			w.advancePastDelays()
			for _, i := range w.runningInstances() {
				if strings.HasSuffix(got.ProviderID, i.ID) && !strings.Contains(string(i.UserData), tc.userData) {
					t.Errorf("user data without %q:\n%s", tc.userData, i.UserData)
				}
			}
		})
	}
}

// Each kind of hardware boots the image that is made for it.
func TestImageSuitsTheHardware(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	images := map[string]string{}
	for name, requirements := range map[string][]karpv1.Requirement{
		"amd64": {in(corev1.LabelArchStable, "amd64")},
		"arm64": {in(corev1.LabelArchStable, "arm64")},
		"gpu":   {in(corev1.LabelArchStable, "amd64"), {Key: awsv1.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpExists}},
	} {
		asked := claim(name, append(requirements, onDemand)...)
		if name == "gpu" {
			asked.Spec.Resources.Requests[awsv1.ResourceNVIDIAGPU] = resource.MustParse("1")
		}
		got, err := c.Launch(t.Context(), asked, class)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		images[name] = got.ImageID
	}
	if images["amd64"] == images["arm64"] || images["amd64"] == images["gpu"] || images["gpu"] == images["arm64"] {
		t.Errorf("images are shared: %v", images)
	}
}

// A controller that cannot request prices launches by those that it ships with.
func TestWithoutPricingAPI(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	w.Sim.Inject(awsim.Fault{Service: "pricing", Action: "GetProducts", Times: 100, Error: protocol.Errorf("AccessDeniedException", "no")})
	w.Sim.Inject(
		awsim.Fault{Service: "ec2", Action: "DescribeSpotPriceHistory", Times: 100, Error: protocol.Errorf("UnauthorizedOperation", "no")},
	)
	if err := c.RefreshPrices(t.Context()); err == nil {
		t.Fatal("prices were read")
	}
	if price, ok := c.Price("m5.large", "us-east-1a", "on-demand"); !ok || price != 0.096 {
		t.Errorf("m5.large costs %v, %v", price, ok)
	}
	if _, err := c.Launch(t.Context(), claim("general-1", onDemand), class); err != nil {
		t.Error(err)
	}
}
