// Package cluster keeps what is known of the live cluster and cuts Snapshots from it.
//
// The facts are the informer cache's. On top of it lies what this process has itself decided and the
// cache may not show yet: claims just created, nodes just condemned, nodes just promised to a pod. So a
// pass always sees the writes of the pass before, and one pending pod never yields two claims.
package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// InstanceTypes says what can be launched for a node class.
type InstanceTypes interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Config is what a State is made from.
type Config struct {
	// Cache answers from the informers, Live from the API server itself.
	Cache, Live client.Reader
	Types       InstanceTypes
	// Overlays change prices and capacity of what Types says. Nil changes nothing.
	Overlays *Overlays
	// CapacityBuffers is the feature gate of that name.
	CapacityBuffers bool
	// Devices is where compiled expressions over devices are kept. While it is nil, devices are not read, and pods with
	// resource claims are not planned.
	Devices *cel.Cache
	// PoolLeftOut is told of a pool whose instance types could not be listed.
	PoolLeftOut func(pool *karpv1.NodePool, err error)
	Settings    snapshot.Settings
	// Labels is what label keys mean on this cloud.
	Labels requirement.Labels
	// NominationWindow is how long a pod's nomination protects a node, and how long an initialized
	// node keeps the room of a pod that it was bought for.
	NominationWindow time.Duration
	Now              func() time.Time
}

// State is the live state. It is safe for concurrent use.
type State struct {
	cfg Config

	mu sync.Mutex
	// created holds claims of ours that the cache has not shown yet.
	created map[types.UID]*karpv1.NodeClaim
	// condemned holds claims that we have deleted or are about to, until they are gone.
	condemned map[types.UID]bool
	// disrupting holds claims that a command of ours is to end, with the names of their replacements.
	disrupting map[types.UID][]string
	// nominated holds nodes (by the snapshot's name) that were promised to a pod, and until when.
	nominated map[string]time.Time
	// room holds how many virtual pods the last plan has put on which node; nil before the first.
	room map[string]int
	// reserved are places under a pool's limit on nodes that are set aside for claims about to be created.
	reserved map[string]int64
	// primed is true once a read of the API server itself has been merged. doubts counts the calls of
	// Forget: a read that began before the latest of them settles nothing.
	primed bool
	doubts int

	// reserving is held while places are counted and set aside. It is taken before mu.
	reserving sync.Mutex
	// buying is held by whoever creates claims, from the snapshot that they fit on. It is taken before the others.
	buying sync.Mutex
}

// NewState returns an empty State; it reads nothing yet.
func NewState(cfg Config) *State {
	return &State{
		cfg:        cfg,
		created:    map[types.UID]*karpv1.NodeClaim{},
		condemned:  map[types.UID]bool{},
		disrupting: map[types.UID][]string{},
		nominated:  map[string]time.Time{},
		reserved:   map[string]int64{},
	}
}

// Buying waits until nobody else is creating claims, and keeps others from it until done is called. It is to be held from the
// snapshot to the claims that are created by it: of two that decide by the same snapshot, each would spend what is left of a limit.
func (s *State) Buying() (done func()) {
	s.buying.Lock()
	return s.buying.Unlock
}

// Created tells the state of a claim before the cache knows it.
func (s *State) Created(claim *karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created[claim.UID] = claim.DeepCopy()
}

// Condemn marks a claim's node as going away, from the decision on.
func (s *State) Condemn(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condemned[uid] = true
}

// Disrupt marks a claim as one that a command is to end once the replacements are ready, from the decision on.
func (s *State) Disrupt(uid types.UID, replacements []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disrupting[uid] = slices.Clone(replacements)
}

// Spare takes back a Condemn whose delete was refused, or a Disrupt whose command was.
func (s *State) Spare(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.condemned, uid)
	delete(s.disrupting, uid)
}

// Nominate protects a node from disruption for the nomination window, starting now.
func (s *State) Nominate(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominated[node] = s.cfg.Now().Add(s.cfg.NominationWindow)
}

// Refresh merges the NodeClaims that the API server itself holds. It is called before the first pass
// and after a create whose outcome is unknown, when the cache may be behind what this process, or the
// one before it, has already bought.
func (s *State) Refresh(ctx context.Context) error {
	s.mu.Lock()
	doubts := s.doubts
	s.mu.Unlock()
	var claims karpv1.NodeClaimList
	if err := s.cfg.Live.List(ctx, &claims); err != nil {
		return fmt.Errorf("read node claims from the API server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range claims.Items {
		s.created[claims.Items[i].UID] = claims.Items[i].DeepCopy()
	}
	s.primed = s.doubts == doubts
	return nil
}

// Forget makes the next pass read the API server itself.
func (s *State) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.primed = false
	s.doubts++
}

// Primed reports whether the API server has been read since the last Forget.
func (s *State) Primed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primed
}

// claims returns the cache's NodeClaims together with those that it does not show yet. What we have created
// is looked up first: were it the other way round, a pass that sees the cache catch up in between would
// make a claim vanish from both.
func (s *State) claims(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	created := s.createdNow()
	var list karpv1.NodeClaimList
	if err := s.list(ctx, &list); err != nil {
		return nil, err
	}
	out := make([]*karpv1.NodeClaim, 0, len(list.Items)+len(created))
	cached := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
		cached[list.Items[i].UID] = true
	}
	for _, claim := range created {
		if cached[claim.UID] {
			s.drop(claim.UID)
			continue
		}
		live, err := s.live(ctx, claim)
		if err != nil {
			return nil, err
		}
		if live == nil {
			s.drop(claim.UID)
			continue
		}
		out = append(out, live)
	}
	s.forgetPast(out)
	return out, nil
}

func (s *State) createdNow() []*karpv1.NodeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.created))
}

func (s *State) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, uid)
}

// live asks the API server about a claim that the cache does not show: not yet, or no longer? It returns
// nil in the latter case.
func (s *State) live(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
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

// forgetPast drops the marks of claims that are gone for good, and the nominations that have run out.
func (s *State) forgetPast(present []*karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	maps.DeleteFunc(s.nominated, func(_ string, until time.Time) bool { return until.Before(now) })
	if len(s.condemned)+len(s.disrupting) == 0 {
		return
	}
	there := make(map[types.UID]bool, len(present))
	for _, claim := range present {
		there[claim.UID] = true
	}
	maps.DeleteFunc(s.condemned, func(uid types.UID, _ bool) bool { return !there[uid] })
	maps.DeleteFunc(s.disrupting, func(uid types.UID, _ []string) bool { return !there[uid] })
}
