package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// guard watches, as long as a story lasts, for what may never happen: an instance terminated under a pod that may not be
// moved, and more nodes let go at a time than the budget has. That no pod is nominated to two live claims, History sees.
type guard struct {
	mu     sync.Mutex
	ending map[types.UID]bool
	broken []string
}

// volumesThere checks that each volume that was ever bound is still in EC2.
func volumesThere(ctx context.Context, w *World) error {
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, v := range w.AWS.EC2().Volumes() {
		there[v.ID] = true
	}
	for _, pv := range volumes.Items {
		if csi := pv.Spec.CSI; csi != nil && !there[csi.VolumeHandle] {
			return fmt.Errorf("volume %s of %s is gone", csi.VolumeHandle, pv.Name)
		}
	}
	return nil
}

// watch begins to watch a world, until its end.
func (g *guard) watch(w *World) {
	g.ending = map[types.UID]bool{}
	w.History.Watch(func(o client.Object, gone bool) {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			g.seeClaim(claim, gone)
		}
	})
	w.Intercept(func(c awsim.Call) {
		if called("TerminateInstances")(c) {
			for _, id := range c.Resources {
				g.seeTerminated(w, id)
			}
		}
	})
}

func (g *guard) seeClaim(claim *karpv1.NodeClaim, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gone || !endedByChoice(claim) {
		delete(g.ending, claim.UID)
		return
	}
	if g.ending[claim.UID] = true; len(g.ending) > chaosBudget {
		g.broken = append(g.broken, fmt.Sprintf("%d nodes are let go at a time, the budget is %d", len(g.ending), chaosBudget))
	}
}

// seeTerminated looks at the pods of a node whose instance was just told to end. It asks the API server: what was watched
// may not know yet that a pod has gone.
func (g *guard) seeTerminated(w *World, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var nodes corev1.NodeList
	if err := w.Reader.List(ctx, &nodes); err != nil {
		return // the world ends
	}
	for _, n := range nodes.Items {
		if world.InstanceID(n.Spec.ProviderID) != id {
			continue
		}
		var pods corev1.PodList
		if err := w.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return // nothing can be said while the API server is away
		}
		for _, p := range pods.Items {
			if kept(p) {
				g.mu.Lock()
				g.broken = append(g.broken, fmt.Sprintf("instance %s was terminated under pod %s, which may not be moved", id, p.Name))
				g.mu.Unlock()
			}
		}
	}
}

// verdict is nil as long as nothing has happened that may not.
func (g *guard) verdict(w *World) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	broken := append(w.History.Violations(), g.broken...)
	if len(broken) == 0 {
		return nil
	}
	return errors.New(strings.Join(broken, "; "))
}
