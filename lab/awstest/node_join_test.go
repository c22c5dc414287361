package awstest

import (
	"context"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// authMap is an API server that holds no more than aws-auth.
type authMap map[string]string

func (m authMap) AuthMap(context.Context) (map[string]string, bool, error) { return m, m != nil, nil }

func (authMap) NodesOfRole(context.Context, string, string) (join.Running, error) {
	return join.Running{Linux: 3}, nil
}
func (authMap) NodeWebhooks(context.Context) ([]join.Webhook, error) { return nil, nil }

const nodeRoleARN = "arn:aws:iam::111122223333:role/KarpenterNodeRole-blue"

// joinCheck is the condition NodesCanJoin as the class is resolved now.
func joinCheck(t *testing.T, c *cloud, class *awsv1.EC2NodeClass) cloudprovider.Condition {
	t.Helper()
	for _, condition := range c.ResolveNodeClass(t.Context(), class).Conditions {
		if condition.Type == awsv1.ConditionNodesCanJoin {
			return condition
		}
	}
	t.Fatal("there is no condition NodesCanJoin")
	return cloudprovider.Condition{}
}

func unmapNodes(t *testing.T, w *world) *eks.Client {
	t.Helper()
	client := eks.NewFromConfig(w.Config)
	if _, err := client.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: awssdk.String(clusterName), PrincipalArn: awssdk.String(nodeRoleARN)}); err != nil {
		t.Fatal(err)
	}
	return client
}

// The account is looked at before the first launch, a fault is gone soon after it was repaired, and what was sound is
// looked at again in five minutes.
func TestNodesCanJoin(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.APIServer = authMap(nil)
	c, class := w.start(cfg), nodeClass("default")
	if got := joinCheck(t, c, class); got.Status != metav1.ConditionTrue {
		t.Fatalf("a sound account: %+v", got)
	}
	client := unmapNodes(t, w)
	w.Clock.Advance(5*time.Minute + time.Second)
	got := joinCheck(t, c, class)
	if got.Status != metav1.ConditionFalse || got.Reason != join.NodeRoleNotMapped ||
		!strings.Contains(
			got.Message,
			"aws eks create-access-entry --cluster-name blue --principal-arn "+nodeRoleARN+" --region us-east-1 --type EC2_LINUX",
		) {
		t.Errorf("without an access entry: %+v", got)
	}
	if _, err := client.CreateAccessEntry(t.Context(), &eks.CreateAccessEntryInput{ClusterName: awssdk.String(clusterName), PrincipalArn: awssdk.String(nodeRoleARN), Type: awssdk.String("EC2_LINUX")}); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(10 * time.Second)
	if got := joinCheck(t, c, class); got.Status != metav1.ConditionTrue {
		t.Errorf("10 s after it was mended: %+v", got)
	}
}

// Windows nodes join with the role of Linux nodes. The class is ready, and its condition names what does not work on
// them.
func TestWindowsClassWithTheRoleOfLinuxNodesIsReady(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.APIServer = authMap(nil)
	class := nodeClass("windows")
	class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "windows2022@latest"}}
	got := joinCheck(t, w.start(cfg), class)
	if got.Status != metav1.ConditionTrue || got.Reason != join.WindowsKubeProxyDenied ||
		!strings.Contains(got.Message, "would cut off 3 running Linux nodes") ||
		strings.Contains(got.Message, "delete-access-entry") {
		t.Errorf("%+v", got)
	}
}

func TestNodesCanJoinByConfigMap(t *testing.T) {
	const line = "- rolearn: " + nodeRoleARN + "\n  username: system:node:{{EC2PrivateDNSName}}\n  groups: [system:bootstrappers, system:nodes]\n"
	for text, want := range map[string]metav1.ConditionStatus{line: metav1.ConditionTrue, strings.Replace(line, "system:nodes", "x", 1): metav1.ConditionFalse} {
		w := newWorld(t)
		unmapNodes(t, w)
		cfg := w.config("uid-1")
		cfg.APIServer = authMap{"mapRoles": text}
		if got := joinCheck(t, w.start(cfg), nodeClass("default")); got.Status != want {
			t.Errorf("%s: %+v, want %s", text, got, want)
		}
	}
}

// A denied read does not block launches, and is reported.
func TestJoiningUnchecked(t *testing.T) {
	for _, denied := range []struct{ service, action, said string }{
		{"eks", "ListAccessEntries", "the access entries of cluster blue could not be checked"},
		{"iam", "GetInstanceProfile", "the role in instance profile"},
		{"ec2", "DescribeRouteTables", "the routes of the subnets could not be checked"},
	} {
		t.Run(denied.action, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			cfg.APIServer = authMap(nil)
			c, class := w.start(cfg), nodeClass("default")
			resolve(t, c, class) // makes the instance profile
			c.RecheckJoins()
			w.Sim.Inject(
				awsim.Fault{
					Service: denied.service,
					Action:  denied.action,
					Error:   &protocol.Error{Code: "AccessDeniedException", Message: "not authorized", Status: 403},
					Times:   1000,
				},
			)
			got := joinCheck(t, c, class)
			if got.Status != metav1.ConditionUnknown || !strings.Contains(got.Message, denied.said) ||
				!strings.Contains(got.Message, "AccessDenied") {
				t.Errorf("%+v, want Unknown with %q", got, denied.said)
			}
		})
	}
}

// An instance that is late is inspected by its console, where the mapping cannot be.
func TestExplainJoin(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.APIServer = authMap(nil)
	c, class := w.start(cfg), nodeClass("default")
	resolve(t, c, class)
	if err := c.RefreshTypes(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := claim("general-1", onDemand)
	launched, err := c.Launch(t.Context(), late, class)
	if err != nil {
		t.Fatal(err)
	}
	late.Status.ProviderID = launched.ProviderID
	id := launched.ProviderID[strings.LastIndexByte(launched.ProviderID, '/')+1:]
	w.Clock.Advance(time.Minute)
	first := func() cloudprovider.Finding {
		t.Helper()
		found, err := c.ExplainJoin(t.Context(), late, class)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := cloudprovider.First(found)
		return f
	}
	if f := first(); f.Cause != "" {
		t.Errorf("nothing is wrong, and found is %+v", f)
	}
	w.Sim.AppendConsole(id, "kubelet: \"Unable to register node with API server\" err=\"Unauthorized\"\n")
	if f := first(); f.Cause != join.NodeUnauthorized || f.Certainty != cloudprovider.Likely || f.Scope != "role/KarpenterNodeRole-blue" {
		t.Errorf("by its console, and the role is mapped: %+v", f)
	}
	w.Sim.Inject(
		awsim.Fault{
			Service: "eks",
			Action:  "ListAccessEntries",
			Error:   &protocol.Error{Code: "AccessDeniedException", Message: "not authorized", Status: 403},
		},
	)
	if f := first(); f.Cause != join.NodeUnauthorized || f.Certainty != cloudprovider.Certain {
		t.Errorf("by its console, and the mapping cannot be looked at: %+v", f)
	}
	unmapNodes(t, w)
	w.Clock.Advance(10 * time.Second)
	if f := first(); f.Cause != join.NodeRoleNotMapped || !f.FromConfiguration {
		t.Errorf("the mapping says more than the console: %+v", f)
	}
}
