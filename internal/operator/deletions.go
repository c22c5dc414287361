package operator

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/deletionpause"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// deletions are what deletes, and what limits it.
type deletions struct {
	*destroy.Guard
	changed <-chan ctrlevent.GenericEvent
}

// newDeletions needs nothing of AWS yet: its instances are described by what wireAWS makes.
func (a *assembly) newDeletions() (deletions, error) {
	limits, err := destroy.ParseLimits(a.settings.BlastRadius)
	if err != nil {
		return deletions{}, fmt.Errorf("--blast-radius %w", err)
	}
	changed := make(chan ctrlevent.GenericEvent, 1)
	capacity := &destroy.Capacity{Client: a.mgr.GetClient(), Now: time.Now}
	budget := destroy.NewBudget(destroy.BudgetConfig{
		Limits: limits, Store: a.ledger(), Fleet: capacity.Fleet, Now: time.Now,
		Changed: func() {
			select {
			case changed <- ctrlevent.GenericEvent{Object: &karpv1.NodePool{}}:
			default: // an item is queued already
			}
		},
	})
	guard := &destroy.Guard{
		Client: a.mgr.GetClient(), Live: a.mgr.GetAPIReader(), Cloud: describedByAWS{a}, Budget: budget, Log: a.log, Now: time.Now,
		Pods: a.podsToMove, Audit: a.audit,
	}
	return deletions{guard, changed}, nil
}

// describedByAWS is the AWS adapter, once it is there.
type describedByAWS struct{ *assembly }

// Get implements destroy.Cloud.
func (d describedByAWS) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	return d.measure("deletion").instances(d.aws.Instances).Get(ctx, providerID)
}

// audit counts and records a deletion.
func (a *assembly) audit(r destroy.Record) {
	a.measures.deletions.Count(r)
	a.recorder.Deletion(r)
}

// podsToMove counts the pods on a node that would have to move, as the API server has them.
func (a *assembly) podsToMove(ctx context.Context, node string) (int, error) {
	pods, err := cluster.SharedPodsOn(ctx, a.mgr.GetAPIReader(), node)
	n := 0
	for _, p := range pods {
		if snapshot.Reschedulable(p) {
			n++
		}
	}
	return n, err
}

// ledger keeps what is deleted in the namespace of the leader's lease; where that is not known, as outside of a cluster, in memory.
func (a *assembly) ledger() destroy.Store {
	namespace := a.namespace()
	if namespace == "" {
		return &destroy.Memory{}
	}
	return &destroy.ConfigMap{Client: a.clientset.CoreV1().ConfigMaps(namespace)}
}

// namespace is that of the leader's lease; empty if it is not known.
func (a *assembly) namespace() string {
	if a.settings.LeaderElectionNamespace != "" {
		return a.settings.LeaderElectionNamespace
	}
	text, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// wireDeletions shows on NodePools when deletions are paused.
func (a *assembly) wireDeletions() error {
	return a.register(&deletionpause.Reconciler{
		Client: a.mgr.GetClient(), Budget: a.deletions.Budget, Events: a.events, Metrics: a.measures.deletions, Log: a.log, Now: time.Now,
		Changed: a.deletions.changed,
	})
}

// surplus permits the termination of an instance that EC2 has launched beyond what was requested.
func (a *assembly) surplus(ctx context.Context, i cloudprovider.Instance) (destroy.Permit, error) {
	return a.deletions.OfNoClaim(ctx, i)
}
