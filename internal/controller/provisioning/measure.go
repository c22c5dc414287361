package provisioning

import (
	"context"
	"strconv"
	"time"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// by is the controller that metrics of plans name.
const by = "provisioner"

// budget bounds the work of a plan, and abandons it when ctx ends.
func budget(ctx context.Context) schedule.Budget {
	b := schedule.Bounded()
	b.Stop = func() bool { return ctx.Err() != nil }
	return b
}

// solve makes a plan, and shows that it is being made.
func (p *Provisioner) solve(ctx context.Context, snap *snapshot.Snapshot) (schedule.Plan, time.Duration) {
	start := p.Now()
	took := func() time.Duration { return p.Now().Sub(start) }
	p.plans++
	done := p.Metrics.Plans.Begin(by, strconv.Itoa(p.plans), len(snap.Pods), took)
	defer done()
	solve := p.Solve
	if solve == nil {
		solve = schedule.Solve
	}
	plan := solve(snap, budget(ctx))
	p.Metrics.SchedulingSeconds.WithLabelValues(by).Observe(took().Seconds())
	return plan, took()
}

// measure tells the metrics what was planned.
func (p *Provisioner) measure(snap *snapshot.Snapshot, plan schedule.Plan) {
	p.Metrics.Ignored.Set(float64(count(plan, (*schedule.Rejection).Ignored)))
	p.Metrics.Unschedulable.WithLabelValues(by).Set(float64(unschedulable(plan)))
	p.Metrics.PendingByZone.Reset()
	for zone, pods := range plan.Zones {
		p.Metrics.PendingByZone.WithLabelValues(by, zone).Set(float64(pods))
	}
	p.remember(snap, plan)
}

// unschedulable counts the pods that have no place, and will have none as things are.
func unschedulable(plan schedule.Plan) int {
	return count(plan, func(r *schedule.Rejection) bool { return !r.Deferred() && !r.Ignored() })
}

func count(plan schedule.Plan, which func(*schedule.Rejection) bool) int {
	n := 0
	for i := range plan.Rejected {
		if which(&plan.Rejected[i]) {
			n++
		}
	}
	return n
}

// remember notes for each pod whether it has a place, and whether nodes of the place's pool are known to join.
func (p *Provisioner) remember(snap *snapshot.Snapshot, plan schedule.Plan) {
	healthy := map[string]bool{}
	for i := range snap.Nodes {
		healthy[snap.Nodes[i].Name] = snap.Nodes[i].Initialized || joins(poolOf(snap, snap.Nodes[i].Pool))
	}
	for _, placed := range plan.Placements {
		for _, pod := range placed.Pods {
			p.Decisions.Place(pod, healthy[placed.Node])
		}
	}
	for i := range plan.Launches {
		for _, pod := range plan.Launches[i].Pods {
			p.Decisions.Place(pod, joins(plan.Launches[i].Pool))
		}
	}
	for i := range plan.Rejected {
		if r := &plan.Rejected[i]; !r.Deferred() {
			p.Decisions.Refuse(r.Pod)
		}
	}
}

func joins(pool *karpv1.NodePool) bool {
	return pool != nil && condition.IsTrue(pool, karpv1.ConditionNodeRegistrationHealthy)
}

func poolOf(snap *snapshot.Snapshot, name string) *karpv1.NodePool {
	for i := range snap.Pools {
		if snap.Pools[i].NodePool.Name == name {
			return snap.Pools[i].NodePool
		}
	}
	for _, pool := range snap.Closed {
		if pool.Name == name {
			return pool
		}
	}
	return nil
}
