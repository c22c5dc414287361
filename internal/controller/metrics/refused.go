package metrics

import "github.com/prometheus/client_golang/prometheus"

// newRefused declares the metrics of pods that new nodes do not run.
func newRefused(d *registrar) (*prometheus.GaugeVec, *prometheus.CounterVec) {
	pods := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_refused_pods",
		Help: "Pending pods that nodes were launched for, came up, and do not run. No other node is launched for them before a pause is over " +
			"(waiting), or before the pods, the NodePool or its EC2NodeClass change (held).",
	}, []string{"nodepool", "state"})
	nodes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_refused_nodes_total",
		Help: "Nodes that were launched for pods, came up, and do not run them, by what is known of why: NodeTainted, NodeLabelsDiffer, " +
			"NodeTooSmall, NodeLacksFeature, NodeLacksDriver, OtherPodsFirst, PodGroupIncomplete, or only what kube-scheduler reports, SchedulerRefuses.",
	}, []string{"nodepool", "cause"})
	d.register(pods)
	d.register(nodes)
	return pods, nodes
}
