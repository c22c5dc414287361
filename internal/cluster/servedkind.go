package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servedInterval sets how often the API server is queried whether it serves a kind. It begins or stops to when it is restarted with other
// feature gates, or as another version.
const servedInterval = time.Minute

// ServedKind knows whether the API server serves a kind that not all versions and feature gates have. It is safe for concurrent use.
type ServedKind struct {
	// object and list are empty ones of the kind.
	object    client.Object
	list      client.ObjectList
	live      client.Reader
	informers ctrlcache.Informers
	now       func() time.Time
	// forbidden is called when this process may not list them.
	forbidden func(error)

	mu sync.Mutex
	// read is the time when the API server was queried last; zero before it has answered.
	read   time.Time
	served bool
	// changes counts the changes of objects while they are served; seen is how many of them are in counted, which has those of before,
	// and each change of served.
	changes       *Changes
	seen, counted uint64
}

// APIServer describes what a ServedKind queries, and the informers that it starts and stops.
type APIServer struct {
	Live      client.Reader
	Informers ctrlcache.Informers
	Now       func() time.Time
}

// ServedPodGroups knows whether an API server serves PodGroups. Forbidden is called each time that the role of the process turns out to
// lack the permission to list them; pods are then planned as if none were served.
func (a APIServer) ServedPodGroups(forbidden func(error)) *ServedKind {
	return a.served(&schedulingv1beta1.PodGroup{}, &schedulingv1beta1.PodGroupList{}, forbidden)
}

// ServedDeviceTaintRules is the same for DeviceTaintRules, which API servers serve from Kubernetes 1.37 on.
func (a APIServer) ServedDeviceTaintRules(forbidden func(error)) *ServedKind {
	return a.served(&resourcev1.DeviceTaintRule{}, &resourcev1.DeviceTaintRuleList{}, forbidden)
}

func (a APIServer) served(object client.Object, list client.ObjectList, forbidden func(error)) *ServedKind {
	return &ServedKind{object: object, list: list, live: a.Live, informers: a.Informers, now: a.Now, forbidden: forbidden}
}

// Served reports whether objects of the kind are served and may be listed. While the API server does not answer, its last answer
// counts; the error is that it has never answered.
func (p *ServedKind) Served(ctx context.Context) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isServed(ctx)
}

func (p *ServedKind) isServed(ctx context.Context) (bool, error) {
	now := p.now()
	if !p.read.IsZero() && now.Sub(p.read) < servedInterval {
		return p.served, nil
	}
	served, err := p.ask(ctx)
	if err != nil {
		if p.read.IsZero() {
			return false, fmt.Errorf("find out whether %T is served: %w", p.object, err)
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
		if err := p.informers.RemoveInformer(ctx, p.object); err != nil {
			return served, fmt.Errorf("stop the watch of %T: %w", p.object, err)
		}
		p.changes = nil
	}
	return served, nil
}

// ask lists one object.
func (p *ServedKind) ask(ctx context.Context) (served bool, err error) {
	err = p.live.List(ctx, p.list.DeepCopyObject().(client.ObjectList), client.Limit(1))
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

// Count is the number of changes of objects so far, and of what Served returns.
func (p *ServedKind) Count(ctx context.Context) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served, err := p.isServed(ctx)
	if err != nil || !served {
		return p.counted, err
	}
	if p.changes == nil {
		p.changes, p.seen = NewChanges(p.informers, p.object), 0
	}
	n, err := p.changes.Count(ctx)
	if err != nil {
		return 0, err
	}
	p.counted, p.seen = p.counted+n-p.seen, n
	return p.counted, nil
}
