// Package cluster tracks the state of the live cluster and takes Snapshots of it.
//
// Objects come from the informer cache. The State adds the decisions of this process that the cache may not show yet:
// claims just created, nodes just marked for deletion, nodes just nominated for a pod. So a pass always sees the writes
// of the pass before, and one pending pod never leads to two claims.
package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// InstanceTypes lists the instance types that a node class can launch.
type InstanceTypes interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Config configures a State.
type Config struct {
	// Cache reads from the informers, Live from the API server.
	Cache, Live client.Reader
	// Pods are the pods of the informers; nil reads them from Cache.
	Pods Pods
	// Nodes, NodeClaims and CSINodes are those of the informers; nil reads copies from Cache.
	Nodes      Lister[*corev1.Node]
	NodeClaims Lister[*karpv1.NodeClaim]
	CSINodes   Lister[*storagev1.CSINode]
	Types      InstanceTypes
	// Overlays change prices and capacity of instance types. Nil changes nothing.
	Overlays *Overlays
	// CapacityBuffers is the feature gate of that name.
	CapacityBuffers bool
	// Devices caches compiled CEL expressions over devices. If it is nil, devices are not read, and pods with resource
	// claims are not planned.
	Devices *cel.Cache
	// PodGroups knows whether PodGroups are served; nil never reads any.
	PodGroups *ServedKind
	// DeviceTaintRules knows whether DeviceTaintRules are served; nil never reads any.
	DeviceTaintRules *ServedKind
	// OnPoolSkipped is called for a pool when its instance types cannot be listed.
	OnPoolSkipped func(pool *karpv1.NodePool, err error)
	Settings      snapshot.Settings
	// Repair are the policies of node repair; nil if it is off.
	Repair *repair.Policies
	// LifecycleConditions is the feature gate NodeLifecycleConditions.
	LifecycleConditions bool
	// Labels holds what label keys mean on this cloud.
	Labels requirement.Labels
	// NominationWindow states how long a nomination protects a node from disruption, and how long an initialized node keeps
	// capacity reserved for the pods that it was launched for.
	NominationWindow time.Duration
	// TaintGracePeriod states how long it does if the node has taints that something else may remove.
	TaintGracePeriod time.Duration
	Now              func() time.Time
	// ClaimsShown is the version up to which the cache has received NodeClaims; empty if it is not known, and nil never knows it.
	ClaimsShown func(ctx context.Context) string
	// Changes counts the changes of the objects of SnapshotKinds; nil if nobody counts them.
	Changes func(ctx context.Context) (uint64, error)
	// OnSnapshot is called with each Snapshot and what it was built from, none of which may be changed; nil calls nothing.
	OnSnapshot func(*snapshot.Snapshot, *Objects, *Facts)
}

// State is the live state. It is safe for concurrent use.
type State struct {
	cfg Config

	mu sync.Mutex
	// created holds claims of this process that the cache has not shown yet.
	created map[types.UID]*karpv1.NodeClaim
	// markedForDeletion holds claims that this process has deleted or is about to, until they are gone.
	markedForDeletion map[types.UID]bool
	// disrupting holds the candidates of commands in progress, with the names of their replacements.
	disrupting map[types.UID][]string
	// nominated holds nodes (by the snapshot's name) that are nominated for a pod, and until when.
	nominated map[string]time.Time
	// bufferPods counts how many virtual pods the last plan put on each node; nil before the first plan.
	bufferPods map[string]int
	// reserved counts, per pool, node slots under its limit that are reserved for claims about to be created.
	reserved map[string]int64
	// primed is true once a read of the API server has been merged. invalidations counts the invalidations of the
	// cache: a read that began before the last of them does not prime the state.
	primed        bool
	invalidations int
	// marks counts the changes of what is above; types the changes of offered, what each pool may launch by the last call of Version.
	marks, types uint64
	offered      map[types.UID][]*catalog.InstanceType

	// refreshing is held while claims are read from the API server. It is taken before the others.
	refreshing sync.Mutex
	// owners is held while the owners of resized pods are read, of which read has the last answers.
	owners sync.Mutex
	read   map[types.UID]readOwner
	// reservationMu is held while slots are counted and reserved. It is taken before mu.
	reservationMu sync.Mutex
	// provisioning is held from a snapshot until the claims planned on it are created. It is taken before the others.
	provisioning sync.Mutex
}

// NewState returns an empty State; it reads nothing yet.
func NewState(cfg Config) *State {
	if cfg.Pods == nil {
		cfg.Pods = ReadPods(cfg.Cache)
	}
	if cfg.Nodes == nil {
		cfg.Nodes = read[*corev1.Node]{cfg.Cache, &corev1.NodeList{}}
	}
	if cfg.NodeClaims == nil {
		cfg.NodeClaims = read[*karpv1.NodeClaim]{cfg.Cache, &karpv1.NodeClaimList{}}
	}
	if cfg.CSINodes == nil {
		cfg.CSINodes = read[*storagev1.CSINode]{cfg.Cache, &storagev1.CSINodeList{}}
	}
	return &State{
		cfg:               cfg,
		created:           map[types.UID]*karpv1.NodeClaim{},
		markedForDeletion: map[types.UID]bool{},
		disrupting:        map[types.UID][]string{},
		nominated:         map[string]time.Time{},
		reserved:          map[string]int64{},
		read:              map[types.UID]readOwner{},
	}
}

// LockProvisioning waits until no other caller is creating claims, and excludes others until done is called. Callers
// hold it from the snapshot until the claims planned on it are created: two plans on one snapshot would each use up the
// same limit.
func (s *State) LockProvisioning() (done func()) {
	s.provisioning.Lock()
	return s.provisioning.Unlock
}

// Created adds a claim that the cache may not show yet.
func (s *State) Created(claim *karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created[claim.UID] = claim.DeepCopy()
	s.marks++
}

// MarkForDeletion marks a claim's node as deleting, from the decision on.
func (s *State) MarkForDeletion(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markedForDeletion[uid] = true
	s.marks++
}

// MarkDisrupting marks a claim as a candidate of a command that deletes it once the replacements are ready.
func (s *State) MarkDisrupting(uid types.UID, replacements []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disrupting[uid] = slices.Clone(replacements)
	s.marks++
}

// Unmark removes the marks of a claim after its deletion was rejected, or its command rolled back.
func (s *State) Unmark(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.markedForDeletion, uid)
	delete(s.disrupting, uid)
	s.marks++
}

// Nominate protects a node from disruption for the nomination window, starting now.
func (s *State) Nominate(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominated[node] = s.cfg.Now().Add(s.cfg.NominationWindow)
	s.marks++
}

// Refresh merges the NodeClaims of the API server. It is called before the first pass and after a create request with
// an unknown outcome: the cache may lack claims that this process, or the one before it, has created. If several callers
// find the state unprimed, one reads for all.
func (s *State) Refresh(ctx context.Context) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	if s.Primed() {
		return nil
	}
	s.mu.Lock()
	doubts := s.invalidations
	s.mu.Unlock()
	unseen, err := s.unseenClaims(ctx)
	if err != nil {
		return fmt.Errorf("read node claims from the API server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, claim := range unseen {
		s.created[claim.UID] = claim
	}
	s.marks++
	s.primed = s.invalidations == doubts
	return nil
}

// unseenClaims are the claims of the API server that the cache does not show. A claim that it shows now is not needed: it is
// shown until it is gone.
func (s *State) unseenClaims(ctx context.Context) (unseen []*karpv1.NodeClaim, err error) {
	var cached karpv1.NodeClaimList
	if err := s.listCached(ctx, &cached); err != nil {
		return nil, err
	}
	shown := make(map[types.UID]bool, len(cached.Items))
	for i := range cached.Items {
		shown[cached.Items[i].UID] = true
	}
	err = EachClaim(ctx, s.cfg.Live, func(claim *karpv1.NodeClaim) {
		if !shown[claim.UID] {
			unseen = append(unseen, claim.DeepCopy()) // and not its page
		}
	})
	return unseen, err
}

// Invalidate makes the next pass read the API server.
func (s *State) Invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.primed = false
	s.invalidations++
	s.marks++
}

// Primed reports whether the API server has been read since the last invalidation.
func (s *State) Primed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primed
}

// claims returns the cache's NodeClaims together with those that it does not show yet. It reads the created claims
// first: in the other order, a cache that catches up in between would hide a claim from both reads.
func (s *State) claims(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	created := s.createdClaims()
	out, err := s.cfg.NodeClaims.List(ctx)
	if err != nil {
		return nil, err
	}
	cached := make(map[types.UID]bool, len(out))
	for _, claim := range out {
		cached[claim.UID] = true
	}
	shown := s.shownVersion(ctx)
	created = slices.DeleteFunc(created, func(claim *karpv1.NodeClaim) bool {
		switch {
		case cached[claim.UID]:
			s.dropCreated(claim.UID)
		case s.isTooNew(claim, shown):
			out = append(out, claim.DeepCopy())
		default:
			return false
		}
		return true
	})
	unseen, err := s.readAllLive(ctx, created)
	if err != nil {
		return nil, err
	}
	out = append(out, unseen...)
	s.expireMarks(out)
	return out, nil
}

// maxParallelReads limits how many claims are read at once. A loaded API server with a cache that is late takes up to a second for each.
const maxParallelReads = 20

// readAllLive reads claims that the cache does not show from the API server. It drops those that are gone.
func (s *State) readAllLive(ctx context.Context, claims []*karpv1.NodeClaim) ([]*karpv1.NodeClaim, error) {
	read := make([]*karpv1.NodeClaim, len(claims))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelReads)
	for i, claim := range claims {
		group.Go(func() (err error) {
			read[i], err = s.readLive(ctx, claim)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, claim := range claims {
		if read[i] == nil {
			s.dropCreated(claim.UID)
		}
	}
	return slices.DeleteFunc(read, func(claim *karpv1.NodeClaim) bool { return claim == nil }), nil
}

// unseenTime sets how long a claim counts as it was created while the cache cannot show it. A watch recovers from an interruption within
// that time. After it, the API server decides.
const unseenTime = time.Minute

// shownVersion is the version up to which the cache has received NodeClaims; empty if it is not known.
func (s *State) shownVersion(ctx context.Context) string {
	if s.cfg.ClaimsShown == nil {
		return ""
	}
	return s.cfg.ClaimsShown(ctx)
}

// isTooNew reports whether the cache is from before the creation of a claim, so that it means nothing that it does not show it. To read
// each such claim from the API server would hold up every pass while that is slow: a thousand claims are created in a burst, and the
// cache shows them seconds later. The version must be read after the list of claims: a cache that has caught up in between leads to a read.
func (s *State) isTooNew(claim *karpv1.NodeClaim, shown string) bool {
	if shown == "" || s.cfg.Now().Sub(claim.CreationTimestamp.Time) > unseenTime {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(shown, claim.ResourceVersion)
	return err == nil && order < 0
}

func (s *State) createdClaims() []*karpv1.NodeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.created))
}

func (s *State) dropCreated(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, uid)
	s.marks++
}

// readLive reads a claim that the cache does not show from the API server. It returns nil if the claim is gone.
func (s *State) readLive(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	live := &karpv1.NodeClaim{}
	err := s.cfg.Live.Get(ctx, client.ObjectKeyFromObject(claim), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node claim %q from the API server: %w", claim.Name, err)
	}
	if live.UID != claim.UID {
		return nil, nil
	}
	return live, nil
}

// expireMarks drops the marks of claims that no longer exist, and expired nominations.
func (s *State) expireMarks(present []*karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	maps.DeleteFunc(s.nominated, func(_ string, until time.Time) bool { return until.Before(now) })
	if len(s.markedForDeletion)+len(s.disrupting) == 0 {
		return
	}
	existing := make(map[types.UID]bool, len(present))
	for _, claim := range present {
		existing[claim.UID] = true
	}
	maps.DeleteFunc(s.markedForDeletion, func(uid types.UID, _ bool) bool { return !existing[uid] })
	maps.DeleteFunc(s.disrupting, func(uid types.UID, _ []string) bool { return !existing[uid] })
}
