package provisioning

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// The claims of a large plan are created side by side, but not all at once, and none waits for another's luck.
func TestManyClaims(t *testing.T) {
	const many = 300
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"))
	p := provisioner(f)
	p.State = stateOf(f.API, f.API, f.Now)
	var started, running, most atomic.Int64
	full := make(chan struct{})
	p.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			n, now := started.Add(1), running.Add(1)
			defer running.Add(-1)
			for {
				if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
					break
				}
			}
			if n == maxParallelCreates {
				close(full)
			}
			<-full // the first ones wait for each other
			if n%10 == 1 {
				return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("quota"))
			}
			return api.Create(ctx, o, opts...)
		},
	})
	pool := controllertest.Pool("general")
	f.Get(pool)
	launches := make([]schedule.Launch, many)
	for i := range launches {
		launches[i] = schedule.Launch{Pool: pool, InstanceTypes: engine.Types()[:1]}
	}
	if _, err := p.launch(t.Context(), launches, engine.World(nil)); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	if got := len(claims(t, f.API)); got != many-many/10 {
		t.Errorf("%d claims, want all but the %d that were refused", got, many/10)
	}
	if most.Load() != maxParallelCreates {
		t.Errorf("%d claims were being created at once, want %d", most.Load(), maxParallelCreates)
	}
}
