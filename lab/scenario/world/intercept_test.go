package world

import (
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
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
