package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestCloud(t *testing.T) {
	reg := prometheus.NewRegistry()
	c, err := NewCloud(reg)
	if err != nil {
		t.Fatal(err)
	}
	c.LaunchFailed("us-east-1a", "use1-az1", "spot", "SpotQuotaExceeded")
	c.TerminationFailed("us-east-1a", "use1-az1")
	c.Batched("create_fleet", 3, 35*time.Millisecond)
	c.UserData("gone", 100)
	c.UserData("gone", -1)
	c.UserData("default", 1234)
	want := `
# HELP karpenter_cloudprovider_instance_launch_failures_total Offerings that could not be launched.
# TYPE karpenter_cloudprovider_instance_launch_failures_total counter
karpenter_cloudprovider_instance_launch_failures_total{capacity_type="spot",reason="SpotQuotaExceeded",zone="us-east-1a",zone_id="use1-az1"} 1
# HELP karpenter_cloudprovider_instance_termination_failures_total Calls to terminate an instance that failed.
# TYPE karpenter_cloudprovider_instance_termination_failures_total counter
karpenter_cloudprovider_instance_termination_failures_total{zone="us-east-1a",zone_id="use1-az1"} 1
# HELP karpenter_ec2nodeclasses_userdata_bytes Size of the instances' user data; EC2 accepts 16384.
# TYPE karpenter_ec2nodeclasses_userdata_bytes gauge
karpenter_ec2nodeclasses_userdata_bytes{nodeclass="default"} 1234
`
	names := []string{
		"karpenter_cloudprovider_instance_launch_failures_total",
		"karpenter_cloudprovider_instance_termination_failures_total",
		"karpenter_ec2nodeclasses_userdata_bytes",
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"karpenter_cloudprovider_batcher_batch_time_seconds", "karpenter_cloudprovider_batcher_batch_size"} {
		if n, err := testutil.GatherAndCount(reg, name); err != nil || n != 1 {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}
