package awstest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"golang.org/x/sync/errgroup"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// BenchmarkLaunch launches a thousand claims, a hundred at a time as the controller does, and prints how many come to
// be a second and how many calls that takes. EC2 lets an account make 5 calls of CreateFleet a second, and 50 at once:
// what needs more than 50 is held up by EC2.
func BenchmarkLaunch(b *testing.B) {
	const claims, workers = 1000, 100
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprintf("together=%v", together), func(b *testing.B) {
			for range b.N {
				w := newWorld(b)
				cfg := w.config("uid-1")
				cfg.Window = batch.Window{} // as shipped
				cfg.AWS.HTTPClient = http.DefaultClient
				cfg.AWS.Retryer = func() awssdk.Retryer { return retry.NewStandard() }
				c := w.start(cfg)
				class := nodeClass("default")
				resolve(b, c, class)
				class.ResourceVersion = "1" // as every class has that an API server holds
				before := len(w.Sim.Calls())
				began := time.Now()
				var work errgroup.Group
				work.SetLimit(workers)
				for n := range claims {
					work.Go(func() error {
						one := claim(fmt.Sprintf("general-%d", n), onDemand, instanceTypes("m5.large", "c5.large", "m6i.large"))
						if !together {
							_, err := c.Launch(context.Background(), one, class)
							return err
						}
						one.Annotations = map[string]string{karpv1.AnnotationLaunch: cloudprovider.Unlaunched}
						_, err := c.LaunchInBatch(context.Background(), one, class, func(context.Context, string) error { return nil })
						return err
					})
				}
				if err := work.Wait(); err != nil {
					b.Fatal(err)
				}
				if n := len(w.runningInstances()); n != claims {
					b.Fatalf("%d instances for %d claims", n, claims)
				}
				fleets := w.called("CreateFleet")
				b.ReportMetric(claims/time.Since(began).Seconds(), "claims/s")
				b.ReportMetric(float64(fleets), "CreateFleets")
				b.ReportMetric(float64(len(w.Sim.Calls())-before), "calls")
				b.ReportMetric(max(0, float64(fleets-50)/5), "s-throttled-by-EC2")
			}
		})
	}
}
