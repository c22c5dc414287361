package console

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

func TestANodeClassIsShownWithWhatItsSelectorsFound(t *testing.T) {
	w := newWorld(t)
	class := w.view.NodeClasses["default"]
	if class == nil {
		t.Fatal("the cluster of the test has no node class")
	}
	class.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "secret"}
	class.Status = awsv1.EC2NodeClassStatus{
		AMIs: []awsv1.AMI{{
			ID: "ami-1", Name: "al2023-arm64", Deprecated: true,
			Requirements: []awsv1.AMIRequirement{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"arm64"}}},
		}},
		Subnets: []awsv1.Subnet{{ID: "subnet-1", Zone: "us-east-1a"}}, SecurityGroups: []awsv1.SecurityGroup{{ID: "sg-1", Name: "<nodes>"}},
		Conditions: []metav1.Condition{
			{Type: "AMIsReady", Status: metav1.ConditionTrue}, {Type: "Ready", Status: metav1.ConditionFalse, Message: "no instance profile"},
		},
	}
	got := decoded[NodeClassReport](t, get(w.console(), apiRoot+"/nodeclasses/default"))
	image := Image{ID: "ami-1", Name: "al2023-arm64", Deprecated: true, For: "kubernetes.io/arch In arm64"}
	if len(got.Images) != 1 || got.Images[0] != image {
		t.Errorf("the images are %+v", got.Images)
	}
	if !got.Resolved || len(got.Subnets) != 1 || got.Subnets[0].Note != "us-east-1a" ||
		len(got.SecurityGroups) != 1 || got.SecurityGroups[0].Note != "<nodes>" {
		t.Errorf("it has %+v and %+v", got.Subnets, got.SecurityGroups)
	}
	if len(got.Faults) != 1 || got.Faults[0] != (NodeClassFault{Type: "Ready", Status: "False", Message: "no instance profile"}) {
		t.Errorf("the faults are %+v", got.Faults)
	}
	if len(got.NodePools) == 0 || !strings.Contains(got.Manifest, "kind: EC2NodeClass") || strings.Contains(got.Manifest, "secret") ||
		strings.Contains(got.Manifest, "status") {
		t.Errorf("NodePools %v, manifest\n%s", got.NodePools, got.Manifest)
	}
	if none := get(w.console(), apiRoot+"/nodeclasses/no-such"); none.Code != http.StatusNotFound {
		t.Errorf("one that is not there: %d %s", none.Code, none.Body)
	}
}
