package joincheck

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// account is EKS and STS of an account in a partition, with one access entry.
type account struct {
	EKS
	partition, entry, kind string
}

func (a account) GetCallerIdentity(
	context.Context,
	*sts.GetCallerIdentityInput,
	...func(*sts.Options),
) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{
		Account: aws.String("111122223333"), Arn: aws.String("arn:" + a.partition + ":sts::111122223333:assumed-role/controller/session"),
	}, nil
}

func (a account) DescribeCluster(
	context.Context,
	*eks.DescribeClusterInput,
	...func(*eks.Options),
) (*eks.DescribeClusterOutput, error) {
	return &eks.DescribeClusterOutput{Cluster: &ekstypes.Cluster{
		AccessConfig: &ekstypes.AccessConfigResponse{AuthenticationMode: ekstypes.AuthenticationModeApi},
	}}, nil
}

func (a account) ListAccessEntries(
	context.Context,
	*eks.ListAccessEntriesInput,
	...func(*eks.Options),
) (*eks.ListAccessEntriesOutput, error) {
	return &eks.ListAccessEntriesOutput{AccessEntries: []string{a.entry}}, nil
}

func (a account) DescribeAccessEntry(
	context.Context,
	*eks.DescribeAccessEntryInput,
	...func(*eks.Options),
) (*eks.DescribeAccessEntryOutput, error) {
	return &eks.DescribeAccessEntryOutput{AccessEntry: &ekstypes.AccessEntry{PrincipalArn: &a.entry, Type: &a.kind}}, nil
}

// A class of an isolated VPC stays ready in every partition: account and name identify its role, although IAM cannot be
// read.
func TestNodeRoleIsMappedInIsolatedVPCsOfEveryPartition(t *testing.T) {
	for region, partition := range map[string]string{"us-gov-west-1": "aws-us-gov", "cn-north-1": "aws-cn", "eu-west-1": "aws"} {
		a := account{partition: partition, entry: "arn:" + partition + ":iam::111122223333:role/team/node", kind: "EC2_LINUX"}
		checker := New(Config{
			EKS: a, STS: a, NoIAM: true, Cluster: join.Cluster{Name: "shop", Region: region}, Version: func() string { return "1.33" },
			Now: time.Now,
		})
		class := Class{EC2NodeClass: &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{Role: "node"}}, Family: awsv1.AMIFamilyAL2023}
		class.Status.InstanceProfile = "p"
		if f, found := cloudprovider.First(checker.CheckNow(t.Context(), class)); found {
			t.Errorf("%s: the class is blamed for %s: %s", region, f.Cause, f.Text())
		}
	}
}
