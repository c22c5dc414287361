package conflict

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRetry(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("changed"))
	tests := []struct {
		name  string
		err   error
		fails bool
		again bool
	}{
		{"done", nil, false, false},
		{"somebody was faster", conflict, false, true},
		{"somebody was faster, said with context", fmt.Errorf("taint node: %w", conflict), false, true},
		{"a real failure", errors.New("boom"), true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Retry(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, tt.err
			}))
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			if (err != nil) != tt.fails || (result.RequeueAfter > 0) != tt.again {
				t.Errorf("result %+v, error %v; want again %v, failure %v", result, err, tt.again, tt.fails)
			}
		})
	}
}
