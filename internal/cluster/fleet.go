package cluster

import (
	"context"
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

// Fleet returns the nodes of a pool with their pods, claims that have no instance yet included.
func (s *State) Fleet(ctx context.Context, pool string) ([]snapshot.Node, error) {
	if !s.Primed() {
		if err := s.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	objects, facts := &Objects{}, s.facts()
	for _, step := range []func(context.Context, *Objects) error{s.readNodes, s.readPods} {
		if err := step(ctx, objects); err != nil {
			return nil, fmt.Errorf("read the nodes of node pool %q: %w", pool, err)
		}
	}
	s.mark(&facts)
	w := &world{Objects: *objects, facts: facts, snap: &snapshot.Snapshot{Now: facts.Now}}
	w.cutNodes()
	w.cutPods()
	return slices.DeleteFunc(w.snap.Nodes, func(n snapshot.Node) bool { return n.Claim == "" || n.Pool != pool }), nil
}

// Reserve sets places under the pool's limit on nodes aside for up to want claims, and returns how many. Each is to be
// given back by Release once its claim has been created, or could not be.
//
// Reservations are made one after another, and each reads what is reserved before it counts what is there: a claim that is
// created meanwhile is seen in one of the two, or in both, never in neither.
func (s *State) Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error) {
	s.reserving.Lock()
	defer s.reserving.Unlock()
	held := s.hold(pool.Name, 0)
	nodes, err := s.Fleet(ctx, pool.Name)
	if err != nil {
		return 0, err
	}
	granted := static.Grant(static.Limit(pool), static.Count(nodes).All(), held, want)
	s.hold(pool.Name, granted)
	return granted, nil
}

// Release gives one reserved place of the pool back. Where none is reserved it does nothing.
func (s *State) Release(pool string) { s.hold(pool, -1) }

// hold adds to the pool's reserved places and returns how many there are then.
func (s *State) hold(pool string, more int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := max(0, s.reserved[pool]+more)
	if held == 0 {
		delete(s.reserved, pool)
		return 0
	}
	s.reserved[pool] = held
	return held
}
