package session

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

var errReadOnly = errors.New("refused")

// A client of a read-only configuration sends calls that read, and refuses all others before they are sent.
func TestReadOnly(t *testing.T) {
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.FormValue("Action"))
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	var refused []string
	cfg := ReadOnly(aws.Config{
		Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	}, func(service, action string) error {
		refused = append(refused, service+" "+action)
		return errReadOnly
	})
	api := ec2.NewFromConfig(cfg)
	if _, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}); errors.Is(err, errReadOnly) || len(sent) != 1 {
		t.Errorf("DescribeInstances: %v; sent: %v", err, sent)
	}
	for name, call := range map[string]func() error{
		"CreateFleet": func() error {
			_, err := api.CreateFleet(t.Context(), &ec2.CreateFleetInput{
				LaunchTemplateConfigs: nil, TargetCapacitySpecification: nil, DryRun: aws.Bool(true),
			})
			return err
		},
		"TerminateInstances": func() error {
			_, err := api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{"i-1"}})
			return err
		},
		"CreateTags": func() error {
			_, err := api.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{"i-1"}})
			return err
		},
		"DeleteMessage": func() error {
			in := &sqs.DeleteMessageInput{QueueUrl: &server.URL, ReceiptHandle: aws.String("r")}
			_, err := sqs.NewFromConfig(cfg).DeleteMessage(t.Context(), in)
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	if len(sent) != 1 {
		t.Errorf("sent: %v", sent)
	}
	if len(refused) == 0 {
		t.Error("nothing was reported as refused")
	}
}
