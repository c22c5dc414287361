package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// use is how somebody else's dashboards and alerts use a metric: with these labels, in selectors or groups.
type use struct{ metric, labels string }

// nodeLabels are those by which the mixin's dashboards select and group nodes. The session has no more; the others are in
// TestMetricsOfNodesHaveTheLabelsOfTheMixin of the operator.
const nodeLabels = "node_name nodepool region zone arch instance_type capacity_type"

// ofMixin are the metrics of Karpenter in the four dashboards and five alerts of kubernetes-autoscaling-mixin, of August 2026. Its three
// panels of karpenter_workqueue_* are left out: no version of Karpenter has these.
var ofMixin = []use{
	{"karpenter_nodes_allocatable", nodeLabels + " resource_type"},
	{"karpenter_nodes_total_pod_requests", nodeLabels + " resource_type"},
	{"karpenter_nodes_total_pod_limits", nodeLabels + " resource_type"},
	{"karpenter_nodes_total_daemon_requests", nodeLabels + " resource_type"},
	{"karpenter_nodes_total_daemon_limits", nodeLabels + " resource_type"},
	{"karpenter_nodes_created_total", "nodepool"},
	{"karpenter_nodes_terminated_total", "nodepool"},
	{"karpenter_nodes_termination_duration_seconds", "quantile"},
	{"karpenter_nodeclaims_created_total", "nodepool"},
	{"karpenter_nodeclaims_terminated_total", "nodepool"},
	{"karpenter_nodeclaims_disrupted_total", "nodepool capacity_type reason"},
	{"karpenter_nodeclaims_termination_duration_seconds_bucket", "le"},
	{"karpenter_nodeclaims_termination_duration_seconds_sum", "nodepool"},
	{"karpenter_nodeclaims_termination_duration_seconds_count", "nodepool"},
	{"karpenter_nodepools_limit", "nodepool resource_type"},
	{"karpenter_nodepools_usage", "nodepool resource_type"},
	{"karpenter_pods_state", "phase nodepool instance_type capacity_type"},
	{"karpenter_pods_startup_duration_seconds", "quantile"},
	{"karpenter_voluntary_disruption_decisions_total", "decision reason"},
	{"karpenter_voluntary_disruption_eligible_nodes", "reason"},
	{"karpenter_voluntary_disruption_queue_failures_total", ""},
	{"karpenter_voluntary_disruption_decision_evaluation_duration_seconds_bucket", "le"},
	{"karpenter_cloudprovider_errors_total", "provider controller method error"},
	{"karpenter_cloudprovider_instance_type_offering_price_estimate", "instance_type capacity_type zone"},
	{"karpenter_cluster_state_synced", ""},
	{"karpenter_cluster_state_node_count", ""},
	{"karpenter_scheduler_queue_depth", ""},
	{"karpenter_scheduler_scheduling_duration_seconds_bucket", "le"},
	{"karpenter_interruption_received_messages_total", "message_type"},
	{"karpenter_interruption_deleted_messages_total", ""},
	{"karpenter_interruption_message_queue_duration_seconds_bucket", "le"},
	{"controller_runtime_reconcile_total", "controller result"},
}

// ofDatadog are the metrics that Datadog's check of Karpenter reads and a Karpenter of version 1 exports. The check names counters without
// _total. It also lists names that Karpenter had before version 1.
var ofDatadog = []use{
	{"controller_runtime_active_workers", "controller"},
	{"controller_runtime_max_concurrent_reconciles", "controller"},
	{"controller_runtime_reconcile_total", "controller result"},
	{"controller_runtime_reconcile_errors_total", "controller"},
	{"controller_runtime_reconcile_time_seconds_bucket", "controller le"},
	{"go_goroutines", ""},
	{"karpenter_cloudprovider_batcher_batch_size_bucket", "batcher le"},
	{"karpenter_cloudprovider_batcher_batch_time_seconds_bucket", "batcher le"},
	{"karpenter_cloudprovider_duration_seconds_bucket", "controller method provider le"},
	{"karpenter_cloudprovider_errors_total", "controller error method provider"},
	{"karpenter_cloudprovider_instance_type_cpu_cores", "instance_type"},
	{"karpenter_cloudprovider_instance_type_memory_bytes", "instance_type"},
	{"karpenter_interruption_deleted_messages_total", ""},
	{"karpenter_interruption_received_messages_total", "message_type"},
	{"karpenter_nodeclaims_created_total", "nodepool reason"},
	{"karpenter_nodeclaims_disrupted_total", "nodepool reason"},
	{"karpenter_nodeclaims_terminated_total", "nodepool"},
	{"karpenter_nodes_allocatable", "instance_type capacity_type zone region resource_type"},
	{"karpenter_nodes_created_total", "nodepool"},
	{"karpenter_nodes_terminated_total", "nodepool"},
	{"karpenter_nodes_system_overhead", "instance_type capacity_type zone region resource_type"},
	{"karpenter_nodes_total_daemon_limits", "instance_type capacity_type zone region resource_type"},
	{"karpenter_nodes_total_daemon_requests", "instance_type capacity_type zone region resource_type"},
	{"karpenter_nodes_total_pod_limits", "instance_type capacity_type zone region resource_type"},
	{"karpenter_nodes_total_pod_requests", "instance_type capacity_type zone region resource_type"},
	{"karpenter_pods_state", "phase"},
	{"rest_client_requests_total", "code method"},
	{"process_cpu_seconds_total", ""},
	{"process_open_fds", ""},
	{"process_resident_memory_bytes", ""},
	{"workqueue_adds_total", "name"},
	{"workqueue_depth", "name"},
	{"workqueue_queue_duration_seconds_bucket", "name le"},
	{"workqueue_retries_total", "name"},
	{"workqueue_work_duration_seconds_bucket", "name le"},
}

// What other people's dashboards and agents read is exported, with the labels that they use: the page of metrics has it, and so has a
// session of the lab, as far as it has series of the metric.
func TestWorksWithTheMixinAndDatadog(t *testing.T) {
	store, known := recorded(t), exported(t)
	names := store.Names()
	for name, uses := range map[string][]use{"kubernetes-autoscaling-mixin": ofMixin, "Datadog": ofDatadog} {
		seen := 0
		for _, u := range uses {
			labels := strings.Fields(u.labels)
			if slices.Contains(names, u.metric) {
				seen++
				of := store.Labels(u.metric)
				for _, l := range labels {
					if !of[l] {
						t.Errorf("%s: no series of %s has the label %s, only %v", name, u.metric, l, slices.Sorted(maps.Keys(of)))
					}
				}
				// Labels that the page calls labels of nodes are those of the series.
				labels = slices.DeleteFunc(labels, func(l string) bool { return of[l] })
			}
			expr, err := series.Parser().ParseExpr(fmt.Sprintf("sum by (%s) (%s)", strings.Join(labels, ", "), u.metric))
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range unknownNames(expr, known) {
				t.Errorf("%s: %s", name, problem)
			}
		}
		if seen < 15 {
			t.Errorf("%s: the session has only %d of %d metrics", name, seen, len(uses))
		}
	}
}
