package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// batchWorld is NodeClaims that are launched together by processes that follow each other.
type batchWorld struct {
	t      *rapid.T
	ec2    *fakeEC2
	claims []*karpv1.NodeClaim
	// has is the instance that each NodeClaim was once instructed to have.
	has  []string
	runs *process
	// price holds what the running process pays: processes with other prices make other calls.
	price float64
}

// TestEachNodeClaimOfABatchGetsOneInstance checks the guarantee of this package for NodeClaims that are launched together: processes are
// killed, calls and answers are lost, prices change, annotations are written or not, EC2 refuses, has no capacity, and shows late.
func TestEachNodeClaimOfABatchGetsOneInstance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &batchWorld{t: t, ec2: newFakeEC2()}
		w.ec2.visible = time.Duration(rapid.IntRange(0, 100).Draw(t, "visible after seconds")) * time.Second
		for n := range rapid.IntRange(2, 4).Draw(t, "NodeClaims") {
			c := pricedOrder(0.05).Claim
			c.Name, c.UID = fmt.Sprint("claim-", n), types.UID(fmt.Sprint("uid-", n))
			c.Annotations = map[string]string{karpv1.AnnotationLaunch: cloudprovider.Unlaunched}
			w.claims, w.has = append(w.claims, c), append(w.has, "")
		}
		w.restart()
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "killed") {
				w.restart()
			}
			w.ec2.callOutcomes = rapid.SliceOfN(
				rapid.Map(rapid.IntRange(int(served), int(rejectedWithToken)), func(n int) callOutcome { return callOutcome(n) }), 0, 3,
			).Draw(t, "calls")
			var subset []int
			for n := range w.claims {
				if rapid.IntRange(0, 3).Draw(t, "reconciled") > 0 {
					subset = append(subset, n)
				}
			}
			w.reconcile(subset, rapid.SliceOfN(rapid.IntRange(0, 5), len(w.claims), len(w.claims)).Draw(t, "annotations"))
			w.ec2.time = w.ec2.time.Add(time.Duration(rapid.IntRange(0, 130).Draw(t, "seconds")) * time.Second)
		}
		w.ec2.callOutcomes = nil
		for range 8 {
			w.reconcile(rapid.Permutation(indices(len(w.claims))).Draw(t, "order"), make([]int, len(w.claims)))
			w.ec2.time = w.ec2.time.Add(instance.VisibleWithin)
		}
		for n, id := range w.has {
			if id == "" {
				t.Errorf("NodeClaim %d has no instance", n)
			}
		}
		if len(w.ec2.instances) != len(w.claims) {
			t.Errorf("%d instances were launched for %d NodeClaims", len(w.ec2.instances), len(w.claims))
		}
	})
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func (w *batchWorld) restart() {
	w.price = rapid.SampledFrom([]float64{0.05, 0.07}).Draw(w.t, "price")
	w.runs = w.ec2.startGathering(pricedOrder(w.price), batch.Window{Idle: 5 * time.Millisecond, Max: time.Second, Items: len(w.claims)})
}

// Outcomes of an annotation, from the annotations of a step.
const (
	notWritten       = 1
	writtenWithError = 2
)

var errWrite = errors.New("etcdserver: request timed out")

// reconcile reconciles NodeClaims at the same time.
func (w *batchWorld) reconcile(claims, annotations []int) {
	var all sync.WaitGroup
	got, errs := make([]cloudprovider.Instance, len(w.claims)), make([]error, len(w.claims))
	for _, n := range claims {
		o := pricedOrder(w.price)
		o.Claim = w.claims[n].DeepCopy()
		all.Go(func() {
			got[n], errs[n] = w.runs.reconcileClaim(w.t.Context(), o, func(_ context.Context, mark string) error {
				switch annotations[n] {
				case notWritten:
					return errWrite
				case writtenWithError:
					w.claims[n].Annotations[karpv1.AnnotationLaunch] = mark
					return errWrite
				}
				w.claims[n].Annotations[karpv1.AnnotationLaunch] = mark
				return nil
			})
		})
	}
	all.Wait()
	for _, n := range claims {
		if errs[n] != nil {
			continue
		}
		if got[n].ID == "" {
			w.t.Fatalf("NodeClaim %d has no instance, and no error", n)
		}
		for other, id := range w.has {
			if (id == got[n].ID) != (other == n) && id != "" {
				w.t.Fatalf("NodeClaim %d has %s; NodeClaim %d had %s", n, got[n].ID, other, id)
			}
		}
		w.has[n] = got[n].ID
	}
}

// reconcileClaim does what the reconciler of a NodeClaim does: adopt, or else resume or launch.
func (p *process) reconcileClaim(ctx context.Context, o Request, annotate Annotate) (cloudprovider.Instance, error) {
	i, found, err := p.Adopt(ctx, o.Claim)
	switch {
	case found:
		return i, nil
	case err == nil && o.Claim.Annotations[karpv1.AnnotationLaunch] == "":
		return p.Launch(ctx, o, nil)
	case err == nil:
		return p.LaunchInBatch(ctx, o, annotate)
	case p.Resumable(o.Claim, err):
		return p.Resume(ctx, o, annotate)
	}
	return cloudprovider.Instance{}, err
}
