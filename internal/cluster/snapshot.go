package cluster

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Snapshot takes a snapshot of the cluster as it is now. It reads nodes before pods: a pod that is bound in between may
// then be planned once too often on existing capacity, but is never missed.
func (s *State) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	snap, objects, facts, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	if s.cfg.OnSnapshot != nil {
		s.cfg.OnSnapshot(snap, objects, facts)
	}
	return snap, nil
}

// Look takes a snapshot that nothing is decided on, for people who look at the cluster. It returns what it was made from, too.
// Neither may be changed: the cache has the same objects.
func (s *State) Look(ctx context.Context) (*snapshot.Snapshot, *Objects, error) {
	snap, objects, _, err := s.take(ctx)
	return snap, objects, err
}

func (s *State) take(ctx context.Context) (*snapshot.Snapshot, *Objects, *Facts, error) {
	if !s.Primed() {
		if err := s.Refresh(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	facts := s.facts()
	objects := &Objects{}
	for _, step := range []func(context.Context, *Objects) error{
		s.readNodes, s.readPods, s.readPools, s.readVolumes, s.readPolicies,
		s.readAdmission, s.readBuffers, s.readOwners, s.readResizedOwners, s.readDevices, s.readPodGroups,
	} {
		if err := step(ctx, objects); err != nil {
			return nil, nil, nil, fmt.Errorf("take a snapshot: %w", err)
		}
	}
	s.addMarks(&facts)
	return BuildSnapshot(*objects, facts), objects, &facts, nil
}

// facts are the current facts without the marks of this process.
func (s *State) facts() Facts {
	return Facts{
		Now: s.cfg.Now(), Settings: s.cfg.Settings, Labels: s.cfg.Labels, NominationWindow: s.cfg.NominationWindow,
		TaintGracePeriod: s.cfg.TaintGracePeriod, Repair: s.cfg.Repair, LifecycleConditions: s.cfg.LifecycleConditions,
	}
}

// addMarks adds the decisions of this process. Callers add them after reading the objects, so that decisions made in
// between count.
func (s *State) addMarks(f *Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.MarkedForDeletion, f.Nominated, f.Disrupting = maps.Clone(s.markedForDeletion), maps.Clone(s.nominated), maps.Clone(s.disrupting)
	f.BufferPods = maps.Clone(s.bufferPods)
}

// listCached lists all objects of a kind from the cache. The objects are shared with the cache and must not be changed.
func (s *State) listCached(ctx context.Context, into client.ObjectList) error {
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
	if o.Nodes, err = s.cfg.Nodes.List(ctx); err != nil {
		return err
	}
	o.CSINodes, err = s.cfg.CSINodes.List(ctx)
	return err
}

func (s *State) readPods(ctx context.Context, o *Objects) error {
	var err error
	if o.Pods, err = s.cfg.Pods.List(ctx); err != nil {
		return err
	}
	var sets appsv1.DaemonSetList
	if err := s.listCached(ctx, &sets); err != nil {
		return err
	}
	o.DaemonSets = pointers(sets.Items)
	return nil
}

// readPools reads the pools of this controller. A pool that is ready, not deleting and not static may launch the
// instance types of its node class. An error with a class affects only its pools.
func (s *State) readPools(ctx context.Context, o *Objects) error {
	var pools karpv1.NodePoolList
	if err := s.listCached(ctx, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) {
			continue
		}
		instanceTypes, err := s.instanceTypesFor(ctx, pool)
		if err != nil {
			return err
		}
		class, err := s.classOf(ctx, pool)
		if err != nil {
			return err
		}
		o.Pools = append(o.Pools, Pool{
			NodePool: pool, NodeClassLabel: [2]string{awsv1.LabelNodeClass, ref.Name}, InstanceTypes: instanceTypes,
			KubeletFeatures: KubeletFeatures(class),
		})
	}
	return nil
}

// instanceTypesFor returns the instance types that the pool may launch; nil if none.
func (s *State) instanceTypesFor(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	if !LaunchesForPods(pool) || !condition.IsTrue(pool, condition.Ready) {
		return nil, nil
	}
	instanceTypes, err := s.typesOfClass(ctx, pool)
	if err != nil || instanceTypes == nil {
		return nil, err
	}
	if s.cfg.Overlays != nil {
		// A pool for which the overlays have not been evaluated yet launches nothing. That takes a moment only.
		instanceTypes, _ = s.cfg.Overlays.Apply(pool, instanceTypes)
	}
	return instanceTypes, nil
}

// typesOfClass returns the instance types of the pool's node class; nil if they cannot be listed.
func (s *State) typesOfClass(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	class, err := s.classOf(ctx, pool)
	if err != nil || class == nil {
		return nil, err
	}
	instanceTypes, err := s.cfg.Types.InstanceTypes(ctx, class)
	if err != nil {
		s.cfg.OnPoolSkipped(pool, err)
		return nil, nil
	}
	return instanceTypes, nil
}

// classOf returns the pool's node class; nil if it does not exist.
func (s *State) classOf(ctx context.Context, pool *karpv1.NodePool) (*awsv1.EC2NodeClass, error) {
	class := &awsv1.EC2NodeClass{}
	key := client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}
	if err := s.cfg.Cache.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return class, nil
}

func (s *State) readVolumes(ctx context.Context, o *Objects) error {
	var claims corev1.PersistentVolumeClaimList
	if err := s.listCached(ctx, &claims); err != nil {
		return err
	}
	var volumes corev1.PersistentVolumeList
	if err := s.listCached(ctx, &volumes); err != nil {
		return err
	}
	var classes storagev1.StorageClassList
	if err := s.listCached(ctx, &classes); err != nil {
		return err
	}
	var drivers storagev1.CSIDriverList
	if err := s.listCached(ctx, &drivers); err != nil {
		return err
	}
	var capacities storagev1.CSIStorageCapacityList
	if err := s.listCached(ctx, &capacities); err != nil {
		return err
	}
	var attachments storagev1.VolumeAttachmentList
	if err := s.listCached(ctx, &attachments); err != nil {
		return err
	}
	o.PersistentVolumeClaims, o.PersistentVolumes = pointers(claims.Items), pointers(volumes.Items)
	o.VolumeAttachments, o.CSIStorageCapacities = pointers(attachments.Items), pointers(capacities.Items)
	o.StorageClasses, o.CSIDrivers = pointers(classes.Items), pointers(drivers.Items)
	return nil
}

func (s *State) readPolicies(ctx context.Context, o *Objects) error {
	var pdbs policyv1.PodDisruptionBudgetList
	if err := s.listCached(ctx, &pdbs); err != nil {
		return err
	}
	var namespaces corev1.NamespaceList
	if err := s.listCached(ctx, &namespaces); err != nil {
		return err
	}
	o.PDBs, o.Namespaces = pointers(pdbs.Items), pointers(namespaces.Items)
	return nil
}

// readAdmission reads from what the API server completes pods.
func (s *State) readAdmission(ctx context.Context, o *Objects) error {
	var ranges corev1.LimitRangeList
	if err := s.listCached(ctx, &ranges); err != nil {
		return err
	}
	var classes nodev1.RuntimeClassList
	if err := s.listCached(ctx, &classes); err != nil {
		return err
	}
	o.LimitRanges, o.RuntimeClasses = pointers(ranges.Items), pointers(classes.Items)
	return nil
}
