package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
)

// Hook has a say in when a Node counts as registered. Hooks are asked side by side, and again until each is
// satisfied; they must not change what they are given.
type Hook interface {
	// Name is what the claim's condition says while the hook is not satisfied.
	Name() string
	// Ask returns a zero Wait when the hook is satisfied. An error is one more reason to wait.
	Ask(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (Answer, error)
}

// Answer is what a hook says.
type Answer struct {
	// Wait is after how long to ask again; zero when the hook is satisfied.
	Wait time.Duration
	// Labels are to be put on NodeClaim and Node.
	Labels map[string]string
}

// answers are those of all hooks.
type answers struct {
	// waiting are the names of the hooks that are not satisfied or have failed, in the hooks' order.
	waiting []string
	// wait is the shortest that a hook has asked for; zero if none has.
	wait   time.Duration
	labels map[string]string
	err    error
}

func (a answers) pending() bool   { return len(a.waiting) > 0 }
func (a answers) message() string { return strings.Join(a.waiting, ", ") }

// ask asks all hooks at once.
func ask(ctx context.Context, hooks []Hook, claim *karpv1.NodeClaim, node *corev1.Node) answers {
	type reply struct {
		answer Answer
		err    error
	}
	replies := make([]reply, len(hooks))
	var all sync.WaitGroup
	for n, hook := range hooks {
		all.Go(func() {
			replies[n].err = panics.Error(func() (err error) {
				replies[n].answer, err = hook.Ask(ctx, claim, node)
				return err
			})
		})
	}
	all.Wait()
	out := answers{labels: map[string]string{}}
	var errs []error
	for n, r := range replies {
		maps.Copy(out.labels, r.answer.Labels)
		if r.err != nil {
			errs = append(errs, fmt.Errorf("registration hook %q failed, %w", hooks[n].Name(), r.err))
		}
		if r.err != nil || r.answer.Wait > 0 {
			out.waiting = append(out.waiting, hooks[n].Name())
		}
		if r.err == nil && r.answer.Wait > 0 {
			out.wait = slices.Min([]time.Duration{r.answer.Wait, cmp.Or(out.wait, r.answer.Wait)})
		}
	}
	out.err = errors.Join(errs...)
	return out
}
