package provisioning

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// launchWaitTimeout sets how long a pass waits for a launch in progress: a launch takes a second or two, so one that
	// takes ten times as long has most likely failed. launchPollInterval is how often the pass checks.
	launchWaitTimeout  = 20 * time.Second
	launchPollInterval = 500 * time.Millisecond
	// launchTurn sets how much longer it waits for each claim without an instance: the launches of a burst take turns at
	// EC2 and at the API server. With 1,000 nodes on two cores, 201 claims had no instance yet when a pass gave up
	// waiting, and it launched 72 nodes too many.
	launchTurn = 100 * time.Millisecond
	// longestLaunches is the age up to which it waits for any number of claims. Whatever their age, a pass waits no longer than
	// launchWaitTimeout in all: one that deletes its pods as soon as their claims are created would delay the pods of all others.
	longestLaunches = 2 * time.Minute
)

// lockAndSnapshot returns a snapshot and holds the provisioning lock until done is called. First it waits for launches
// of claims with pods that have been evicted and re-created under other names, or run on the node of another claim: until such a claim has
// launched, its capacity is unknown, and a plan would launch a second node for the pods that wait. It does not wait for a claim that is
// older than launchTimeout, nor longer than launchWaitTimeout in all.
func (p *Provisioner) lockAndSnapshot(ctx context.Context) (snap *snapshot.Snapshot, done func(), err error) {
	longest := time.NewTimer(launchWaitTimeout)
	defer longest.Stop()
	patient := true
	err = wait.PollUntilContextCancel(ctx, launchPollInterval, true /* immediate */, func(ctx context.Context) (bool, error) {
		unlock := p.State.LockProvisioning()
		err := panics.Error(func() (err error) { // a panic must not leave the lock held
			snap, err = p.State.Snapshot(ctx)
			return err
		})
		select {
		case <-longest.C:
			patient = false
		default:
		}
		if err != nil || patient && waitsForLaunch(snap) {
			unlock()
			return false, err
		}
		done = unlock
		return true, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return snap, done, nil
}

// waitsForLaunch reports whether a young claim without an instance was created for pods that no longer exist, or that run elsewhere while
// others wait.
//
// Cost: the number of nodes, and that of all pods if there is a young claim.
func waitsForLaunch(snap *snapshot.Snapshot) bool {
	var young []*snapshot.Node
	timeout := launchTimeout(snap)
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if !n.Launched && !n.Deleting && len(n.Nominated) > 0 && snap.Now.Sub(n.CreatedAt) <= timeout {
			young = append(young, n)
		}
	}
	if len(young) == 0 {
		return false
	}
	nominated := map[types.UID]bool{}
	for _, n := range young {
		for _, uid := range n.Nominated {
			nominated[uid] = true
		}
	}
	waiting, running := make(map[types.UID]bool, len(snap.Pods)), map[types.UID]bool{}
	for _, pod := range snap.Pods {
		waiting[pod.UID] = true
	}
	for i := range snap.Nodes {
		for _, pod := range snap.Nodes[i].Pods {
			if nominated[pod.UID] {
				running[pod.UID] = true
			}
		}
	}
	for _, n := range young {
		for _, uid := range n.Nominated {
			if !waiting[uid] && (!running[uid] || len(waiting) > 0) {
				return true
			}
		}
	}
	return false
}

// launchTimeout is the age up to which a claim without an instance counts as one with a launch that is in progress. Cost: linear in the
// nodes.
func launchTimeout(snap *snapshot.Snapshot) time.Duration {
	timeout := launchWaitTimeout
	for i := range snap.Nodes {
		if n := &snap.Nodes[i]; n.Claim != "" && !n.Launched && !n.Deleting {
			timeout += launchTurn
		}
	}
	return min(timeout, longestLaunches)
}
