package awstest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// permissionCase is something that the controller does in AWS.
type permissionCase struct {
	name string
	do   func(ctx context.Context, x *permissionFixture) error
}

// permissionFixture is the world in which exercises are done, one after the other.
type permissionFixture struct {
	*world
	cfg   adapter.Config
	cloud *cloud
	class *awsv1.EC2NodeClass
	// ids are the provider IDs of what was launched.
	ids []string
}

func (x *permissionFixture) launch(ctx context.Context, name string, class *awsv1.EC2NodeClass, capacityType string) error {
	got, err := x.cloud.Launch(ctx, claim(name, in("karpenter.sh/capacity-type", capacityType)), class)
	if err == nil {
		x.ids = append(x.ids, got.ProviderID)
		x.Clock.Advance(instance.VisibleWithin)
	}
	return err
}

// unmarked takes Dovetail's tags off an instance: so Karpenter leaves them.
func (x *permissionFixture) unmarked(providerID string) string {
	id := providerID[strings.LastIndexByte(providerID, '/')+1:]
	awsimtest.OK(ec2.NewFromConfig(x.Config).DeleteTags(x.t.Context(), &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{
		{Key: awssdk.String("dovetail.sh/cluster-uid")}, {Key: awssdk.String("dovetail.sh/nodeclaim-uid")},
	}}))(x.t)
	return id
}

// permissionCases are all that the controller does in AWS.
func permissionCases() []permissionCase {
	return []permissionCase{
		{"start: EC2 can be called, and EKS knows the cluster", func(ctx context.Context, x *permissionFixture) (err error) {
			if x.cloud, err = newCloud(x.cfg); err != nil {
				return err
			}
			return x.cloud.Preflight(ctx, ekscluster.APIServer{Endpoint: "https://10.100.0.1", CA: x.ca})
		}},
		{"learn what is sold and at what price", func(ctx context.Context, x *permissionFixture) error { return x.cloud.Refresh(ctx) }},
		{"look for what keeps nodes of a new class from joining", func(ctx context.Context, x *permissionFixture) error {
			x.cloud.CheckNodeClass(ctx, nodeClass("new"))
			return nil
		}},
		{"resolve a node class", func(ctx context.Context, x *permissionFixture) error {
			x.group("apart", "spread", 0)
			x.reserve(1)
			x.class = reserving()
			x.class.Spec.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "apart"}
			r := x.cloud.ResolveNodeClass(ctx, x.class)
			x.class.Status = r.Status
			return r.Err
		}},
		{"launch on demand", func(ctx context.Context, x *permissionFixture) error {
			return x.launch(ctx, "general-1", x.class, "on-demand")
		}},
		{"launch spot", func(ctx context.Context, x *permissionFixture) error {
			return x.launch(ctx, "general-2", x.class, "spot")
		}},
		{"launch into a reservation", func(ctx context.Context, x *permissionFixture) error {
			return x.launch(ctx, "general-3", x.class, "reserved")
		}},
		{"name an instance whose node has joined", func(ctx context.Context, x *permissionFixture) error {
			return x.cloud.Name(ctx, x.ids[0], "node-1", "general-1")
		}},
		{"say why an instance does not join", func(ctx context.Context, x *permissionFixture) error {
			late := claim("general-2")
			late.Status.ProviderID = x.ids[1]
			_, err := x.cloud.ExplainJoin(ctx, late, x.class)
			return err
		}},
		{"poll the status of instances", func(ctx context.Context, x *permissionFixture) error {
			_, err := ec2.NewFromConfig(x.cfg.AWS).DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{})
			return err
		}},
		{"ask which zones traffic is shifted away from", func(ctx context.Context, x *permissionFixture) error { return x.zonalShift(ctx) }},
		{"handle a message of interruption", func(ctx context.Context, x *permissionFixture) error { return x.receive(ctx) }},
		{"take over an instance of Karpenter", func(ctx context.Context, x *permissionFixture) error {
			x.unmarked(x.ids[0])
			i, err := x.cloud.Get(ctx, x.ids[0])
			if err != nil {
				return err
			}
			return x.cloud.Adopt(ctx, i)
		}},
		{"end instances", func(ctx context.Context, x *permissionFixture) error {
			var errs []error
			for _, id := range x.ids {
				errs = append(errs, x.cloud.Terminate(ctx, destroytest.Permit(id)))
			}
			x.advancePastDelays()
			return errors.Join(errs...)
		}},
		{"end a node class of which Karpenter has made a profile", func(ctx context.Context, x *permissionFixture) error {
			x.profileOfKarpenter()
			return x.cloud.DeleteNodeClassResources(ctx, x.class)
		}},
	}
}

// zonalShift reads the zonal shifts of the cluster.
func (x *permissionFixture) zonalShift(ctx context.Context) error {
	arn := url.PathEscape("arn:aws:eks:us-east-1:111122223333:cluster/" + clusterName)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.URL+"/managedresources/"+arn, nil)
	if err != nil {
		return err
	}
	keys, err := x.cfg.AWS.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	empty := sha256.Sum256(nil)
	if err := v4.NewSigner().SignHTTP(ctx, keys, r, hex.EncodeToString(empty[:]), "arc-zonal-shift", "us-east-1", x.Clock.Now()); err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("arc-zonal-shift:GetManagedResource: %s", answer.Status)
	}
	return nil
}

// receive takes a message off the queue.
func (x *permissionFixture) receive(ctx context.Context) error {
	if err := x.Sim.SQS().Send(clusterName, "{}"); err != nil {
		return err
	}
	client := sqs.NewFromConfig(x.cfg.AWS)
	queue, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: awssdk.String(clusterName)})
	if err != nil {
		return err
	}
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl})
	if err != nil {
		return err
	}
	for _, m := range got.Messages {
		if _, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue.QueueUrl, ReceiptHandle: m.ReceiptHandle}); err != nil {
			return err
		}
	}
	return nil
}

// profileOfKarpenter makes a profile as Karpenter tags one for the class.
func (x *permissionFixture) profileOfKarpenter() {
	tags := map[string]string{
		"kubernetes.io/cluster/" + clusterName: "owned", "eks:eks-cluster-name": clusterName, "karpenter.k8s.aws/ec2nodeclass": x.class.Name,
		"topology.kubernetes.io/region": "us-east-1",
	}
	var list []iamtypes.Tag
	for key, value := range tags {
		list = append(list, iamtypes.Tag{Key: &key, Value: &value})
	}
	name, path := clusterName+"_123", "/karpenter/us-east-1/"+clusterName+"/"+string(x.class.UID)+"/"
	admin, role := iam.NewFromConfig(x.Config), awsim.NodeRole(clusterName)
	awsimtest.OK(
		admin.CreateInstanceProfile(x.t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &path, Tags: list}),
	)(
		x.t,
	)
	awsimtest.OK(
		admin.AddRoleToInstanceProfile(x.t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &role}),
	)(
		x.t,
	)
}
