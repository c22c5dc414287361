package operator

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/dependency"
)

// A start during an outage of one service waits with launches for exactly what they need, and finishes for nothing but another cluster's
// name.
func TestLaunchesWaitForWhatTheyNeedOfAWS(t *testing.T) {
	broken := &smithy.GenericAPIError{Code: "InternalError", Fault: smithy.FaultServer}
	expired := &smithy.GenericAPIError{Code: "ExpiredToken", Message: "The security token included in the request is expired"}
	denied := &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}
	throttled := &smithy.GenericAPIError{Code: "ThrottlingException"}
	const outage = 3 * time.Minute
	fails := func(err error) func(context.Context) error {
		began := time.Now()
		return func(ctx context.Context) error {
			switch {
			case time.Since(began) >= outage:
				return nil
			case err != nil:
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	}
	well := func(context.Context) error { return nil }
	for _, tc := range []struct {
		name string
		set  func(*awsReads)
		// held states how long launches wait at least, and most at most.
		held, most time.Duration
	}{
		{"all is well", func(*awsReads) {}, 0, 0},
		{"EC2 fails", func(r *awsReads) { r.types = fails(broken) }, outage, outage + time.Minute},
		{"EC2 hangs", func(r *awsReads) { r.types = fails(nil) }, outage, outage + 2*time.Minute},
		{"EC2 fails, and types of an earlier process stand in", func(r *awsReads) {
			r.types, r.earlierTypes = fails(broken), func() (time.Time, bool) { return time.Time{}, true }
		}, grace, grace},
		{"EC2 hangs, and types of an earlier process stand in", func(r *awsReads) {
			r.types, r.earlierTypes = fails(nil), func() (time.Time, bool) { return time.Time{}, true }
		}, grace, grace},
		{"types may not be read, and those of an earlier process stand in", func(r *awsReads) {
			r.types, r.earlierTypes = fails(denied), func() (time.Time, bool) { return time.Time{}, true }
		}, outage, outage + time.Minute},
		{"the credentials have expired", func(r *awsReads) {
			r.cluster, r.types, r.prices, r.shifts = fails(expired), fails(expired), fails(expired), fails(expired)
		}, outage, outage + time.Minute},
		{"there are no credentials", func(r *awsReads) { r.credentials = fails(errors.New("no role")) }, outage, outage + time.Minute},
		{"EKS fails", func(r *awsReads) { r.cluster = fails(broken) }, outage, outage + time.Minute},
		{"EKS fails, and the cluster is known", func(r *awsReads) {
			r.cluster, r.sufficient = fails(broken), func() bool { return true }
		}, 0, 0},
		{"EKS may not be called, and the cluster is configured", func(r *awsReads) {
			r.cluster, r.sufficient = fails(denied), func() bool { return true }
		}, 0, 0},
		{"the Pricing API fails", func(r *awsReads) { r.prices = fails(broken) }, grace, grace},
		{"the Pricing API hangs", func(r *awsReads) { r.prices = fails(nil) }, grace, grace},
		{"prices may not be read", func(r *awsReads) { r.prices = fails(denied) }, grace, grace},
		{"zonal shifts fail", func(r *awsReads) { r.shifts = fails(broken) }, grace, grace},
		{"zonal shifts are throttled", func(r *awsReads) { r.shifts = fails(throttled) }, grace, grace},
		{"zonal shifts hang", func(r *awsReads) { r.shifts = fails(nil) }, grace, grace},
		{"zonal shifts may not be read", func(r *awsReads) { r.shifts = fails(denied) }, outage, outage + time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := awsReads{
					credentials: well, cluster: well, types: well, prices: well, shifts: well, sufficient: func() bool { return false },
				}
				tc.set(&reads)
				began := time.Now()
				set := dependency.New(dependency.Config{
					Dependencies: awsDependencies(reads), Brief: awserrors.Brief, Changed: func() {}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- set.Start(ctx) }()
				select {
				case <-set.Allowed():
				case err := <-ended:
					t.Fatalf("it ends: %v", err)
				}
				if held := time.Since(began); held < tc.held || held > tc.most {
					t.Errorf("launches were held for %v, want %v to %v", held, tc.held, tc.most)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
	t.Run("the name is another cluster's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reads := awsReads{
				credentials: well, types: fails(nil), prices: well, sufficient: func() bool { return false },
				cluster: func(context.Context) error { return cloudprovider.ErrIdentityMismatch },
			}
			set := dependency.New(dependency.Config{
				Dependencies: awsDependencies(reads), Brief: awserrors.Brief, Changed: func() {}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
			})
			if err := set.Start(t.Context()); !errors.Is(err, cloudprovider.ErrIdentityMismatch) {
				t.Errorf("error %v", err)
			}
		})
	})
}
