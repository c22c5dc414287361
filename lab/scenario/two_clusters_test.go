package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// naiveGarbageCollection identifies instances by the cluster's name only: it terminates those with the name, older than
// 30 s, and with no NodeClaim in its API server.
func naiveGarbageCollection(ctx context.Context, w *World, c *world.Cluster) error {
	keys, err := c.Credentials()
	if err != nil {
		return err
	}
	own := ec2.NewFromConfig(aws.Config{
		Region: w.Region(), BaseEndpoint: aws.String(w.AWSURL),
		Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken),
	})
	found, err := own.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{
			Name:   aws.String("tag:eks:eks-cluster-name"),
			Values: []string{c.Name},
		}, {Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil {
		return err
	}
	var claims karpv1.NodeClaimList
	if err := c.Client.List(ctx, &claims); err != nil {
		return err
	}
	claimed := map[string]bool{}
	for _, claim := range claims.Items {
		claimed[world.InstanceID(claim.Status.ProviderID)] = true
	}
	for _, r := range found.Reservations {
		for _, i := range r.Instances {
			if claimed[*i.InstanceId] || w.AWS.Now().Sub(*i.LaunchTime) < 30*time.Second {
				continue
			}
			if _, err := own.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*i.InstanceId}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// The scenario two-clusters-one-name fails for an autoscaler that identifies instances by the cluster's name only: it
// terminates the other cluster's nodes.
func TestNaiveGarbageCollectionTerminatesForeignNodes(t *testing.T) {
	t.Parallel()
	const nodes = 3
	s := twoClustersOneName(DefaultFleet.Nodes)
	s.Steps = []Step{
		startController(),
		{Name: "the first cluster has nodes", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			for _, name := range []string{manifests.TwoClustersPools, manifests.TwoClustersWorkload} {
				text, err := clusterManifest(w, 0, name)
				if err != nil {
					return err
				}
				if err := w.Apply(ctx, text); err != nil {
					return err
				}
			}
			if err := awaitPoolReady(ctx, w); err != nil {
				return err
			}
			if err := w.Scale(ctx, steadyApp, nodes); err != nil {
				return err
			}
			return awaitPodsRunning(ctx, w, steadyApp, nodes)
		}},
		{Name: "the second cluster collects by name", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			return world.Until(ctx, func() error {
				if err := naiveGarbageCollection(ctx, w, w.Clusters[1]); err != nil {
					return err
				}
				return firstInstancesGone(w.AWS.Instances(), nodes)
			})
		}},
		{
			Name:    theScenarioFails,
			Timeout: time.Second,
			Run:     func(_ context.Context, w *World) error { return foreignChanges(w.AWS.Calls(), w.Clusters) },
		},
	}
	if message := runNaive(t, s); strings.Count(message, "lab-2: TerminateInstances on i-") < nodes {
		t.Errorf("the error is only: %s", message)
	}
}

// firstInstancesGone returns nil once the first n instances are terminated.
func firstInstancesGone(all []awsim.Instance, n int) error {
	for _, i := range all[:n] {
		if world.Live(i) {
			return errors.New("an instance of the first cluster still runs")
		}
	}
	return nil
}

func TestForeignChanges(t *testing.T) {
	clusters := []*world.Cluster{{Name: "lab", ID: "lab-1"}, {Name: "lab", ID: "lab-2"}}
	call := func(session, action, code string, resources ...string) awsim.Call {
		return awsim.Call{
			Principal: "arn:aws:sts::1:assumed-role/KarpenterControllerRole-lab/" + session,
			Action:    action,
			ErrorCode: code,
			Resources: resources,
		}
	}
	for _, tt := range []struct {
		name  string
		calls []awsim.Call
		want  string
	}{
		{"each its own", []awsim.Call{call("lab-1", "CreateFleet", "", "i-1"), call("lab-2", "CreateFleet", "", "i-2"), call("lab-1",
			"TerminateInstances", "", "i-1")}, ""},
		{
			"the other's instance",
			[]awsim.Call{call("lab-1", "CreateFleet", "", "i-1"), call("lab-2", "TerminateInstances", "", "i-1")},
			"lab-2: TerminateInstances on i-1, which belongs to lab-1",
		},
		{
			"tags on the other's instance",
			[]awsim.Call{call("lab-2", "CreateFleet", "", "i-1"), call("lab-1", "CreateTags", "", "i-1")},
			"lab-1: CreateTags on i-1, which belongs to lab-2",
		},
		{"the other's launch template", []awsim.Call{call("lab-1", "CreateLaunchTemplate", "", "lt-1"), call("lab-2", "DeleteLaunchTemplate",
			"", "lt-1")}, "lab-2: DeleteLaunchTemplate on lt-1, which belongs to lab-1"},
		{"a call that was refused", []awsim.Call{call("lab-1", "CreateFleet", "", "i-1"), call("lab-2", "TerminateInstances",
			"UnauthorizedOperation", "i-1")}, ""},
		{"somebody else's calls", []awsim.Call{call("lab-1", "CreateFleet", "", "i-1"), call("i-1", "CreateTags", "", "i-1")}, ""},
	} {
		got := ""
		if err := foreignChanges(tt.calls, clusters); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
