package status

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// passesPerCount sets how many passes of the Counter share one count of disruption: 15 s are as long as a command waits
	// for its validation, and a pool with many short disruptions is written no more often.
	passesPerCount = 3
	// passesUntilRetry counts the passes after which a pool is written again if the API server drops the field: half an hour,
	// in case its CRD was replaced.
	passesUntilRetry = 360
)

// nodeSource reads the nodes of the cluster.
type nodeSource interface {
	Nodes(ctx context.Context) (*snapshot.Snapshot, error)
}

// disruptionCounter counts what status.disruption states. The zero value is ready to use; it is for one goroutine.
type disruptionCounter struct {
	passes int
	// dropped is the pass in which the API server dropped the field of a pool: the CRD of another controller lacks it.
	dropped map[types.UID]int
}

// count counts by the names of pools; nil in a pass that leaves the status as it is.
func (d *disruptionCounter) count(
	ctx context.Context, from nodeSource, pools []karpv1.NodePool,
) (map[string]*karpv1.DisruptionStatus, error) {
	d.passes++
	if d.passes%passesPerCount != 1 {
		return nil, nil
	}
	d.forget(pools)
	s, err := from.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := *s
	all.Closed = nil
	for i := range pools {
		all.Closed = append(all.Closed, &pools[i])
	}
	out := make(map[string]*karpv1.DisruptionStatus, len(pools))
	for _, reason := range karpv1.DisruptionReasons() {
		for _, a := range disrupt.Allowances(&all, reason) {
			addReason(out, a, reason)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if status := out[n.Pool]; status != nil && n.Claim != "" && !n.DriftedAt.IsZero() {
			status.Drifted++
		}
	}
	for _, status := range out {
		if status.Allowed == "" {
			status.Allowed = allowed(status.Budgets)
		}
	}
	return out, nil
}

// makeDue makes the next pass count.
func (d *disruptionCounter) makeDue() {
	d.passes += (passesPerCount - d.passes%passesPerCount) % passesPerCount
}

func addReason(out map[string]*karpv1.DisruptionStatus, a disrupt.Allowance, reason karpv1.DisruptionReason) {
	status := out[a.Pool.Name]
	if status == nil { // of the first reason, for which nodes that are not ready count
		status = &karpv1.DisruptionStatus{Nodes: int64(a.Nodes), Disrupted: int64(a.Disrupting)}
		out[a.Pool.Name] = status
	}
	if a.Err != nil {
		status.Allowed = "invalid"
	}
	budget := karpv1.BudgetStatus{Reason: reason}
	if n := int64(a.Allowed); n < disrupt.Unlimited {
		budget.Nodes = &n
	}
	status.Budgets = append(status.Budgets, budget)
}

// allowed is like "3", or "Drifted:0 others:3": a column of a table.
func allowed(budgets []karpv1.BudgetStatus) string {
	byNumber := map[string][]string{}
	var order []string
	for _, b := range budgets {
		text := "any"
		if b.Nodes != nil {
			text = strconv.FormatInt(*b.Nodes, 10)
		}
		if byNumber[text] == nil {
			order = append(order, text)
		}
		byNumber[text] = append(byNumber[text], string(b.Reason))
	}
	if len(order) == 1 {
		return order[0]
	}
	usual := order[0]
	for _, text := range order {
		if len(byNumber[text]) > len(byNumber[usual]) {
			usual = text
		}
	}
	var parts []string
	for _, text := range order {
		if text != usual {
			parts = append(parts, fmt.Sprintf("%s:%s", strings.Join(byNumber[text], ","), text))
		}
	}
	return strings.Join(append(parts, "others:"+usual), " ")
}

// set sets the status of a pool, unless there is no count, or the API server drops it.
func (d *disruptionCounter) set(pool *karpv1.NodePool, status *karpv1.DisruptionStatus) {
	if at, dropped := d.dropped[pool.UID]; status == nil || dropped && d.passes-at < passesUntilRetry {
		return
	}
	pool.Status.Disruption = status.DeepCopy()
}

// written takes the pool as the API server has answered the write: without the field, its CRD does not have it.
func (d *disruptionCounter) written(pool *karpv1.NodePool, status *karpv1.DisruptionStatus) {
	if status == nil {
		return
	}
	if pool.Status.Disruption != nil {
		delete(d.dropped, pool.UID)
		return
	}
	if d.dropped == nil {
		d.dropped = map[types.UID]int{}
	}
	if at, known := d.dropped[pool.UID]; !known || d.passes-at >= passesUntilRetry {
		d.dropped[pool.UID] = d.passes
	}
}

// forget drops what is known of pools that are gone.
func (d *disruptionCounter) forget(pools []karpv1.NodePool) {
	for uid := range d.dropped {
		if !slices.ContainsFunc(pools, func(p karpv1.NodePool) bool { return p.UID == uid }) {
			delete(d.dropped, uid)
		}
	}
}
