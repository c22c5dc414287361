package cluster

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Snapshot cuts the world as it is now. Nodes are read before pods: a pod that is bound meanwhile is then
// planned for once too often on capacity that is there, never once too seldom.
func (s *State) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	if !s.Primed() {
		if err := s.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	facts := s.facts()
	objects := &Objects{}
	for _, step := range []func(context.Context, *Objects) error{s.readNodes, s.readPods, s.readPools, s.readVolumes, s.readPolicies, s.readBuffers, s.readOwners, s.readDevices} {
		if err := step(ctx, objects); err != nil {
			return nil, fmt.Errorf("cut a snapshot: %w", err)
		}
	}
	s.mark(&facts)
	return Cut(*objects, facts), nil
}

// facts are those of this instant, but for the marks.
func (s *State) facts() Facts {
	return Facts{Now: s.cfg.Now(), Settings: s.cfg.Settings, Labels: s.cfg.Labels, NominationWindow: s.cfg.NominationWindow}
}

// mark adds what this process has decided. It comes after the objects were read: what was decided meanwhile counts.
func (s *State) mark(f *Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Condemned, f.Nominated, f.Disrupting = maps.Clone(s.condemned), maps.Clone(s.nominated), maps.Clone(s.disrupting)
	f.Room = maps.Clone(s.room)
}

// list reads all objects of a kind from the cache. The objects are shared with it and only read.
func (s *State) list(ctx context.Context, into client.ObjectList) error {
	return s.cfg.Cache.List(ctx, into, client.UnsafeDisableDeepCopy)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

func (s *State) readNodes(ctx context.Context, o *Objects) error {
	var err error
	if o.NodeClaims, err = s.claims(ctx); err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := s.list(ctx, &nodes); err != nil {
		return err
	}
	var csiNodes storagev1.CSINodeList
	if err := s.list(ctx, &csiNodes); err != nil {
		return err
	}
	o.Nodes, o.CSINodes = pointers(nodes.Items), pointers(csiNodes.Items)
	return nil
}

func (s *State) readPods(ctx context.Context, o *Objects) error {
	var pods corev1.PodList
	if err := s.list(ctx, &pods); err != nil {
		return err
	}
	var sets appsv1.DaemonSetList
	if err := s.list(ctx, &sets); err != nil {
		return err
	}
	o.Pods, o.DaemonSets = pointers(pods.Items), pointers(sets.Items)
	return nil
}

// readPools reads our pools. One that is ready, not deleting and not of a fixed size may launch; what, its
// node class says. A class that cannot say so closes its pool, and no other.
func (s *State) readPools(ctx context.Context, o *Objects) error {
	var pools karpv1.NodePoolList
	if err := s.list(ctx, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) {
			continue
		}
		instanceTypes, err := s.launchable(ctx, pool)
		if err != nil {
			return err
		}
		o.Pools = append(o.Pools, Pool{NodePool: pool, NodeClassLabel: [2]string{awsv1.LabelNodeClass, ref.Name}, InstanceTypes: instanceTypes})
	}
	return nil
}

// launchable returns what the pool may launch, nil if nothing.
func (s *State) launchable(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	if !Open(pool) || !condition.IsTrue(pool, condition.Ready) {
		return nil, nil
	}
	class := &awsv1.EC2NodeClass{}
	if err := s.cfg.Cache.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	instanceTypes, err := s.cfg.Types.InstanceTypes(ctx, class)
	if err != nil {
		s.cfg.PoolLeftOut(pool, err)
		return nil, nil
	}
	if s.cfg.Overlays != nil {
		// A pool that the overlays were not judged for yet launches nothing: that is a matter of a moment.
		instanceTypes, _ = s.cfg.Overlays.Lay(pool, instanceTypes)
	}
	return instanceTypes, nil
}

func (s *State) readVolumes(ctx context.Context, o *Objects) error {
	var claims corev1.PersistentVolumeClaimList
	if err := s.list(ctx, &claims); err != nil {
		return err
	}
	var volumes corev1.PersistentVolumeList
	if err := s.list(ctx, &volumes); err != nil {
		return err
	}
	var classes storagev1.StorageClassList
	if err := s.list(ctx, &classes); err != nil {
		return err
	}
	o.PersistentVolumeClaims, o.PersistentVolumes, o.StorageClasses = pointers(claims.Items), pointers(volumes.Items), pointers(classes.Items)
	return nil
}

func (s *State) readPolicies(ctx context.Context, o *Objects) error {
	var pdbs policyv1.PodDisruptionBudgetList
	if err := s.list(ctx, &pdbs); err != nil {
		return err
	}
	var namespaces corev1.NamespaceList
	if err := s.list(ctx, &namespaces); err != nil {
		return err
	}
	o.PDBs, o.Namespaces = pointers(pdbs.Items), pointers(namespaces.Items)
	return nil
}
