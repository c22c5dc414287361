package awsim_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// TestMetadata: a process on an instance that is given nothing learns its region and gets the credentials of its role.
func TestMetadata(t *testing.T) {
	w := awsimtest.Start(t)
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	profiles, machines := iam.NewFromConfig(w.Config), ec2.NewFromConfig(w.Config)
	role := awsimtest.OK(profiles.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String("worker"), AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	}))(t).Role
	awsimtest.OK(profiles.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: role.RoleName}))(t)
	awsimtest.OK(
		profiles.AddRoleToInstanceProfile(
			t.Context(),
			&iam.AddRoleToInstanceProfileInput{InstanceProfileName: role.RoleName, RoleName: role.RoleName},
		),
	)(
		t,
	)
	image := awsimtest.OK(machines.DescribeImages(t.Context(), &ec2.DescribeImagesInput{
		Filters: []types.Filter{{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.36-*"}}},
	}))(t).Images[0].ImageId
	subnet := awsimtest.OK(machines.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}))(t).Subnets[0].SubnetId
	id := *awsimtest.OK(machines.RunInstances(t.Context(), &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: image, SubnetId: subnet,
		IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: role.RoleName},
	}))(t).Instances[0].InstanceId
	handler := awsimtest.OK(w.Sim.Metadata(id))(t)
	server := httptest.NewServer(handler)
	defer server.Close()

	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_EC2_METADATA_DISABLED"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	cfg := awsimtest.OK(config.LoadDefaultConfig(t.Context(), config.WithEC2IMDSRegion(),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{})))(t)
	if cfg.Region != "us-east-1" {
		t.Errorf("region %q", cfg.Region)
	}
	got := awsimtest.OK(cfg.Credentials.Retrieve(t.Context()))(t)
	if life := got.Expires.Sub(w.Clock.Now()); !got.CanExpire || life != 6*time.Hour {
		t.Errorf("credentials expire: %t, after %s", got.CanExpire, life)
	}
	as := w.As(awsim.Credentials{AccessKeyID: got.AccessKeyID, SecretAccessKey: got.SecretAccessKey, SessionToken: got.SessionToken})
	who := awsimtest.OK(sts.NewFromConfig(as).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))(t)
	if want := "arn:aws:sts::111122223333:assumed-role/worker/" + id; *who.Arn != want {
		t.Errorf("the instance is %s, want %s", *who.Arn, want)
	}
	if _, err := w.Sim.Metadata("i-0123456789abcdef0"); err == nil {
		t.Error("metadata of an instance that does not exist")
	}
}
