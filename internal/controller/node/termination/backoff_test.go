package termination

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A cloud that is called too often is not called ten times more within a few seconds; and after it has failed for an
// hour, what is to be terminated does not wait for long.
func TestFailuresAreRepeatedInMeasure(t *testing.T) {
	for _, tt := range []struct {
		name           string
		options        controller.Options
		first, longest time.Duration
	}{
		{"a node", (&NodeReconciler{}).options(), 100 * time.Millisecond, 10 * time.Second},
		{"a claim", (&ClaimReconciler{}).options(), time.Second, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.options.RateLimiter == nil {
				t.Fatal("failures are repeated at controller-runtime's pace: first after 5 ms, at last after 1000 s")
			}
			var first, last time.Duration
			for n := range 30 {
				last = tt.options.RateLimiter.When(reconcile.Request{})
				if n == 0 {
					first = last
				}
			}
			if first != tt.first || last != tt.longest {
				t.Errorf("repeated after %v at first and %v at last, want %v and %v", first, last, tt.first, tt.longest)
			}
		})
	}
}
