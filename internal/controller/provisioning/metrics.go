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

// controllerLabel is the value of the label controller in metrics of plans.
const controllerLabel = "provisioner"

// budget bounds the work of a plan, and abandons it when ctx is done.
func budget(ctx context.Context) schedule.Budget {
	b := schedule.DefaultBudget()
	b.Stop = func() bool { return ctx.Err() != nil }
	return b
}

// solve computes a plan. Metrics show it while it runs.
func (p *Provisioner) solve(ctx context.Context, snap *snapshot.Snapshot) (schedule.Plan, time.Duration) {
	start := p.Now()
	took := func() time.Duration { return p.Now().Sub(start) }
	p.plans++
	done := p.Metrics.Plans.Begin(controllerLabel, strconv.Itoa(p.plans), len(snap.Pods), took)
	defer done()
	solve := p.Solve
	if solve == nil {
		solve = schedule.Solve
	}
	plan := solve(snap, budget(ctx))
	p.Metrics.SchedulingSeconds.WithLabelValues(controllerLabel).Observe(took().Seconds())
	return plan, took()
}

// recordMetrics sets the metrics of a plan.
func (p *Provisioner) recordMetrics(snap *snapshot.Snapshot, plan schedule.Plan) {
	p.Metrics.Ignored.Set(float64(count(plan, (*schedule.Rejection).Ignored)))
	p.Metrics.Unschedulable.WithLabelValues(controllerLabel).Set(float64(unschedulable(plan)))
	p.Metrics.PendingByZone.Reset()
	for zone, pods := range plan.Zones {
		p.Metrics.PendingByZone.WithLabelValues(controllerLabel, zone).Set(float64(pods))
	}
	p.recordDecisions(snap, plan)
}

// unschedulable counts the pods that no node fits, existing or new. Pods that nodes were launched for in vain have a metric and an alert of
// their own, which name the cause.
func unschedulable(plan schedule.Plan) int {
	return count(plan, func(r *schedule.Rejection) bool { return !r.Deferred() && !r.Ignored() && !isRefused(r) })
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

// recordDecisions records for each pod whether it has a node, and whether the pool of that node is known to register
// nodes.
func (p *Provisioner) recordDecisions(snap *snapshot.Snapshot, plan schedule.Plan) {
	healthy := map[string]bool{}
	for i := range snap.Nodes {
		healthy[snap.Nodes[i].Name] = snap.Nodes[i].Initialized || registrationHealthy(poolByName(snap, snap.Nodes[i].Pool))
	}
	for _, placed := range plan.Placements {
		for _, pod := range placed.Pods {
			p.Decisions.Place(pod, healthy[placed.Node])
		}
	}
	for i := range plan.Launches {
		for _, pod := range plan.Launches[i].Pods {
			p.Decisions.Place(pod, registrationHealthy(plan.Launches[i].Pool))
		}
	}
	for i := range plan.Rejected {
		if r := &plan.Rejected[i]; !r.Deferred() {
			p.Decisions.Refuse(r.Pod)
		}
	}
}

func registrationHealthy(pool *karpv1.NodePool) bool {
	return pool != nil && condition.IsTrue(pool, karpv1.ConditionNodeRegistrationHealthy)
}

func poolByName(snap *snapshot.Snapshot, name string) *karpv1.NodePool {
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
