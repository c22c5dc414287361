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
	condemned map[types.UID]time.Time
	// nominated holds nodes (by the snapshot's name) that were promised to a pod, and until when.
	nominated map[string]time.Time
	// primed is true once a read of the API server itself has been merged.
	primed bool
}

// NewState returns an empty State; it reads nothing yet.
func NewState(cfg Config) *State {
	return &State{
		cfg:       cfg,
		created:   map[types.UID]*karpv1.NodeClaim{},
		condemned: map[types.UID]time.Time{},
		nominated: map[string]time.Time{},
	}
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
	s.condemned[uid] = s.cfg.Now()
}

// Spare takes back a Condemn whose delete was refused.
func (s *State) Spare(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.condemned, uid)
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
	var claims karpv1.NodeClaimList
	if err := s.cfg.Live.List(ctx, &claims); err != nil {
		return fmt.Errorf("read node claims from the API server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range claims.Items {
		s.created[claims.Items[i].UID] = claims.Items[i].DeepCopy()
	}
	s.primed = true
	return nil
}

// Forget makes the next pass read the API server itself.
func (s *State) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.primed = false
}

// Primed reports whether the API server has been read since the last Forget.
func (s *State) Primed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primed
}

// claims returns the cache's NodeClaims together with those that it does not show yet.
func (s *State) claims(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := s.cfg.Cache.List(ctx, &list); err != nil {
		return nil, err
	}
	out := make([]*karpv1.NodeClaim, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	for _, claim := range s.unseen(out) {
		gone, err := s.gone(ctx, claim)
		if err != nil {
			return nil, err
		}
		if gone {
			s.drop(claim.UID)
			continue
		}
		out = append(out, claim)
	}
	s.forgetCondemned(out)
	return out, nil
}

// unseen returns the claims of ours that are not among cached, and forgets those that are.
func (s *State) unseen(cached []*karpv1.NodeClaim) []*karpv1.NodeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, claim := range cached {
		delete(s.created, claim.UID)
	}
	return slices.Collect(maps.Values(s.created))
}

func (s *State) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, uid)
}

// forgetCondemned drops the marks of claims that are gone for good.
func (s *State) forgetCondemned(present []*karpv1.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.condemned) == 0 {
		return
	}
	there := make(map[types.UID]bool, len(present))
	for _, claim := range present {
		there[claim.UID] = true
	}
	maps.DeleteFunc(s.condemned, func(uid types.UID, _ time.Time) bool { return !there[uid] })
}

// gone asks the API server about a claim that the cache does not show: not yet, or no longer?
func (s *State) gone(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	var live karpv1.NodeClaim
	err := s.cfg.Live.Get(ctx, client.ObjectKeyFromObject(claim), &live)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read node claim %q from the API server: %w", claim.Name, err)
	}
	return live.UID != claim.UID, nil
}

func (s *State) isCondemned(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.condemned[uid]
	return ok
}

func (s *State) nominatedUntil(node string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.nominated[node]
	if !until.IsZero() && until.Before(s.cfg.Now()) {
		delete(s.nominated, node)
	}
	return until
}
