package ec2_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// TestConcurrentFleets launches and finishes from many clients at once: every address is used once and all come back.
func TestConcurrentFleets(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	before := a.free(t)
	const clients, each = 8, 10
	ids := make([][]string, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for range each {
				out, err := a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large"))
				if err != nil {
					t.Error(err)
					return
				}
				ids[c] = append(ids[c], launchedIDs(out)...)
			}
		})
	}
	wg.Wait()
	a.Clock.Advance(time.Minute)
	all := slices.Concat(ids...)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != clients*each {
		t.Fatalf("%d different IDs of %d launches", n, clients*each)
	}
	addresses := map[string]bool{}
	for _, i := range a.describe(t, filter("instance-state-name", "running")) {
		addresses[*i.PrivateIpAddress] = true
	}
	if len(addresses) != clients*each {
		t.Errorf("%d different addresses of %d instances", len(addresses), clients*each)
	}
	must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: all}))(t)
	a.Clock.Advance(time.Minute)
	if after := a.free(t); !slices.Equal(after, before) {
		t.Errorf("free addresses %v, were %v", after, before)
	}
}

// bench is an account with large subnets and many instances.
type bench struct {
	inProcess
	clock *clock.Fake
	image string
	nets  []string
}

func newBench(b *testing.B, instances int) *bench {
	fake := clock.NewFake(time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC))
	sim := must(awsim.New(awsim.Options{Clock: fake, Latency: -1}))(b)
	vpc := must(sim.EC2().AddVPC(ec2.VPC{CIDR: netip.MustParsePrefix("10.0.0.0/16")}))(b)
	w := &bench{inProcess: inProcess{sim}, clock: fake}
	for i, zone := range sim.EC2().Zones() {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i * 64), 0}), 18)
		w.nets = append(w.nets, must(sim.EC2().AddSubnet(ec2.Subnet{VPCID: vpc, Zone: zone.Name, CIDR: cidr}))(b))
	}
	w.image = imageNamed("amazon-eks-node-al2023-x86_64-standard-1.36-v20260715")
	w.call(b, "Action=CreateLaunchTemplate&LaunchTemplateName=general&LaunchTemplateData.ImageId="+w.image)
	for left := instances; left > 0; left -= 1000 {
		w.call(b, w.fleet(min(left, 1000), "m5.large"))
	}
	fake.Advance(time.Minute)
	return w
}

// inProcess calls an account without a network in between.
type inProcess struct{ sim *awsim.Sim }

// call sends the parameters of an action that must succeed and returns the answer.
func (p inProcess) call(t testing.TB, parameters string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(parameters+"&Version=2016-11-15"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0")
	answer := httptest.NewRecorder()
	p.sim.ServeHTTP(answer, r)
	if answer.Code != http.StatusOK {
		t.Fatal(answer.Body.String())
	}
	return answer.Body.String()
}

func (w *bench) fleet(n int, instanceTypes ...string) string {
	var p strings.Builder
	fmt.Fprintf(&p, "Action=CreateFleet&Type=instant&TargetCapacitySpecification.TotalTargetCapacity=%d", n)
	const config = "&LaunchTemplateConfigs.1."
	p.WriteString(config + "LaunchTemplateSpecification.LaunchTemplateName=general")
	at := 0
	for _, typ := range instanceTypes {
		for _, subnet := range w.nets {
			at++
			fmt.Fprintf(
				&p,
				config+"Overrides.%[1]d.InstanceType=%[2]s"+config+"Overrides.%[1]d.SubnetId=%[3]s"+config+"Overrides.%[1]d.Priority=%[1]d",
				at,
				typ,
				subnet,
			)
		}
	}
	return p.String()
}

func BenchmarkCreateFleet(b *testing.B) {
	w := newBench(b, 0)
	request := w.fleet(
		1,
		"m5.large",
		"c5.large",
		"r5.large",
		"m5.xlarge",
		"c5.xlarge",
		"r5.xlarge",
		"m5.2xlarge",
		"c5.2xlarge",
		"r5.2xlarge",
		"m5.4xlarge",
		"c5.4xlarge",
		"r5.4xlarge",
		"m6i.large",
		"c6i.large",
		"r6i.large",
		"m6i.xlarge",
		"c6i.xlarge",
		"r6i.xlarge",
		"m6i.2xlarge",
		"c6i.2xlarge",
	)
	for b.Loop() {
		w.call(b, request)
	}
}

func BenchmarkDescribeInstances(b *testing.B) {
	w := newBench(b, 10000)
	for b.Loop() {
		seen, next := 0, ""
		for {
			answer := w.call(b, "Action=DescribeInstances&MaxResults=1000&Filter.1.Name=instance-state-name&Filter.1.Value.1=running"+next)
			seen += strings.Count(answer, "<instanceId>")
			_, rest, more := strings.Cut(answer, "<nextToken>")
			if !more {
				break
			}
			token, _, _ := strings.Cut(rest, "<")
			next = "&NextToken=" + strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(token)
		}
		if seen != 10000 {
			b.Fatalf("%d instances", seen)
		}
	}
}

func BenchmarkDescribeOneOfMany(b *testing.B) {
	w := newBench(b, 10000)
	request := "Action=DescribeInstances&InstanceId.1=" + w.sim.Instances()[5000].ID
	for b.Loop() {
		w.call(b, request)
	}
}
