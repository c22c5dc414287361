package journal_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/journal"
)

// settings are those of the account of the tests, as a process that opens it gives them.
func settings() journal.Settings {
	return journal.Settings{Opened: time.Now().UTC(), Region: "us-east-1", AccountID: "111122223333", Seed: 7, Cluster: "shop"}
}

// open takes up the account in a file, and serves it until the test finishes or end is called. It returns how many calls
// were made again.
func open(t *testing.T, path string) (sim *awsim.Sim, cfg aws.Config, replayed int, end func()) {
	t.Helper()
	kept, err := journal.Open(path, settings())
	if err != nil {
		t.Fatal(err)
	}
	sim, err = awsim.New(awsim.Options{
		AccountID: "111122223333", Seed: 7, Clock: kept.Clock, Journal: kept,
		Timing: awsim.Timing{Boot: 300 * time.Millisecond, Shutdown: 100 * time.Millisecond, TerminatedKept: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.SeedCluster(awsim.ClusterSpec{Name: "shop", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if replayed, err = kept.Replay(sim.Replay); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		server.Close()
		sim.Close()
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return sim, aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
	}, replayed, end
}

// seen is what the account shows.
func seen(t *testing.T, cfg aws.Config) string {
	t.Helper()
	ctx, c := t.Context(), ec2.NewFromConfig(cfg)
	all := []any{
		awsimtest.OK(c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}))(t).Reservations,
		awsimtest.OK(c.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{}))(t).LaunchTemplates,
		awsimtest.OK(c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{}))(t).Volumes,
		awsimtest.OK(c.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}))(t).Subnets,
		awsimtest.OK(iam.NewFromConfig(cfg).ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{}))(t).InstanceProfiles,
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func launch(t *testing.T, cfg aws.Config, token string) string {
	t.Helper()
	c := ec2.NewFromConfig(cfg)
	image := awsimtest.OK(c.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []types.Filter{
		{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-*"}},
	}}))(t).Images[0].ImageId
	subnet := awsimtest.OK(c.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}))(t).Subnets[0].SubnetId
	out := awsimtest.OK(c.RunInstances(t.Context(), &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: image, SubnetId: subnet, ClientToken: &token,
	}))(t)
	return *out.Instances[0].InstanceId
}

// await returns once an instance is in a state: the account's clock is the computer's.
func await(t *testing.T, sim *awsim.Sim, id, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	last := "unknown"
	for event := range sim.Watch(ctx) {
		if event.Instance.ID != id {
			continue
		}
		if last = event.Instance.State; last == want {
			return
		}
	}
	t.Fatalf("instance is %s, not %s", last, want)
}

func TestReplayRestoresTheAccount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account.jsonl")
	sim, cfg, replayed, end := open(t, path)
	if replayed != 0 {
		t.Errorf("a new account has %d calls", replayed)
	}
	ctx := t.Context()
	first := launch(t, cfg, "one")
	await(t, sim, first, "running")
	ended := launch(t, cfg, "two")
	awsimtest.OK(ec2.NewFromConfig(cfg).TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{ended}}))(t)
	await(t, sim, ended, "terminated")
	awsimtest.OK(
		iam.NewFromConfig(cfg).CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("nodes")}),
	)(
		t,
	)
	role := "arn:aws:iam::111122223333:role/team"
	awsimtest.OK(
		iam.NewFromConfig(cfg).CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String("team"), AssumeRolePolicyDocument: aws.String(
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`)}),
	)(
		t,
	)
	session := awsimtest.OK(
		sts.NewFromConfig(cfg).AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: aws.String("me")}),
	)(
		t,
	).Credentials
	queues := sqs.NewFromConfig(cfg)
	queue := awsimtest.OK(queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("shop")}))(t).QueueUrl
	for _, body := range []string{"done", "open"} {
		awsimtest.OK(queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body}))(t)
	}
	got := awsimtest.OK(
		queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20, VisibilityTimeout: 1}),
	)(
		t,
	).Messages
	awsimtest.OK(queues.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: got[0].ReceiptHandle}))(t)
	booting := launch(t, cfg, "three")
	await(t, sim, booting, "running")
	before := seen(t, cfg)
	end()

	// Cut off in the middle of a call that was never answered.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"At":"2026-`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	_, cfg, replayed, end = open(t, path)
	if replayed == 0 {
		t.Error("no call was made again")
	}
	if diff := cmp.Diff(before, seen(t, cfg)); diff != "" {
		t.Errorf("after it was taken up again (-before +after):\n%s", diff)
	}
	if again := launch(t, cfg, "one"); again != first {
		t.Errorf("a token of old launches another instance: %s, not %s", again, first)
	}
	other := cfg
	other.Credentials = credentials.NewStaticCredentialsProvider(*session.AccessKeyId, *session.SecretAccessKey, *session.SessionToken)
	if who := awsimtest.OK(sts.NewFromConfig(other).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}))(t); !strings.HasSuffix(
		*who.Arn,
		"assumed-role/team/me",
	) {
		t.Errorf("the session of old is %s", *who.Arn)
	}
	left := awsimtest.OK(sqs.NewFromConfig(cfg).ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(*cfg.BaseEndpoint + "/111122223333/shop"), WaitTimeSeconds: 5, MaxNumberOfMessages: 10,
	}))(t).Messages
	if len(left) != 1 || *left[0].Body == *got[0].Body {
		t.Errorf("%d messages are left", len(left))
	}
	// What was under way when it finished goes on, and so does the account.
	next := launch(t, cfg, "four")
	end()
	sim, _, _, _ = open(t, path)
	await(t, sim, next, "running")
}

func TestAnotherAccountsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account.jsonl")
	_, _, _, end := open(t, path)
	end()
	other := settings()
	other.EnforceIAM = true
	if _, err := journal.Open(path, other); err == nil ||
		!strings.Contains(
			err.Error(),
			"other settings: region us-east-1, cluster shop; this one has region us-east-1, cluster shop, IAM enforced",
		) {
		t.Errorf("other settings: %v", err)
	}
	if err := os.WriteFile(path, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(path, settings()); err == nil || !strings.Contains(err.Error(), "not the state of an account") {
		t.Errorf("no state: %v", err)
	}
}
