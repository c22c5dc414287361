package awsim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// What no SDK would send is rejected as the services reject it.
func TestUnknown(t *testing.T) {
	w := awsimtest.Start(t)
	seed(t, w, awsim.ClusterSpec{Name: "c1"})
	form, json := "application/x-www-form-urlencoded", "application/x-amz-json-1.1"
	const iam, sts = "&Version=2010-05-08", "&Version=2011-06-15"
	for _, row := range []struct {
		what, service, contentType, target, body string
		status                                   int
		answer                                   string
	}{
		{"iam action", "iam", form, "", "Action=CreateVirtualMFADevice" + iam, 400, "<Code>InvalidAction</Code>"},
		{"iam parameter", "iam", form, "", "Action=GetRole&RoleName=x&Colour=red" + iam, 400, "<Code>ValidationError</Code>"},
		{"iam parameter missing", "iam", form, "", "Action=GetRole" + iam, 400, "<Code>ValidationError</Code>"},
		{"iam version", "iam", form, "", "Action=GetRole&RoleName=x&Version=2000-01-01", 400, "<Code>NoSuchVersion</Code>"},
		{
			"iam tag without value", "iam", form, "", "Action=CreateInstanceProfile&InstanceProfileName=p&Tags.member.1.Key=k" + iam, 400,
			"<Code>ValidationError</Code>",
		},
		{"sts action", "sts", form, "", "Action=GetSessionToken" + sts, 400, "<Code>InvalidAction</Code>"},
		{"sts parameter", "sts", form, "", "Action=GetCallerIdentity&Colour=red" + sts, 400, "<Code>ValidationError</Code>"},
		{"ssm action", "ssm", json, "AmazonSSM.SendCommand", "{}", 400, "UnknownOperationException"},
		{"ssm member", "ssm", json, "AmazonSSM.GetParameter", `{"Name":"x","Colour":"red"}`, 400, "SerializationException"},
		{"ssm member of another type", "ssm", json, "AmazonSSM.GetParameter", `{"Name":1}`, 400, "SerializationException"},
		{"ssm member missing", "ssm", json, "AmazonSSM.GetParameter", `{}`, 400, "ValidationException"},
		{"ssm no JSON", "ssm", json, "AmazonSSM.GetParameter", `Name=x`, 400, "SerializationException"},
		{"sqs action", "sqs", json, "AmazonSQS.PurgeQueue", "{}", 400, "UnknownOperationException"},
		{"sqs member", "sqs", json, "AmazonSQS.GetQueueUrl", `{"QueueName":"c1","Colour":"red"}`, 400, "SerializationException"},
		{"pricing action", "pricing", json, "AWSPriceListService.DescribeServices", "{}", 400, "UnknownOperationException"},
		{"pricing member", "pricing", json, "AWSPriceListService.GetProducts", `{"Colour":"red"}`, 400, "SerializationException"},
		{"pricing member missing", "pricing", json, "AWSPriceListService.GetProducts", `{}`, 400, "InvalidParameterException"},
	} {
		req := awsimtest.OK(http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/", strings.NewReader(row.body)))(t)
		req.Header.Set(
			"Authorization",
			"AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/"+row.service+"/aws4_request, SignedHeaders=host, Signature=0",
		)
		req.Header.Set("Content-Type", row.contentType)
		if row.target != "" {
			req.Header.Set("X-Amz-Target", row.target)
		}
		resp := awsimtest.OK(http.DefaultClient.Do(req))(t)
		answer := string(awsimtest.OK(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		if resp.StatusCode != row.status || !strings.Contains(answer, row.answer) {
			t.Errorf("%s: %d %s; want %d with %s", row.what, resp.StatusCode, answer, row.status, row.answer)
		}
	}
}
