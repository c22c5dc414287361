package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
)

// Hook delays the registration of a Node until the hook is satisfied. Hooks run concurrently, and again until each is
// satisfied; they must not change their arguments.
type Hook interface {
	// Name returns what the claim's condition shows while the hook is not satisfied.
	Name() string
	// Check returns a zero RequeueAfter when the hook is satisfied. An error means that it is not.
	Check(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (HookResult, error)
}

// HookResult is the result of one hook.
type HookResult struct {
	// RequeueAfter is the time when to run the hook again; zero when it is satisfied.
	RequeueAfter time.Duration
	// Labels are to be set on NodeClaim and Node.
	Labels map[string]string
}

// hookResults are the results of all hooks.
type hookResults struct {
	// unsatisfied are the names of the hooks that are not satisfied or have failed, in the hooks' order.
	unsatisfied []string
	// requeueAfter is the shortest delay of a hook; zero if there is none.
	requeueAfter time.Duration
	labels       map[string]string
	err          error
}

func (r hookResults) pending() bool   { return len(r.unsatisfied) > 0 }
func (r hookResults) message() string { return strings.Join(r.unsatisfied, ", ") }

// hookReply describes what one hook returned.
type hookReply struct {
	result HookResult
	err    error
}

// runHooks runs all hooks concurrently.
func runHooks(ctx context.Context, hooks []Hook, claim *karpv1.NodeClaim, node *corev1.Node) hookResults {
	replies := make([]hookReply, len(hooks))
	var all sync.WaitGroup
	for n, hook := range hooks {
		all.Go(func() {
			replies[n].err = panics.Error(func() (err error) {
				replies[n].result, err = hook.Check(ctx, claim, node)
				return err
			})
		})
	}
	all.Wait()
	out := hookResults{labels: map[string]string{}}
	var errs []error
	for n, r := range replies {
		maps.Copy(out.labels, r.result.Labels)
		if r.err != nil {
			errs = append(errs, fmt.Errorf("registration hook %q failed, %w", hooks[n].Name(), r.err))
		}
		if r.err != nil || r.result.RequeueAfter > 0 {
			out.unsatisfied = append(out.unsatisfied, hooks[n].Name())
		}
		if r.err == nil && r.result.RequeueAfter > 0 {
			out.requeueAfter = min(r.result.RequeueAfter, cmp.Or(out.requeueAfter, r.result.RequeueAfter))
		}
	}
	out.err = errors.Join(errs...)
	return out
}
