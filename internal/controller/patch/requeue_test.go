package patch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func TestRetry(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("changed"))
	tests := []struct {
		name  string
		err   error
		fails bool
		retry bool
	}{
		{"success", nil, false, false},
		{"conflict", conflict, false, true},
		{"conflict, wrapped", fmt.Errorf("taint node: %w", conflict), false, true},
		{"the process waits for the cloud", fmt.Errorf("launch: %w: EC2", cloudprovider.ErrNotKnownYet), false, true},
		{"another error", errors.New("boom"), true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := RequeueOnConflict(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, tt.err
			}))
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			if (err != nil) != tt.fails || (result.RequeueAfter > 0) != tt.retry {
				t.Errorf("result %+v, error %v; want retry %v, failure %v", result, err, tt.retry, tt.fails)
			}
		})
	}
}

func TestRetryGetsSlower(t *testing.T) {
	err := error(apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("changed")))
	r := RequeueOnConflict(
		reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, err }),
	)
	wait := func(name string) time.Duration {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	first := wait("a")
	if second := wait("a"); second != 2*first {
		t.Errorf("waits %v after the first conflict and %v after the second", first, second)
	}
	for range 20 {
		wait("a")
	}
	if got := wait("a"); got > 5*time.Second {
		t.Errorf("waits %v after many conflicts", got)
	}
	if got := wait("b"); got != first {
		t.Errorf("waits %v after the first conflict over another object, %v after one over the first", got, first)
	}
	conflict := err
	err = nil
	wait("a")
	err = conflict
	if got := wait("a"); got != first {
		t.Errorf("waits %v after a conflict that follows a success, want %v", got, first)
	}
}
