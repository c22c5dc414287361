package provisioning

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// noticed is a state that reports each snapshot, and has nothing to plan.
type noticed struct {
	clusterState
	snapshots chan<- time.Time
}

func (s noticed) Snapshot(context.Context) (*snapshot.Snapshot, error) {
	s.snapshots <- time.Now()
	return &snapshot.Snapshot{}, nil
}

func (noticed) LockProvisioning() func() { return func() {} }

func (noticed) SetBufferPods(map[string]int) {}

// Pods that were planned before wait for the pass of another that is in progress. New ones do not, even if others wait already.
func TestNewPodsDoNotWaitForOtherPasses(t *testing.T) {
	f := controllertest.New(t)
	synctest.Test(t, func(t *testing.T) {
		snapshots := make(chan time.Time, 10)
		b := NewBatch(time.Second, 10*time.Second)
		p := &Provisioner{
			Client: f.API, State: noticed{snapshots: snapshots}, Batch: b, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: time.Now,
			Turns: &turns.Turns{},
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = p.Start(ctx) }()
		start := time.Now()
		expect := func(what string, want time.Duration) {
			t.Helper()
			if got := (<-snapshots).Sub(start); got != want {
				t.Errorf("%s: planned after %v, want %v", what, got, want)
			}
			start = time.Now()
		}
		b.TriggerFirst("new")
		expect("nothing else is in progress", time.Second)
		b.Retrigger("new")
		expect("the same pod again", time.Second)

		end := p.Turns.Now()
		b.TriggerFirst("newer")
		expect("another pass is in progress", time.Second)
		b.Retrigger("newer")
		expect("another pass takes very long", time.Second+retriggerInterval)
		b.Retrigger("newer")
		time.Sleep(4 * time.Second)
		end()
		expect("another pass ends", 4*time.Second)

		end = p.Turns.Now()
		defer end()
		b.Retrigger("newer")
		time.Sleep(2 * time.Second)
		b.TriggerFirst("newest")
		expect("a pod comes while another waits", 3*time.Second)
		b.Retrigger("newer")
		b.Trigger("a node that terminates")
		expect("a node terminates", time.Second)
		synctest.Wait()
		if len(snapshots) > 0 {
			t.Errorf("%d other passes", len(snapshots))
		}
		cancel()
		synctest.Wait()
	})
}
