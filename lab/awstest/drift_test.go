package awstest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// stampHash does what the reconciler of node classes does with hashes.
func stampHash(t *testing.T, c *cloud, class *awsv1.EC2NodeClass) {
	t.Helper()
	hash, version, err := c.NodeClassHash(class)
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, awsv1.AnnotationNodeClassHash, hash)
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, awsv1.AnnotationNodeClassHashVersion, version)
}

// launched is a claim with its instance, as the reconciler of launches writes it.
func launched(t *testing.T, c *cloud, class *awsv1.EC2NodeClass, nodeClaim *karpv1.NodeClaim) *karpv1.NodeClaim {
	t.Helper()
	got, err := c.Launch(t.Context(), nodeClaim, class)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range got.Labels {
		metav1.SetMetaDataLabel(&nodeClaim.ObjectMeta, key, value)
	}
	for key, value := range got.Annotations {
		metav1.SetMetaDataAnnotation(&nodeClaim.ObjectMeta, key, value)
	}
	nodeClaim.Status.ProviderID, nodeClaim.Status.ImageID = got.ProviderID, got.ImageID
	return nodeClaim
}

func drifts(t *testing.T, c *cloud, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim, want string) {
	t.Helper()
	if got, err := c.Drift(t.Context(), class, claim); err != nil || got != want {
		t.Errorf("drift %q, %v; want %q", got, err, want)
	}
}

func TestDriftByHash(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	class.Spec.AMIFamily = ""
	resolve(t, c, class)
	stampHash(t, c, class)
	node := launched(t, c, class, claim("general-1", onDemand))
	drifts(t, c, class, node, "")
	for _, tc := range []struct {
		name string
		edit func(*awsv1.EC2NodeClass)
		want string
	}{
		{"a tag more", func(c *awsv1.EC2NodeClass) { c.Spec.Tags = map[string]string{"team": "a", "more": "b"} }, "NodeClassDrift"},
		{"the family that the alias implies is spelled out", func(c *awsv1.EC2NodeClass) { c.Spec.AMIFamily = "AL2023" }, ""},
		{"other subnet selector terms", func(c *awsv1.EC2NodeClass) {
			c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-1"}}
		}, ""},
		{"other security group selector terms", func(c *awsv1.EC2NodeClass) {
			c.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Name: "x"}}
		}, ""},
		{"capacity reservation selector terms", func(c *awsv1.EC2NodeClass) {
			c.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		}, ""},
		{"other image selector terms of the family", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260101"}}
		}, ""},
		{"ipPrefixCount", func(c *awsv1.EC2NodeClass) { c.Spec.IPPrefixCount = awssdk.Int32(1) }, ""},
		{"on its way out", func(c *awsv1.EC2NodeClass) {
			c.Spec.Tags, c.DeletionTimestamp = nil, &metav1.Time{Time: w.Clock.Now()}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			edited := class.DeepCopy() // its status is what it was: nothing but the hash can report
			tc.edit(edited)
			stampHash(t, c, edited)
			drifts(t, c, edited, node, tc.want)
		})
	}
	t.Run("another version of the hash", func(t *testing.T) {
		old := node.DeepCopy()
		old.Annotations[awsv1.AnnotationNodeClassHash], old.Annotations[awsv1.AnnotationNodeClassHashVersion] = "12345", "v6"
		drifts(t, c, class, old, "")
	})
	t.Run("the cluster has another certificate authority", func(t *testing.T) {
		cfg := w.config("uid-1")
		cfg.Cluster.CABundle = "bmV3"
		renewed := class.DeepCopy()
		stampHash(t, w.start(cfg), renewed)
		drifts(t, c, renewed, node, "NodeClassDrift")
	})
}

func TestDriftOfSelectedResources(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	stampHash(t, c, class)
	node := launched(t, c, class, claim("general-1", onDemand))
	id := node.Status.ProviderID
	w.advancePastDelays()
	seen, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		edit func(*awsv1.EC2NodeClass)
		want string
	}{
		{"nothing", func(*awsv1.EC2NodeClass) {}, ""},
		{"the image is no longer selected", func(c *awsv1.EC2NodeClass) {
			for i := range c.Status.AMIs {
				c.Status.AMIs[i].ID = "ami-0123456789abcdef0"
			}
		}, "AMIDrift"},
		{"a newer image before it", func(c *awsv1.EC2NodeClass) {
			newer := c.Status.AMIs[slices.IndexFunc(c.Status.AMIs, func(a awsv1.AMI) bool { return a.ID == seen.ImageID })]
			newer.ID = "ami-0123456789abcdef0"
			c.Status.AMIs = append([]awsv1.AMI{newer}, c.Status.AMIs...)
		}, "AMIDrift"},
		{"the class has a group more", func(c *awsv1.EC2NodeClass) {
			c.Status.SecurityGroups = append(c.Status.SecurityGroups, awsv1.SecurityGroup{ID: "sg-more"})
		}, "SecurityGroupDrift"},
		{"the subnet is no longer selected", func(c *awsv1.EC2NodeClass) {
			c.Status.Subnets = slices.DeleteFunc(c.Status.Subnets, func(s awsv1.Subnet) bool { return s.ID == seen.SubnetID })
		}, "SubnetDrift"},
		{"image, group and subnet", func(c *awsv1.EC2NodeClass) {
			c.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-other"}}
			c.Status.Subnets = slices.DeleteFunc(c.Status.Subnets, func(s awsv1.Subnet) bool { return s.ID == seen.SubnetID })
		}, "SecurityGroupDrift"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			edited := class.DeepCopy()
			tc.edit(edited)
			drifts(t, c, edited, node, tc.want)
		})
	}
	t.Run("no verdict on a type that is not known", func(t *testing.T) {
		odd := node.DeepCopy()
		odd.Labels["node.kubernetes.io/instance-type"] = "m99.large"
		if got, err := c.Drift(t.Context(), class, odd); err == nil || got != "" {
			t.Errorf("drift %q, %v", got, err)
		}
	})
	t.Run("no verdict while EC2 does not answer, and one listing for many claims after", func(t *testing.T) {
		w.Clock.Advance(2 * time.Minute)
		w.Sim.Inject(
			awsim.Fault{Service: "ec2", Action: "DescribeInstances", Error: protocol.Errorf("InternalError", "bad minute").WithStatus(500)},
		)
		if got, err := c.Drift(t.Context(), class, node); err == nil || got != "" || strings.Contains(err.Error(), "RequestID") {
			t.Errorf("drift %q, %v", got, err)
		}
		before := w.called("DescribeInstances")
		for range 5 { // it is left alone for a while then
			if got, err := c.Drift(t.Context(), class, node); err == nil || got != "" {
				t.Errorf("drift %q, %v", got, err)
			}
		}
		if n := w.called("DescribeInstances") - before; n != 0 {
			t.Errorf("%d calls right after one that failed", n)
		}
		w.Clock.Advance(5 * time.Second)
		for range 5 {
			drifts(t, c, class, node, "")
		}
		if n := w.called("DescribeInstances") - before; n != 1 {
			t.Errorf("%d calls for 5 claims", n)
		}
	})
	t.Run("no verdict on an instance that is gone", func(t *testing.T) {
		if err := c.Terminate(t.Context(), destroytest.Permit(id)); err != nil {
			t.Fatal(err)
		}
		w.Clock.Advance(5 * time.Minute)
		if got, err := c.Drift(t.Context(), class, node); got != "" || !errors.Is(err, cloudprovider.ErrNotFound) {
			t.Errorf("drift %q, %v", got, err)
		}
	})
}

func TestDriftOfAReservation(t *testing.T) {
	w := newWorld(t)
	id := w.reserve(1)
	c := w.start(w.config("uid-1"))
	class := reserving()
	resolve(t, c, class)
	stampHash(t, c, class)
	node := launched(t, c, class, claim("general-1", anyCapacity))
	w.advancePastDelays()
	drifts(t, c, class, node, "")
	elsewhere := class.DeepCopy()
	elsewhere.Status.CapacityReservations = nil
	t.Run("a reservation that is missed for the first time may have ended just now", func(t *testing.T) {
		drifts(t, c, elsewhere, node, "")
		w.Clock.Advance(2*time.Minute - time.Second)
		drifts(t, c, elsewhere, node, "")
		w.Clock.Advance(time.Second)
		drifts(t, c, elsewhere, node, "CapacityReservationDrift")
		drifts(t, c, class, node, "")
	})
	t.Run("gate off", func(t *testing.T) {
		cfg := w.config("uid-1")
		cfg.ReservedCapacity = false
		drifts(t, w.start(cfg), elsewhere, node, "")
	})
	t.Run("the reservation has ended and the instance is on-demand", func(t *testing.T) {
		drifts(t, c, elsewhere, node, "CapacityReservationDrift") // the listing is fresh, and still has it in the reservation
		if err := w.Sim.CancelCapacityReservation(id); err != nil {
			t.Fatal(err)
		}
		w.advancePastDelays()
		drifts(t, c, elsewhere, node, "")
	})
}
