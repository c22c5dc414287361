package dashboards

import "github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"

// disruption answers why nodes are terminated, and what keeps them.
func disruption() grafana.Dashboard {
	return grafana.Dashboard{
		UID: "dovetail-disruption", Title: prefix + "Disruption", From: "now-6h",
		Description: "Why are nodes terminated, what keeps them, and how long does it take?",
		Rows: []grafana.Row{
			{Height: statHeight, Panels: disruptionNumbers()},
			{Title: "Why nodes are terminated", Height: panelHeight, Panels: disruptionReasons()},
			{Title: "What keeps nodes", Height: panelHeight, Panels: disruptionBudgets()},
			{Title: "Draining and termination", Height: panelHeight, Panels: disruptionDrains()},
			{Title: "Interruptions and replacements", Height: panelHeight, Panels: disruptionInterruptions()},
			{Title: "Repair", Height: panelHeight, Panels: disruptionRepair(), Collapsed: true},
			{Title: "Search and feature gates", Height: panelHeight, Panels: disruptionSearch(), Collapsed: true},
		},
	}
}

// deleting are the nodes that exist beyond their deletion.
func deleting() string { return of("operator_nodeclaim_termination_current_time_seconds", inClaimPool) }

func disruptionNumbers() []grafana.Panel {
	const minutes = 60.0
	longest := stat("Longest termination", "max("+deleting()+") or vector(0)", grafana.Seconds,
		"For how long the NodeClaim that was deleted first has been terminating. Its conditions Drained and VolumesDetached have what it "+
			"waits for: kubectl describe nodeclaim NAME.")
	longest.Steps = []grafana.Step{{Color: good}, {From: 10 * minutes, Color: warning}, {From: 60 * minutes, Color: bad}}
	return []grafana.Panel{
		number("Nodes disrupted", total("karpenter_nodeclaims_disrupted_total", inPool), neutral,
			"NodeClaims that the controller has deleted in the time of the page. The panel below has the reasons."),
		number("Pods disrupted", total("karpenter_pods_disruption_initiated_total", inPool), neutral,
			"Pods on nodes that the controller has disrupted in the time of the page. If they are too many, set budgets on the NodePool, or "+
				"a longer consolidateAfter."),
		number("Nodes terminating", "count("+deleting()+") or vector(0)", fewIsGood,
			"NodeClaims that are deleted and still exist. If the number stays, see Nodes that terminate below."),
		longest,
		number("Failed replacements", total("karpenter_voluntary_disruption_queue_failures_total"), noneIsGood,
			"Replacements that did not become ready in the time of the page. The nodes stay. See the dashboard Five failures for nodes that do "+
				"not join."),
		number("Paused reasons", "count("+of("dovetail_disruption_paused", inPool)+" > 0) or vector(0)", noneIsGood,
			"NodePools and reasons for which nodes are not replaced, because replacements fail. The condition DisruptionPaused of the "+
				"NodePool has the cause."),
	}
}

func disruptionReasons() []grafana.Panel {
	return []grafana.Panel{
		bars("Nodes disrupted by reason",
			grafana.Query{Expr: events("reason", "karpenter_nodeclaims_disrupted_total", inPool), Legend: "{{reason}}"},
			"NodeClaims that the controller has deleted, by reason. Underutilized over and over: raise consolidateAfter. Drifted all at once: "+
				"a template or an image has changed; set budgets."),
		bars("Pods disrupted by NodePool",
			grafana.Query{Expr: events("nodepool", "karpenter_pods_disruption_initiated_total", inPool), Legend: "{{nodepool}}"},
			"Pods on nodes that the controller has disrupted. To bound them, set a budget on the NodePool, or a PodDisruptionBudget."),
		bars("Commands by NodePool", grafana.Query{
			Expr:   events("nodepool, decision", "karpenter_voluntary_disruption_decisions_by_nodepool_total", inPool),
			Legend: "{{nodepool}} {{decision}}",
		}, "Disruption commands that were started, by NodePool. Delete needs no new node; replace launches nodes first."),
	}
}

func disruptionBudgets() []grafana.Panel {
	return []grafana.Panel{
		over("Budgets: nodes that may be disrupted", grafana.Count, grafana.Query{
			Expr: "min by (nodepool) (" + of("karpenter_nodepools_allowed_disruptions", inPool) + ")", Legend: "{{nodepool}}",
		}, "Nodes of a NodePool that budgets allow to be disrupted now, for the reason with the smallest budget. At 0 for long, a budget is 0, "+
			"or nodes that are not Ready consume it."),
		over("Budgets: nodes that consume them", grafana.Count, grafana.Query{
			Expr: "max by (nodepool) (" + of("karpenter_nodepools_nodes_consuming_budgets", inPool) + ")", Legend: "{{nodepool}}",
		}, "Nodes of a NodePool that are terminating or not Ready. They consume the budgets. If the number stays, see Nodes that terminate."),
		over("Nodes that could be disrupted", grafana.Count, grafana.Query{
			Expr: "sum by (reason) (" + of("karpenter_voluntary_disruption_eligible_nodes") + ")", Legend: "{{reason}}",
		}, "Nodes that a reason applies to and nothing blocks. Drifted that does not fall: budgets are 0, or replacements fail. Events on the "+
			"nodes have what blocks them."),
	}
}

func disruptionDrains() []grafana.Panel {
	return []grafana.Panel{
		as(list("Nodes that terminate",
			"sort_desc(max by (name, karpenter_sh_nodepool) ("+deleting()+"))",
			"NodeClaims that are deleted and still exist, and for how long. Pods that may not be evicted, or volumes, keep them: kubectl describe "+
				"nodeclaim NAME.",
			grafana.Column{Field: "name", Title: "NodeClaim"}, grafana.Column{Field: "karpenter_sh_nodepool", Title: "NodePool"},
			grafana.Column{Field: "Value", Title: "For", Unit: grafana.Seconds}), wide(third), empty("No node terminates")),
		percentiles("Time to terminate a node", "karpenter_nodeclaims_termination_duration_seconds",
			"From the deletion of a NodeClaim until it is gone. If it is long, pods drain slowly: check PodDisruptionBudgets, and set "+
				"terminationGracePeriod.", inPool),
		bars("Calls to evict pods", grafana.Query{Expr: events("code", "karpenter_pods_eviction_requests_total"), Legend: "{{code}}"},
			"Calls of the eviction API, by HTTP code. 429: a PodDisruptionBudget does not allow it now. 500: two of them match one pod: run "+
				"dovetail doctor."),
		bars("Pods drained", grafana.Query{Expr: events("reason", "karpenter_pods_drained_total"), Legend: "{{reason}}"},
			"Pods that left terminating nodes, by the reason of the termination. None while nodes terminate: evictions are refused, see the panel "+
				"before."),
		bars("Nodes drained", grafana.Query{Expr: events("nodepool", "karpenter_nodes_drained_total", inPool), Legend: "{{nodepool}}"},
			"Nodes from which all pods have gone. Fewer than terminate for long: see Nodes that terminate."),
		as(percentiles("Time until an instance is gone", "karpenter_nodeclaims_instance_termination_duration_seconds",
			"From the call that terminates an instance until EC2 reports it terminated: usually one or two minutes. If it is longer, check the "+
				"health dashboard of AWS.", inPool)),
	}
}

func disruptionInterruptions() []grafana.Panel {
	return []grafana.Panel{
		bars("Interruptions",
			grafana.Query{
				Expr:   events("message_type", "karpenter_interruption_received_messages_total", `message_type!="no_op"`),
				Legend: "{{message_type}}",
			},
			"Messages of the interruption queue about instances of this cluster, by kind; instance_terminated also follows each termination by "+
				"Dovetail. Many spot interruptions: allow more instance types and zones."),
		percentiles("Delay of interruptions", "karpenter_interruption_message_queue_duration_seconds",
			"From an event of AWS until its message was handled. A spot instance is gone 2 min after its notice. Above 30 s, check the CPU of "+
				"the controller and the age of messages in SQS."),
		bars("Replacements by outcome", grafana.Query{
			Expr: events("reason, outcome", "dovetail_replacements_total", inPool), Legend: "{{reason}} {{outcome}}",
		}, "NodeClaims that were launched to replace others, by outcome. After some that fail, the reason is paused for the NodePool: read its "+
			"condition DisruptionPaused."),
		as(over("Age of nodes when they are gone", grafana.Seconds, grafana.Query{
			Expr:   recent("0.5", "nodepool", "karpenter_nodes_lifetime_duration_seconds", inPool),
			Legend: "{{nodepool}}",
		}, "Median age of nodes that were terminated. Minutes mean churn: raise consolidateAfter of the NodePool, or set budgets."),
			wide(half), empty("No node is gone")),
		as(list("Paused", "max by (nodepool, reason) ("+of("dovetail_disruption_paused", inPool)+") > 0",
			"NodePools and reasons for which nodes are not replaced, because too many replacements did not become ready. The cause: kubectl "+
				"describe nodepool NAME.",
			grafana.Column{Field: "nodepool", Title: "NodePool"}, grafana.Column{Field: "reason", Title: "Reason"}),
			wide(half), empty("Nothing is paused")),
	}
}

func disruptionRepair() []grafana.Panel {
	return []grafana.Panel{
		as(bars("Unhealthy nodes disrupted", grafana.Query{
			Expr:   events("condition", "karpenter_nodeclaims_unhealthy_disrupted_total", inPool),
			Legend: "{{condition}}",
		}, "Nodes that node repair has replaced or rebooted, by the node's condition. Many of one image: pin the image before."),
			empty("No node was repaired")),
		as(bars("Instances with failed status checks", grafana.Query{
			Expr: events("category", "karpenter_interruption_instance_status_unhealthy_total"), Legend: "{{category}}",
		}, "Instances that EC2 found impaired, by category. They are replaced. Many in one zone: check the health dashboard of AWS."),
			empty("No status check has failed")),
		as(bars("Reboots", grafana.Query{Expr: events("result", "karpenter_nodes_reboots_total"), Legend: "{{result}}"},
			"Reboots of unhealthy nodes, by result. A node that does not recover is replaced. Many recovery_timeout: reboots do not help for "+
				"this fault; turn the gate off."), empty("No node was rebooted")),
		as(percentiles("Time of a reboot until the node is Ready", "karpenter_nodes_reboot_recovery_duration_seconds",
			"From the reboot of a node until it is Ready again. If it is longer than replacing takes, turn settings.awsFeatureGates.rebootForRepair "+
				"off."), empty("No node was rebooted")),
	}
}

func disruptionSearch() []grafana.Panel {
	return []grafana.Panel{
		over("Time to search for commands", grafana.Seconds, grafana.Query{
			Expr:   recent("0.99", "reason", "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"),
			Legend: "{{reason}}",
		}, "The slowest one of a hundred searches, by reason. Above a minute, disruption lags: give the controller more CPU."),
		as(bars("Searches and commands given up", grafana.Query{
			Expr:   events("consolidation_type", "karpenter_voluntary_disruption_consolidation_timeouts_total"),
			Legend: "timed out, {{consolidation_type}}",
		}, "Searches that stopped before they were complete, and nodes of commands that were not valid any more after 15 s. Many: the cluster "+
			"changes faster than consolidation; raise consolidateAfter."),
			with(grafana.Query{
				Expr:   events("consolidation_type", "karpenter_voluntary_disruption_failed_validations_total"),
				Legend: "became invalid, {{consolidation_type}}",
			})),
		bars("Balanced: verdicts", grafana.Query{
			Expr: events("policy, decision", "karpenter_consolidation_moves_total", inPool), Legend: "{{policy}} {{decision}}",
		}, "What NodePools with the policy Balanced decided about commands. Only rejections for long: it would save too little for what it "+
			"disrupts."),
		as(over("Balanced: savings for disruption", grafana.Count, grafana.Query{
			Expr:   recent("0.5", "decision", "karpenter_consolidation_score", inPool),
			Legend: "{{decision}}",
		}, "Median share of the price of the NodePool that a command saves, for the share of the NodePool that it disrupts. At 0.5 and more "+
			"it is accepted."), empty("No NodePool is Balanced")),
		as(bars("Terminated before their replacement", grafana.Query{
			Expr:   events("terminate_first_reason", "karpenter_voluntary_disruption_terminate_first_decisions_total", inPool),
			Legend: "{{terminate_first_reason}}",
		}, "Nodes that were terminated first, since their replacement could not be launched beside them. To avoid it, leave room in the "+
			"reservation or the limit."), empty("None")),
		as(over("Pods that wait for a deletion cost", grafana.Count, grafana.Query{
			Expr:   "sum by (nodepool) (" + of("karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes", inPool) + ")",
			Legend: "{{nodepool}}",
		}, "Nodes with pods that have no deletion cost yet (feature gate PodDeletionCostManagement). If it does not fall, read the log for "+
			"refused writes."), empty("The feature gate is off")),
	}
}
