package awstest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func conditionOf(r cloudprovider.Resolution, typ string) cloudprovider.Condition {
	for _, c := range r.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return cloudprovider.Condition{Type: typ, Status: "unchanged"}
}

func TestStatusOfANodeClass(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	r := c.ResolveNodeClass(t.Context(), class)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := len(r.Status.Subnets); n < 3 {
		t.Errorf("%d subnets", n)
	}
	for _, s := range r.Status.Subnets {
		if s.Zone == "" || s.ZoneID == "" {
			t.Errorf("subnet %+v without zone", s)
		}
	}
	if len(r.Status.SecurityGroups) == 0 || len(r.Status.AMIs) < 3 || r.Status.InstanceProfile == "" {
		t.Errorf("%+v", r.Status)
	}
	for _, typ := range class.ConditionTypes().Dependents {
		if got := conditionOf(r, typ); got.Status != metav1.ConditionTrue {
			t.Errorf("%+v", got)
		}
	}
}

func TestConditionsOfANodeClass(t *testing.T) {
	for _, tc := range []struct {
		name      string
		edit      func(*awsv1.EC2NodeClass)
		condition string
		status    metav1.ConditionStatus
		reason    string
	}{
		{"no subnet", func(c *awsv1.EC2NodeClass) {
			c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-0123456789abcdef0"}}
		}, "SubnetsReady", "False", "SubnetsNotFound"},
		{"a dependency is False: no subnet, so nothing to validate", func(c *awsv1.EC2NodeClass) {
			c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"no": "such"}}}
		}, "ValidationSucceeded", "False", "DependenciesNotReady"},
		{"no security group", func(c *awsv1.EC2NodeClass) {
			c.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Name: "none"}}
		}, "SecurityGroupsReady", "False", "SecurityGroupsNotFound"},
		{"no image", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMIFamily, c.Spec.AMISelectorTerms = "AL2023", []awsv1.AMISelectorTerm{{Name: "none"}}
		}, "AMIsReady", "False", "AMINotFound"},
		{"an alias without images", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "windows2025@latest"}}
		}, "AMIsReady", "False", "UnsupportedAlias"},
		{"an alias whose version does not exist", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v19990101"}}
		}, "AMIsReady", "False", "UnsupportedAlias"},
		{"a custom parameter that does not exist", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMIFamily, c.Spec.AMISelectorTerms = "AL2023", []awsv1.AMISelectorTerm{{SSMParameter: "/no/such"}}
		}, "AMIsReady", "False", "AMINotFound"},
		{"an image by parameter", func(c *awsv1.EC2NodeClass) {
			c.Spec.AMIFamily = "AL2023"
			c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{SSMParameter: "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/x86_64/standard/recommended/image_id"}}
		}, "AMIsReady", "True", "AMIsReady"},
		{"no role", func(c *awsv1.EC2NodeClass) { c.Spec.Role = "no-such-role" }, "InstanceProfileReady", "False", "RoleNotFound"},
		{
			"a profile of the user's", func(c *awsv1.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", "mine" }, "InstanceProfileReady",
			"True", "InstanceProfileReady",
		},
		{
			"a tag that is not the user's", func(c *awsv1.EC2NodeClass) { c.Spec.Tags = map[string]string{"dovetail.sh/cluster-uid": "forged"} },
			"ValidationSucceeded", "False", "TagValidationFailed",
		},
		{"kubelet settings that are none", func(c *awsv1.EC2NodeClass) {
			c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"maxPods": -1}`)}
		}, "ValidationSucceeded", "False", "InvalidKubeletConfiguration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.start(w.config("uid-1"))
			class := nodeClass("default")
			tc.edit(class)
			got := conditionOf(c.ResolveNodeClass(t.Context(), class), tc.condition)
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What an image family has no setting for is ignored, and named: it does not stop the class.
func TestIgnoredKubeletFieldsLeaveTheClassReady(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
	class.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"podsPerCore": 3, "maxPods": 20}`)}
	resolve(t, c, class)
	got := conditionOf(c.ResolveNodeClass(t.Context(), class), awsv1.ConditionValidationSucceeded)
	if got.Status != metav1.ConditionTrue ||
		got.Message != "image family Bottlerocket has no setting for spec.kubelet.podsPerCore; ignored" {
		t.Errorf("%+v", got)
	}
	launched(t, c, class, claim("a", onDemand))
}

// Dashboards and tests know these sentences from Karpenter.
func TestSelectorsWithoutMatchHaveKarpentersMessage(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	nothing := map[string]string{"no": "such"}
	class.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: nothing}}
	class.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: nothing}}
	r := c.ResolveNodeClass(t.Context(), class)
	for condition, want := range map[string]string{
		awsv1.ConditionSubnetsReady:        "SubnetSelector did not match any Subnets",
		awsv1.ConditionSecurityGroupsReady: "SecurityGroupSelector did not match any SecurityGroups",
	} {
		if got := conditionOf(r, condition); got.Status != metav1.ConditionFalse || got.Message != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

func TestDependencyIsUnknown(t *testing.T) {
	t.Run("of a dependency nothing is known yet", func(t *testing.T) {
		w := newWorld(t)
		c := w.start(w.config("uid-1"))
		class := nodeClass("default")
		w.Sim.Inject(
			awsim.Fault{Service: "ec2", Action: "DescribeSecurityGroups", Error: protocol.Errorf("InternalError", "bad minute").WithStatus(500)},
		)
		r := c.ResolveNodeClass(t.Context(), class)
		got := conditionOf(r, awsv1.ConditionValidationSucceeded)
		if got.Status != metav1.ConditionUnknown || got.Reason != "DependenciesNotReady" ||
			!strings.Contains(got.Message, "SecurityGroupsReady") {
			t.Errorf("%+v", got)
		}
		if got := conditionOf(c.ResolveNodeClass(t.Context(), class), awsv1.ConditionValidationSucceeded); got.Status != metav1.ConditionTrue {
			t.Errorf("once it is known: %+v", got)
		}
	})
}

func TestEditedClassIsLookedUpAnew(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	all := len(class.Status.Subnets)
	calls := w.called("DescribeSubnets")
	resolve(t, c, class)
	if n := w.called("DescribeSubnets"); n != calls {
		t.Error("EC2 got two calls within a minute")
	}
	class.Generation++
	class.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: class.Status.Subnets[0].ID}}
	resolve(t, c, class)
	if n := len(class.Status.Subnets); n != 1 || all == 1 {
		t.Errorf("%d of %d subnets", n, all)
	}
}

// Without an answer what was known stays: a node class does not lose its subnets to a bad minute of EC2.
func TestBadMinute(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	class.Generation++
	w.Sim.Inject(
		awsim.Fault{Service: "ec2", Action: "DescribeSubnets", Error: protocol.Errorf("InternalError", "bad minute").WithStatus(500)},
	)
	r := c.ResolveNodeClass(t.Context(), class)
	if r.Err == nil || len(r.Status.Subnets) != len(class.Status.Subnets) || conditionOf(r, "SubnetsReady").Status != "unchanged" {
		t.Errorf("error %v, %d subnets, %+v", r.Err, len(r.Status.Subnets), conditionOf(r, "SubnetsReady"))
	}
}

func TestRoleChanges(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	first := class.Status.InstanceProfile
	class.Spec.Role = "/path/to/" + awsim.NodeRole(clusterName)
	resolve(t, w.start(w.config("uid-1")), class)
	if class.Status.InstanceProfile != first {
		t.Error("a role with a path is taken for another one")
	}
	class.Spec.Role = awsim.ControllerRole(clusterName)
	resolve(t, c, class)
	if class.Status.InstanceProfile == first {
		t.Error("the profile holds the old role")
	}
}
