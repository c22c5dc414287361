package world

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// The hook sees a call when it has taken effect, and the caller still gets its answer.
func TestIntercept(t *testing.T) {
	sim, err := awsim.New(awsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &World{AWS: sim, cfg: Config{Region: "us-east-1"}}
	server := httptest.NewServer(w.intercepted())
	t.Cleanup(server.Close)
	w.AWSURL = server.URL

	var seen []string
	w.Intercept(func(c awsim.Call) {
		known := "unknown"
		if _, ok := sim.IAM().InstanceProfile("p"); ok {
			known = "known"
		}
		seen = append(seen, c.Service+" "+c.Action+" "+c.ErrorCode+": profile "+known)
	})
	created, err := w.IAM().CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("p")})
	if err != nil || aws.ToString(created.InstanceProfile.InstanceProfileName) != "p" {
		t.Fatalf("got %+v, %v", created, err)
	}
	_, err = w.EC2().DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000001"}})
	if err == nil {
		t.Error("an unknown instance was described")
	}
	w.Intercept(nil)
	if _, err := w.EC2().DescribeVpcs(t.Context(), nil); err != nil {
		t.Error(err)
	}
	want := []string{"iam CreateInstanceProfile : profile known", "ec2 DescribeInstances InvalidInstanceID.NotFound: profile known"}
	if len(seen) != 2 || seen[0] != want[0] || seen[1] != want[1] {
		t.Errorf("saw %q, want %q", seen, want)
	}
}

// Who is blind may do everything but describe clusters.
func TestBlind(t *testing.T) {
	sim, err := awsim.New(awsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.SeedCluster(awsim.ClusterSpec{Name: "lab", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	w := &World{AWS: sim, cfg: Config{Region: "us-east-1"}}
	server := httptest.NewServer(w.intercepted())
	t.Cleanup(server.Close)
	w.AWSURL = server.URL
	describe := func(blind bool) error {
		c := &Cluster{Name: "lab", ID: "lab-1", world: w, describeDenied: blind}
		keys, err := c.Credentials()
		if err != nil {
			t.Fatal(err)
		}
		sdk := w.sdk()
		sdk.Credentials = credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken)
		if _, err := ec2.NewFromConfig(sdk).DescribeVpcs(t.Context(), nil); err != nil {
			t.Error(err)
		}
		_, err = eks.NewFromConfig(sdk).DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("lab")})
		return err
	}
	if err := describe(false); err != nil {
		t.Error(err)
	}
	if err := describe(true); err == nil || !strings.Contains(err.Error(), "AccessDeniedException") {
		t.Errorf("got %v", err)
	}
	if calls := sim.Calls(); !strings.HasSuffix(calls[0].Principal, "/lab-1") {
		t.Errorf("the session is that of %s", calls[0].Principal)
	}
}
