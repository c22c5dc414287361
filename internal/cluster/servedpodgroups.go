package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servedInterval is how often the API server is asked whether it serves PodGroups. It begins or ends to when it is restarted with other
// feature gates.
const servedInterval = time.Minute

// ServedPodGroups knows whether the API server serves PodGroups. It is safe for concurrent use.
type ServedPodGroups struct {
	live      client.Reader
	informers ctrlcache.Informers
	now       func() time.Time
	// forbidden is called when this process may not list them.
	forbidden func(error)

	mu sync.Mutex
	// read is when the API server was asked last; zero before it has answered.
	read   time.Time
	served bool
	// changes counts the changes of PodGroups while they are served; seen is how many of them are in counted, which has those of before,
	// and each change of served.
	changes       *Changes
	seen, counted uint64
}

// NewServedPodGroups asks an API server. Forbidden is called each time that the role of the process turns out to lack the permission to
// list PodGroups; pods are then planned as if none were served.
func NewServedPodGroups(live client.Reader, informers ctrlcache.Informers, now func() time.Time, forbidden func(error)) *ServedPodGroups {
	return &ServedPodGroups{live: live, informers: informers, now: now, forbidden: forbidden}
}

// Served reports whether PodGroups are served and may be listed. While the API server does not answer, its last answer counts; the error
// is that it has never answered.
func (p *ServedPodGroups) Served(ctx context.Context) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isServed(ctx)
}

func (p *ServedPodGroups) isServed(ctx context.Context) (bool, error) {
	now := p.now()
	if !p.read.IsZero() && now.Sub(p.read) < servedInterval {
		return p.served, nil
	}
	served, err := p.ask(ctx)
	if err != nil {
		if p.read.IsZero() {
			return false, fmt.Errorf("find out whether PodGroups are served: %w", err)
		}
		return p.served, nil
	}
	p.read = now
	if served == p.served {
		return served, nil
	}
	p.served = served
	p.counted++
	if !served {
		// Without this, the informer would go on to list a kind that does not exist, and log each failure.
		if err := p.informers.RemoveInformer(ctx, &schedulingv1beta1.PodGroup{}); err != nil {
			return served, fmt.Errorf("stop the watch of PodGroups: %w", err)
		}
		p.changes = nil
	}
	return served, nil
}

// ask lists one PodGroup.
func (p *ServedPodGroups) ask(ctx context.Context) (served bool, err error) {
	err = p.live.List(ctx, &schedulingv1beta1.PodGroupList{}, client.Limit(1))
	switch {
	case err == nil:
		return true, nil
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		if p.read.IsZero() || p.served {
			p.forbidden(err)
		}
		return false, nil
	}
	return false, err
}

// Count is the number of changes of PodGroups so far, and of what Served returns.
func (p *ServedPodGroups) Count(ctx context.Context) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served, err := p.isServed(ctx)
	if err != nil || !served {
		return p.counted, err
	}
	if p.changes == nil {
		p.changes, p.seen = NewChanges(p.informers, &schedulingv1beta1.PodGroup{}), 0
	}
	n, err := p.changes.Count(ctx)
	if err != nil {
		return 0, err
	}
	p.counted, p.seen = p.counted+n-p.seen, n
	return p.counted, nil
}
