package metrics

import "github.com/prometheus/client_golang/prometheus"

// Surplus states why no pod has come to a node.
type Surplus string

// The causes of surplus launches: what became of the pods that the NodeClaim was launched for, when its node is removed.
const (
	// SurplusLaunchedAgain: another NodeClaim was launched for each of them.
	SurplusLaunchedAgain Surplus = "launched_again"
	// SurplusBoundElsewhere: none waits, and some run on nodes that were not launched for them.
	SurplusBoundElsewhere Surplus = "bound_elsewhere"
	// SurplusUnbound: some still wait for a node, and the scheduler did not choose this one.
	SurplusUnbound Surplus = "unbound"
	// SurplusPodsGone: none exists any more. The node was not launched twice for one pod, but for no pod in the end.
	SurplusPodsGone Surplus = "pods_gone"
)

// The reasons why a plan leaves pods out.
const (
	QuarantinedForPanic = "plan_panics"
	QuarantinedForClaim = "claim_rejected"
)

// newQuarantined declares the metric of pods that plans leave out.
func newQuarantined(d *registrar) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_quarantined_pods",
		Help: "Pods that the last plan for pending pods left out, because planning with them panics (plan_panics) or the API server rejects " +
			"their NodeClaim (claim_rejected).",
	}, []string{"reason"})
	d.register(g)
	for _, reason := range []string{QuarantinedForPanic, QuarantinedForClaim} {
		g.WithLabelValues(reason)
	}
	return g
}

// newSurplus declares the metric of surplus launches; all its series exist from the start, so that the first one is an increase.
func newSurplus(d *registrar) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_surplus_launches_total",
		Help: "Nodes that were launched for pods and removed before any pod came to them, by what became of their pods: launched_again, " +
			"bound_elsewhere, unbound or pods_gone.",
	}, []string{"cause"})
	d.register(c)
	for _, cause := range []Surplus{SurplusLaunchedAgain, SurplusBoundElsewhere, SurplusUnbound, SurplusPodsGone} {
		c.WithLabelValues(string(cause))
	}
	return c
}
