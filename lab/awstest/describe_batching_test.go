package awstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// each does it for all claims, so many at a time, and one every pause as nodes join.
func each(t *testing.T, claims []*karpv1.NodeClaim, workers int, pause time.Duration, do func(*karpv1.NodeClaim) error) {
	t.Helper()
	var work errgroup.Group
	work.SetLimit(workers)
	tick := time.NewTicker(max(pause, time.Microsecond))
	defer tick.Stop()
	for _, c := range claims {
		<-tick.C
		work.Go(func() error { return do(c) })
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
}

// launchTogether launches claims as the controller does, with the windows that are shipped, and writes on them what
// came of it.
func launchTogether(t *testing.T, c *cloud, class *awsv1.EC2NodeClass, claims []*karpv1.NodeClaim) {
	t.Helper()
	each(t, claims, len(claims), 0, func(one *karpv1.NodeClaim) error {
		one.Annotations = map[string]string{karpv1.AnnotationLaunch: cloudprovider.Unlaunched}
		got, err := c.LaunchInBatch(context.Background(), one, class, func(context.Context, string) error { return nil })
		one.Status.ProviderID, one.Status.ImageID = got.ProviderID, got.ImageID
		for key, value := range got.Labels {
			one.Labels[key] = value
		}
		return err
	})
}

// Between the launch of fifty nodes and their being tagged the controllers look at each instance half a dozen times.
// EC2 is to be called for all of them together, not for each.
func TestFiftyNewNodesTakeFewCallsOfDescribeInstances(t *testing.T) {
	const (
		nodes    = 50
		drifting = 10 // workers of the reconciler that looks for drift
		tagging  = 50 // workers of the one that tags
		joining  = 20 * time.Millisecond
		updates  = 4 // of a claim while its node comes up: launched, registered, initialized, tagged
	)
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.Window = batch.Window{} // as shipped
	c := w.start(cfg)
	class := nodeClass("default")
	resolve(t, c, class)
	class.ResourceVersion = "1" // as every class has that an API server holds
	old := []*karpv1.NodeClaim{claim("old", onDemand)}
	launchTogether(t, c, class, old)
	w.advancePastDelays()
	compare := func(one *karpv1.NodeClaim) error {
		reason, err := c.Drift(t.Context(), class, one)
		if err == nil && reason != "" {
			err = fmt.Errorf("%s has drifted: %s", one.Name, reason)
		}
		return err
	}
	each(t, old, 1, 0, compare) // there is a listing that does not have the new ones

	var claims []*karpv1.NodeClaim
	for n := range nodes {
		claims = append(claims, claim(fmt.Sprintf("new-%d", n), onDemand))
	}
	before := w.called("DescribeInstances")
	launchTogether(t, c, class, claims)
	each(t, claims, drifting, 0, compare)
	w.advancePastDelays()
	for range updates - 1 {
		each(t, claims, drifting, 0, compare)
	}
	compared := w.called("DescribeInstances")
	began := time.Now()
	each(t, claims, tagging, joining, func(one *karpv1.NodeClaim) error {
		return c.Name(t.Context(), one.Status.ProviderID, "node-of-"+one.Name, one.Name)
	})
	took, tagged := time.Since(began), w.called("DescribeInstances")
	t.Logf("%d calls for drift, %d for tags, which took %v", compared-before, tagged-compared, took)
	if calls := tagged - before; calls > nodes/10 {
		t.Errorf("%d calls of DescribeInstances for %d nodes, want a tenth of that at most", calls, nodes)
	}
	if took > 10*time.Second {
		t.Errorf("tagging took %v", took)
	}
	if n := len(w.runningInstances()); n != nodes+1 {
		t.Errorf("%d instances", n)
	}
}
