package dashboards

import "github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"

// capacity answers what nodes there are, what of them is used, and what that costs.
func capacity() grafana.Dashboard {
	return grafana.Dashboard{
		UID: "dovetail-capacity", Title: prefix + "Capacity and cost", From: "now-6h",
		Description: "What nodes are there, how much of them do pods request, and what do they cost?",
		Rows: []grafana.Row{
			{Height: statHeight, Panels: capacityNumbers()},
			{Title: "Cost", Height: panelHeight, Panels: capacityCost()},
			{Title: "Utilization", Height: panelHeight, Panels: capacityUse()},
			{Title: "Limits and supply", Height: panelHeight, Panels: capacitySupply()},
			{Title: "Nodes", Height: 10, Panels: []grafana.Panel{capacityNodes()}},
		},
	}
}

// hoursPerMonth is a twelfth of a year.
const hoursPerMonth = "730"

// full nodes are good, up to where pods have no room to grow.
var fullIsGood = []grafana.Step{{Color: bad}, {From: 40, Color: warning}, {From: 60, Color: good}}

// requested is the share of a resource that pods request of the nodes of the NodePools.
func requested(by, resource string) string {
	sum := func(metric string) string {
		return "sum" + by + " (" + of(metric, inPool, `resource_type="`+resource+`"`) + ")"
	}
	pods, daemons, has := sum("karpenter_nodes_total_pod_requests"), sum("karpenter_nodes_total_daemon_requests"),
		sum("karpenter_nodes_allocatable")
	none := "0 * " + has // empty nodes have no requests
	return "100 * ((" + pods + " or " + none + ") + (" + daemons + " or " + none + ")) / " + has
}

func capacityNumbers() []grafana.Panel {
	spot := "count(" + of("karpenter_nodes_current_lifetime_seconds", inPool, `capacity_type="spot"`) + ")"
	all := "count(" + of("karpenter_nodes_current_lifetime_seconds", inPool) + ")"
	month := stat("Cost per month", hoursPerMonth+" * sum("+of("karpenter_nodepools_cost_total", inPool)+") or vector(0)", grafana.Dollars,
		"What the present nodes cost in a month, in $. Savings plans and credits are not in these prices.")
	month.Decimals = value(0)
	share := stat("Spot nodes", "100 * ("+spot+" or vector(0)) / "+all, grafana.Percent,
		"Share of nodes that are spot. If it falls, EC2 lacks spot capacity of the allowed types: allow more types and zones.")
	share.Decimals, share.Empty = value(0), "No nodes"
	return []grafana.Panel{
		costPerHour(),
		month,
		share,
		utilization("CPU requested", "cpu"),
		utilization("Memory requested", "memory"),
		number("NodePools near their limit",
			"count(max by (nodepool) ("+of("karpenter_nodepools_usage", inPool)+" / "+of("karpenter_nodepools_limit", inPool)+
				") > 0.9) or vector(0)", fewIsGood,
			"NodePools that use more than 90 % of a limit. At 100 % they launch nothing more: raise spec.limits, or find what grows."),
	}
}

func utilization(title, resource string) grafana.Panel {
	p := stat(title, requested("", resource), grafana.Percent,
		"Requests of all pods, as a percentage of what the nodes of the NodePools have. If it is low for long, see Why does my node stay? "+
			"in the documentation of disruption.")
	p.Steps, p.Decimals, p.Empty = fullIsGood, value(0), "No nodes"
	return p
}

func capacityCost() []grafana.Panel {
	return []grafana.Panel{
		as(over("Cost per hour by NodePool", grafana.Dollars,
			grafana.Query{Expr: "sum by (nodepool) (" + of("karpenter_nodepools_cost_total", inPool) + ")", Legend: "{{nodepool}}"},
			"What the nodes of each NodePool cost, in $/h. If one rises without need, its nodes cannot be consolidated: kubectl get events "+
				"--field-selector reason=Unconsolidatable."), stacked),
		nodesByCapacityType(),
		as(grafana.Panel{
			Kind: grafana.BarGauge, Title: "Nodes by instance type", Unit: grafana.Count, Width: third, Min: value(0.0), Steps: neutral,
			Queries: []grafana.Query{{
				Expr:   "topk(10, count by (instance_type) (" + of("karpenter_nodes_current_lifetime_seconds", inPool) + "))",
				Legend: "{{instance_type}}",
			}},
			Description: "The ten instance types with the most nodes. Few types make spot interruptions likely: relax the requirements of the " +
				"NodePool.",
		}, empty("No nodes")),
		as(over("Price of a vCPU by capacity type", grafana.Dollars, grafana.Query{
			Expr: "avg by (capacity_type) (" + of("karpenter_cloudprovider_instance_type_offering_price_estimate") + " / on (instance_type) " +
				"group_left () max by (instance_type) (" + of("karpenter_cloudprovider_instance_type_cpu_cores") + ") > 0)",
			Legend: "{{capacity_type}}",
		}, "Average price of a vCPU over all offerings with a known price, in $/h. If spot comes near on-demand, consolidation moves to "+
			"other types by itself."), colored(capacityTypes)),
		as(over("Age of prices", grafana.Seconds, grafana.Query{
			Expr: "time() - max by (capacity_type) (" + of("dovetail_prices_read_timestamp_seconds") + ")", Legend: "{{capacity_type}}",
		}, "Time since the prices were last read from AWS. They are read every 12 h. If they are older, read the log and check the "+
			"permissions: dovetail doctor."), colored(capacityTypes)),
		as(list("Nodes without a price", "sum by (nodepool) (increase("+of("karpenter_nodepools_cost_tracker_errors_total", inPool)+
			"[$__range])) > 0 or sum by (capacity_type) ("+of("dovetail_prices_built_in")+") > 0",
			"NodePools with nodes that have no known price, and capacity types for which the built-in prices are used since AWS could not be "+
				"read. Plans may not be the cheapest: dovetail doctor lists missing permissions.",
			grafana.Column{Field: "nodepool", Title: "NodePool"}, grafana.Column{Field: "capacity_type", Title: "Capacity type"},
			grafana.Column{Field: "Value", Title: "Count", Unit: grafana.Count}), wide(third), empty("All prices are from AWS")),
		plannedCost(),
		as(over("Realized savings per hour", grafana.Dollars,
			grafana.Query{Expr: "sum by (nodepool) (" + of("dovetail_nodepools_hourly_savings", inPool) + ")", Legend: "{{nodepool}}"},
			"What finished disruption commands save, in $/h, as EC2 gave the nodes, less what was launched for pods since; 0 when the "+
				"controller starts. If it is negative, replacements cost more: dovetail recording list."), signed),
		as(over("Saved by disruption", grafana.Dollars,
			grafana.Query{Expr: "sum by (nodepool) (" + of("dovetail_nodepools_saved_dollars", inPool) + ")", Legend: "{{nodepool}}"},
			"What these savings add up to since the controller has started, in $. dovetail recording list has them by decision."), signed),
	}
}

// signed is for values that may be negative.
func signed(p *grafana.Panel) { p.Min = nil }

func plannedCost() grafana.Panel {
	p := over("Cost now, planned, and lower bound", grafana.Dollars,
		grafana.Query{Expr: "sum(" + of("karpenter_nodepools_cost_total", inPool) + ")", Legend: "now"},
		"What the nodes cost, in $/h, what they will once all commands that are decided have finished, and what they cannot cost less than. "+
			"If planned stays far above the bound, dovetail assess names what keeps the rest.")
	p.Queries = append(p.Queries,
		grafana.Query{Expr: "sum(" + of("dovetail_nodepools_planned_cost", inPool) + ")", Legend: "planned"},
		grafana.Query{Expr: "sum(" + of("dovetail_nodepools_lower_bound_cost", inPool) + ")", Legend: "lower bound"})
	return p
}

func capacityUse() []grafana.Panel {
	share := func(title, resource, description string) grafana.Panel {
		p := over(title, grafana.Percent, grafana.Query{Expr: requested(" by (nodepool)", resource), Legend: "{{nodepool}}"}, description)
		p.Max = value(100.0)
		return p
	}
	return []grafana.Panel{
		share("CPU requested by NodePool", "cpu",
			"Requests of all pods, as a percentage of the CPU of the nodes. A NodePool below 50 % for long has nodes that cannot be "+
				"consolidated: kubectl get events --field-selector reason=Unconsolidatable."),
		share("Memory requested by NodePool", "memory",
			"Requests of all pods, as a percentage of the memory of the nodes. If it is high while CPU is low, allow instance types with more "+
				"memory for each vCPU, such as r."),
		as(over("Cluster utilization", grafana.Percent, grafana.Query{
			Expr:   "max by (resource_type) (" + of("karpenter_cluster_utilization_percent", `resource_type=~"cpu|memory|pods"`) + ")",
			Legend: "{{resource_type}}",
		}, "Requests of all pods, as a percentage of what all nodes of the cluster have, also those outside of NodePools. If pods is the "+
			"highest, nodes are full by number: raise maxPods or use larger pods."), func(p *grafana.Panel) { p.Max = value(100.0) }),
		as(over("CPU", grafana.Cores, resource("karpenter_nodes_allocatable", "cpu", "allocatable"),
			"vCPUs of the nodes, and what takes them. Limits above allocatable are overcommitted: pods may be throttled."),
			with(resource("karpenter_nodes_total_pod_requests", "cpu", "pod requests"),
				resource("karpenter_nodes_total_daemon_requests", "cpu", "DaemonSet requests"),
				resource("karpenter_nodes_total_pod_limits", "cpu", "pod limits"),
				resource("karpenter_nodes_system_overhead", "cpu", "system")), colored(uses)),
		as(over("Memory", grafana.Bytes, resource("karpenter_nodes_allocatable", "memory", "allocatable"),
			"Memory of the nodes, and what takes it. Limits above allocatable are overcommitted: pods may be killed. Set limits to requests."),
			with(resource("karpenter_nodes_total_pod_requests", "memory", "pod requests"),
				resource("karpenter_nodes_total_daemon_requests", "memory", "DaemonSet requests"),
				resource("karpenter_nodes_total_pod_limits", "memory", "pod limits"),
				resource("karpenter_nodes_total_daemon_limits", "memory", "DaemonSet limits"),
				resource("karpenter_nodes_system_overhead", "memory", "system")), colored(uses)),
		as(over("Nodes by zone", grafana.Count, grafana.Query{
			Expr: "count by (zone) (" + of("karpenter_nodes_current_lifetime_seconds", inPool, `zone!=""`) + ")", Legend: "{{zone}}",
		}, "Nodes by zone. A zone that is missing lacks subnets or capacity. Without topology spread, the cheapest zone gets most nodes."),
			stacked),
	}
}

// uses have the same colors for CPU and memory.
var uses = []grafana.Color{
	{Series: "allocatable", Color: "blue"},
	{Series: "pod requests", Color: "green"},
	{Series: "DaemonSet requests", Color: "purple"},
	{Series: "pod limits", Color: "orange"},
	{Series: "DaemonSet limits", Color: "light-purple"},
	{Series: "system", Color: "text"},
}

// resource is the sum of a resource over the nodes of the NodePools.
func resource(metric, name, legend string) grafana.Query {
	return grafana.Query{Expr: "sum(" + of(metric, inPool, `resource_type="`+name+`"`) + ")", Legend: legend}
}

func capacitySupply() []grafana.Panel {
	limit := "max by (nodepool, resource_type) (" + of("karpenter_nodepools_usage", inPool) + " / " + of("karpenter_nodepools_limit", inPool) +
		")"
	return []grafana.Panel{
		as(grafana.Panel{
			Kind: grafana.BarGauge, Title: "Used of limits", Unit: grafana.Ratio, Width: third, Min: value(0.0), Max: value(1.0),
			Steps:   []grafana.Step{{Color: good}, {From: 0.8, Color: warning}, {From: 0.95, Color: bad}},
			Queries: []grafana.Query{{Expr: limit, Legend: "{{nodepool}} {{resource_type}}"}},
			Description: "What the nodes use of spec.limits of their NodePool. At 100 % the NodePool launches nothing more, and pods wait: raise " +
				"the limit, or find what grows.",
		}, empty("No NodePool has limits")),
		as(over("Offerings without capacity", grafana.Count, grafana.Query{
			Expr: "sum by (zone) (" + of("karpenter_cloudprovider_instance_type_offering_available", `capacity_type!="reserved"`) +
				" == bool 0)",
			Legend: "{{zone}}",
		}, "Offerings that no NodePool can launch now: not allowed, or EC2 lacks capacity. A step up in one zone is a lack of capacity or a "+
			"zonal shift: allow other zones."), wide(third)),
		launchFailures(),
	}
}

// capacityNodes lists the nodes.
func capacityNodes() grafana.Panel {
	labels := "node_name, nodepool, instance_type, capacity_type, zone"
	used := func(resource string) string { return requested(" by ("+labels+")", resource) }
	return grafana.Panel{
		Kind: grafana.Table, Title: "Nodes", Unit: grafana.Count, Width: full, Empty: "No nodes",
		Description: "All nodes of the NodePools. An old node with low requests is blocked from consolidation: kubectl describe node NAME shows " +
			"the event with the cause.",
		Queries: []grafana.Query{
			{Expr: "max by (" + labels + ") (" + of("karpenter_nodes_current_lifetime_seconds", inPool) + ")"},
			{Expr: used("cpu")},
			{Expr: used("memory")},
		},
		Columns: []grafana.Column{
			{Field: "node_name", Title: "Node"},
			{Field: "nodepool", Title: "NodePool"},
			{Field: "instance_type", Title: "Instance type"},
			{Field: "capacity_type", Title: "Capacity type"},
			{Field: "zone", Title: "Zone"},
			{Field: grafana.ValueColumn(0, 3), Title: "Age", Unit: grafana.Seconds},
			{Field: grafana.ValueColumn(1, 3), Title: "CPU requested", Unit: grafana.Percent, Steps: fullIsGood},
			{Field: grafana.ValueColumn(2, 3), Title: "Memory requested", Unit: grafana.Percent, Steps: fullIsGood},
		},
	}
}
