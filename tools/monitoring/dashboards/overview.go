package dashboards

import "github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"

// overview answers whether pods get nodes, what they cost, and what is wrong.
func overview() grafana.Dashboard {
	return grafana.Dashboard{
		UID: "dovetail-overview", Title: prefix + "Overview", From: "now-3h",
		Description: "Do pods get nodes, what do the nodes cost, and what is wrong?",
		Rows: []grafana.Row{
			{Height: statHeight, Panels: overviewNumbers()},
			{Title: "Nodes and pods", Height: panelHeight, Panels: overviewNodes()},
			{Title: "Launches", Height: panelHeight, Panels: overviewLaunches()},
			{Title: "What is wrong", Height: panelHeight, Panels: overviewFaults()},
		},
	}
}

func overviewNumbers() []grafana.Panel {
	return []grafana.Panel{
		number("Nodes", "count("+of("karpenter_nodes_current_lifetime_seconds", inPool)+") or vector(0)", neutral,
			"Nodes of the NodePools. If there are none although pods wait, see the panels of Launches and What is wrong."),
		costPerHour(),
		number("Pods without a node", "count("+of("karpenter_pods_unbound_time_seconds")+") or vector(0)", fewIsGood,
			"Pods that the scheduler has not bound. They are normal while nodes boot. If the number stays, read the events of a pod: "+
				"kubectl describe pod NAME."),
		number("Unschedulable pods",
			"sum("+of("karpenter_scheduler_unschedulable_pods_count", `controller="provisioner"`)+") or vector(0)", noneIsGood,
			"Pods that no NodePool can launch a node for. The event FailedScheduling on each pod has the reason for each NodePool."),
		number("Findings", "sum("+of("dovetail_doctor_findings", `severity=~"error|warning"`)+") or vector(0)", noneIsGood,
			"Errors and warnings that the checks of dovetail doctor have found. Run dovetail doctor for objects and remedies."),
		number("Leaders", "sum("+of("leader_election_master_status")+") or vector(0)",
			[]grafana.Step{{Color: bad}, {From: 1, Color: good}, {From: 2, Color: bad}},
			"Controllers that lead; one for each cluster. With none, nothing is launched or disrupted: check the pods of the Deployment "+
				"and the Lease."),
	}
}

// costPerHour is what all nodes cost now.
func costPerHour() grafana.Panel {
	p := stat("Cost per hour", "sum("+of("karpenter_nodepools_cost_total", inPool)+") or vector(0)", grafana.Dollars,
		"What the nodes of the NodePools cost now, in $/h, by the prices that plans use. If it rises without new pods, see the dashboard "+
			"Capacity and cost.")
	p.Decimals = value(2)
	return p
}

func overviewNodes() []grafana.Panel {
	return []grafana.Panel{
		nodesByCapacityType(),
		as(over("Pods", grafana.Count,
			grafana.Query{Expr: "sum by (phase) (" + of("karpenter_pods_state", inPool) + ")", Legend: "{{phase}}"},
			"Pods by phase. A band of Pending that does not shrink means that pods wait for nodes, or that nodes do not join: see the row "+
				"What is wrong."),
			stacked, colored([]grafana.Color{
				{Series: "Running", Color: "green"},
				{Series: "Pending", Color: "orange"},
				{Series: "Failed", Color: "red"},
				{Series: "Succeeded", Color: "blue"},
			})),
		as(over("Cost per hour by NodePool", grafana.Dollars,
			grafana.Query{Expr: "sum by (nodepool) (" + of("karpenter_nodepools_cost_total", inPool) + ")", Legend: "{{nodepool}}"},
			"What the nodes of each NodePool cost, in $/h. If one rises without need, check why its nodes stay: kubectl get events "+
				"--field-selector reason=Unconsolidatable."), stacked),
	}
}

// nodesByCapacityType is shown on two pages.
func nodesByCapacityType() grafana.Panel {
	return as(over("Nodes by capacity type", grafana.Count,
		grafana.Query{
			Expr: "count by (capacity_type) (" + of("karpenter_nodes_current_lifetime_seconds", inPool) + ")", Legend: "{{capacity_type}}",
		},
		"Nodes by capacity type. Spot that turns into on-demand means that EC2 lacks spot capacity: allow more instance types and zones."),
		stacked, colored(capacityTypes))
}

func overviewLaunches() []grafana.Panel {
	return []grafana.Panel{
		bars("NodeClaims created", grafana.Query{Expr: events("nodepool", "karpenter_nodeclaims_created_total", inPool), Legend: "{{nodepool}}"},
			"NodeClaims created, by NodePool. Many without more pods mean that nodes do not join, or that disruption replaces them: see the "+
				"dashboards Five failures and Disruption."),
		bars("NodeClaims terminated",
			grafana.Query{Expr: events("nodepool", "karpenter_nodeclaims_terminated_total", inPool), Legend: "{{nodepool}}"},
			"NodeClaims deleted, by NodePool. The dashboard Disruption has the reasons. None for long while nodes are Deleting: see Nodes "+
				"that terminate there."),
		percentiles("Time until a pod is bound", "karpenter_pods_bound_duration_seconds",
			"From the creation of a pod until it is bound. A new node takes a minute or two. If it is longer, compare with the time to plan "+
				"on the dashboard Performance, and with late NodeClaims below."),
		launchFailures(),
		bars("Nodes created", grafana.Query{Expr: events("zone", "karpenter_nodes_created_total", inPool), Legend: "{{zone}}"},
			"Nodes that have joined, by zone. A zone that is missing lacks subnets or capacity: see Offerings without capacity on the "+
				"dashboard Capacity and cost."),
		bars("Nodes terminated", grafana.Query{Expr: events("zone", "karpenter_nodes_terminated_total", inPool), Legend: "{{zone}}"},
			"Nodes that are gone, by zone. Many of one zone at once are an interruption or a zonal shift: read the events of the NodePools."),
	}
}

// launchFailures is shown on two pages.
func launchFailures() grafana.Panel {
	return as(bars("Failed launches",
		grafana.Query{Expr: events("reason", "karpenter_cloudprovider_instance_launch_failures_total"), Legend: "{{reason}}"},
		"Offerings that EC2 did not launch, by reason. A lack of capacity is normal for single types: allow more types and zones. Quotas: "+
			"request an increase. Permissions: run dovetail doctor."), empty("No failed launches"))
}

func overviewFaults() []grafana.Panel {
	return []grafana.Panel{
		alerts(),
		as(list("Conditions that are not True",
			"sort_desc(max by (kind, name, type, reason) ("+of("operator_status_condition_current_status_seconds", `status!="True"`,
				`kind=~"NodePool|EC2NodeClass|NodeClaim"`, `type=~"[A-Z].*Ready|NodesCanJoin|Launched|Registered|Initialized|ValidationSucceeded"`)+
				"))",
			"NodePools, EC2NodeClasses and NodeClaims that are not ready, and for how long. The condition has a message with the remedy: "+
				"kubectl describe KIND NAME. NodeClaims are in this list while their nodes boot.",
			grafana.Column{Field: "kind", Title: "Kind"}, grafana.Column{Field: "name", Title: "Name"},
			grafana.Column{Field: "type", Title: "Condition"}, grafana.Column{Field: "reason", Title: "Reason"},
			grafana.Column{Field: "Value", Title: "For", Unit: grafana.Seconds}),
			wide(half), empty("All conditions are True")),
		as(list("Findings of doctor", "sum by (check, severity) ("+of("dovetail_doctor_findings")+") > 0",
			"What the checks of dovetail doctor have found in the last ten minutes. Run dovetail doctor for the objects and the remedies.",
			grafana.Column{Field: "check", Title: "Check"}, grafana.Column{Field: "severity", Title: "Severity"},
			grafana.Column{Field: "Value", Title: "Findings"}), wide(quarter), empty("Nothing found")),
	}
}

// alerts lists what fires.
func alerts() grafana.Panel {
	return as(list("Alerts", `max by (alertname, severity) (ALERTS{alertname=~"Dovetail.*", alertstate="firing", cluster=~"$cluster"})`,
		"Alerts of Dovetail that fire. Each has a description with the object and the next command, and a link to the documentation.",
		grafana.Column{Field: "alertname", Title: "Alert"}, grafana.Column{Field: "severity", Title: "Severity"}),
		wide(quarter), empty("No alert fires"))
}

// list is a table of the current results of a query.
func list(title, expr, description string, columns ...grafana.Column) grafana.Panel {
	return grafana.Panel{
		Kind: grafana.Table, Title: title, Unit: grafana.Count, Width: half, Description: description,
		Queries: []grafana.Query{{Expr: expr}}, Columns: columns,
	}
}
