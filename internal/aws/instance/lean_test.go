package instance

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// pages is an EC2 that answers one call after another with a page.
type pages struct {
	all   []string
	calls int
}

func (p *pages) Do(*http.Request) (*http.Response, error) {
	body := p.all[p.calls]
	p.calls++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func pageOf(id, next string) string {
	return `<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>` + id + `</instanceId><placement>` +
		`<availabilityZone>us-east-1a</availabilityZone></placement><tagSet><item><key>Name</key><value>node</value></item></tagSet>` +
		`</item></instancesSet></item></reservationSet><nextToken>` + next + `</nextToken></DescribeInstancesResponse>`
}

// A page that is written in another way than EC2 writes it is read once more, by the SDK, and so are the ones after it. The list is
// complete, and no page is read twice otherwise.
func TestPagesThatOnlyTheSDKReads(t *testing.T) {
	odd := pageOf("<![CDATA[i-2]]>", "b")
	for _, tt := range []struct {
		name  string
		pages []string
	}{
		{"none", []string{pageOf("i-1", "a"), pageOf("i-2", "b"), pageOf("i-3", "")}},
		{"the second", []string{pageOf("i-1", "a"), odd, odd, pageOf("i-3", "")}},
		{"a page that breaks off", []string{pageOf("i-1", "a"), odd[:100], odd, pageOf("i-3", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pages{all: tt.pages}
			api := ec2.New(ec2.Options{
				Region: "us-east-1", Credentials: aws.AnonymousCredentials{}, HTTPClient: p, Retryer: aws.NopRetryer{},
			})
			found, err := New(Config{EC2: api, Identity: blue, Now: time.Now}).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range found {
				got = append(got, i.ProviderID+" "+i.Tags["Name"])
			}
			const want = "aws:///us-east-1a/i-1 node, aws:///us-east-1a/i-2 node, aws:///us-east-1a/i-3 node"
			if strings.Join(got, ", ") != want || p.calls != len(tt.pages) {
				t.Errorf("%v after %d calls", got, p.calls)
			}
		})
	}
}
