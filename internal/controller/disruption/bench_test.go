package disruption

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// fixedState is a cluster state that does not change.
type fixedState struct{ snap *snapshot.Snapshot }

func (s fixedState) Snapshot(context.Context) (*snapshot.Snapshot, error) { return s.snap, nil }
func (fixedState) Version(context.Context) (cluster.Version, bool)        { return cluster.Version{}, false }
func (fixedState) LockProvisioning() func()                               { return func() {} }
func (fixedState) MarkForDeletion(types.UID)                              {}
func (fixedState) Unmark(types.UID)                                       {}
func (fixedState) MarkDisrupting(types.UID, []string)                     {}
func (fixedState) Created(*karpv1.NodeClaim)                              {}
func (fixedState) Nominate(string)                                        {}
func (fixedState) Invalidate()                                            {}
func (fixedState) Release(string)                                         {}
func (fixedState) Reserve(context.Context, *karpv1.NodePool, int64) (int64, error) {
	return 0, nil
}

func (fixedState) ReservedRoom(context.Context, *karpv1.NodePool) (reservation.TemplateRoom, error) {
	return reservation.TemplateRoom{}, nil
}

// BenchmarkIdlePass is a pass over a fleet of which every node has pods, after one that has found nothing to do.
func BenchmarkIdlePass(b *testing.B) {
	for _, nodes := range []int{100, 2_000, 10_000} {
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand)
			if err != nil {
				b.Fatal(err)
			}
			s, err := workload.RunningCluster(nodes, 0.35, 1, list)
			if err != nil {
				b.Fatal(err)
			}
			s.Pools[0].NodePool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty
			for i := range s.Nodes {
				if n := &s.Nodes[i]; len(n.Pods) == 0 {
					n.Pods = []*corev1.Pod{{}}
				}
			}
			metrics, err := metrics.New(prometheus.NewRegistry())
			if err != nil {
				b.Fatal(err)
			}
			now := func() time.Time { return s.Now }
			l := &Loop{
				State: fixedState{s}, Queue: &Queue{Now: now}, Metrics: metrics, Log: slog.New(slog.DiscardHandler), Now: now,
				Events: event.NewRecorder(&record.FakeRecorder{}, now),
			}
			if acted, err := l.pass(b.Context()); acted || err != nil || len(l.Queue.memory.now().Proposals) > 0 || l.Queue.memory.now().Search.At.IsZero() {
				b.Fatalf("acted %v, error %v, %d proposals", acted, err, len(l.Queue.memory.now().Proposals))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.pass(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
