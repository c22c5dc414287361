package dashboards

import "github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"

// failures answers which of the five failures of node autoscaling on EKS is there, where, and what to do.
func failures() grafana.Dashboard {
	return grafana.Dashboard{
		UID: "dovetail-failures", Title: prefix + "Five failures", From: "now-3h",
		Description: "Five failures of node autoscaling on EKS: two clusters with one name, nodes that never join, volumes that stay, two nodes " +
			"for one pod, a startup taint that stays.",
		Rows: []grafana.Row{
			{Height: statHeight, Panels: failureNumbers()},
			{Title: "Two clusters with one name", Height: 7, Panels: sharedName()},
			{Title: "Nodes that never join", Height: 7, Panels: neverJoin()},
			{Title: "Volumes that stay on a disrupted node", Height: 7, Panels: stuckVolumes()},
			{Title: "Two nodes for one pod", Height: 7, Panels: twoNodes()},
			{Title: "A startup taint that stays", Height: 7, Panels: stuckTaints()},
		},
	}
}

// Selectors of the conditions with which the controller names a failure.
const (
	// notJoining: the instance has not become a node in time; the reason is the cause.
	notJoining = `type="Registered", status="Unknown", reason!~"AwaitingReconciliation|NodeNotFound|RegistrationHookPending"`
	// notInitialized: a startup taint stays, or the node does not become Ready.
	notInitialized = `type="Initialized", status="Unknown", reason=~"TaintStuck|NodeNeverReady"`
	// notDetached: volumes are attached after the pods have gone.
	notDetached = `type="VolumesDetached", status!="True", reason=~"AwaitingVolumeDetachment|TerminationGracePeriodElapsed"`
)

// notInVain: the pods of the launch still exist, or did when another claim was launched for them.
const notInVain = `cause!="pods_gone"`

// conditions counts objects of a kind with a condition.
func conditions(kind, selector string) string {
	return "sum(" + of("operator_"+kind+"_status_condition_count", selector) + ") or vector(0)"
}

func failureNumbers() []grafana.Panel {
	p := []grafana.Panel{
		number("Two clusters, one name", "sum("+of("dovetail_foreign_instances")+") or vector(0)", noneIsGood,
			"Instances with the name of this cluster that belong to another cluster. Dovetail does not touch them. Give each cluster a name of its "+
				"own: dovetail doctor."),
		number("Nodes that do not join", conditions("nodeclaim", notJoining), noneIsGood,
			"Instances that have not become nodes in time. The condition Registered of the NodeClaim has the cause: dovetail doctor."),
		number("Volumes that stay", "count("+late("operator_nodeclaim_status_condition_current_status_seconds", notDetached, "60")+
			") or vector(0)", noneIsGood,
			"Terminating nodes with volumes that are attached more than a minute after the pods have gone. The condition VolumesDetached has "+
				"what holds them."),
		number("Nodes no pod came to", total("dovetail_surplus_launches_total", notInVain), fewIsGood,
			"Nodes launched for pods and removed before any pod came to them, over the time of the page. The row below has what became of the "+
				"pods: dovetail doctor."),
		number("Startup taints that stay", conditions("nodeclaim", notInitialized), noneIsGood,
			"Nodes with a startup taint beyond its time, or that never became Ready. The condition Initialized of the NodeClaim names the taint and "+
				"its owner."),
	}
	for i := range p {
		p[i].Width = []int{5, 5, 5, 5, 4}[i]
	}
	return p
}

// late selects series of a metric in seconds that are above a bound.
func late(metric, selector, seconds string) string {
	return of(metric, selector, inClaimPool) + " > " + seconds
}

// waiting lists NodeClaims with a condition, and for how long they have had it.
func waiting(title, selector, description string, column string) grafana.Panel {
	return as(list(title, "sort_desc(max by (name, reason) ("+
		of("operator_nodeclaim_status_condition_current_status_seconds", selector, inClaimPool)+"))", description,
		grafana.Column{Field: "name", Title: "NodeClaim"}, grafana.Column{Field: "reason", Title: column},
		grafana.Column{Field: "Value", Title: "For", Unit: grafana.Seconds}), wide(third), empty("None"))
}

func sharedName() []grafana.Panel {
	return []grafana.Panel{
		as(over("Instances of other clusters", grafana.Count, grafana.Query{
			Expr: "max by (cluster_uid) (" + of("dovetail_foreign_instances") + ")", Legend: "cluster {{cluster_uid}}",
		}, "Instances with this cluster's name that another cluster owns, by its UID. Other autoscalers may terminate the nodes of both: rename one "+
			"cluster, or fix settings.clusterName."), empty("No other cluster has this name")),
		as(over("Instances without an owner", grafana.Count, grafana.Query{
			Expr: "max(" + of("dovetail_unknown_instances") + ")", Legend: "without a cluster's UID",
		}, "Instances with this cluster's name and without a UID or NodeClaim. Dovetail does not touch them. If they are yours: dovetail adopt "+
			"INSTANCE-ID."), with(
			grafana.Query{Expr: "max(" + of("dovetail_collection_refused_instances") + ")", Legend: "too many to terminate"},
			grafana.Query{Expr: "sum(" + of("dovetail_adopted_instances_total") + ")", Legend: "adopted so far"})),
		as(list("NodePools that report it", "sum by (name, reason) ("+
			of("operator_nodepool_status_condition_count", `type="ClusterNameShared"`, `status="True"`)+")",
			"NodePools with the condition ClusterNameShared. kubectl describe nodepool NAME has the UID of the other cluster and its instances.",
			grafana.Column{Field: "name", Title: "NodePool"}, grafana.Column{Field: "reason", Title: "Reason"}),
			wide(third), empty("None")),
	}
}

func neverJoin() []grafana.Panel {
	return []grafana.Panel{
		as(bars("Nodes that did not join in time", grafana.Query{
			Expr: firstEvents("cause", "dovetail_join_failures_total"), Legend: "{{cause}}",
		}, "NodeClaims with an instance that did not become a node in time, by cause. The event of the NodeClaim has the remedy: dovetail doctor "+
			"prints it as a command."), empty("All nodes have joined")),
		waiting("NodeClaims that do not join", notJoining,
			"NodeClaims with an instance and without a node, and the cause. kubectl describe nodeclaim NAME has the remedy.", "Cause"),
		as(list("Launches held back", "max by (kind, name, reason) ("+of("operator_status_condition_count", `type="NodesCanJoin"`,
			`status="False"`)+")",
			"NodePools and EC2NodeClasses that launch one node at a time, because nodes do not join. They resume when one joins. The condition has "+
				"the cause.",
			grafana.Column{Field: "kind", Title: "Kind"}, grafana.Column{Field: "name", Title: "Name"},
			grafana.Column{Field: "reason", Title: "Cause"}), wide(third), empty("None")),
		as(over("Instance hours without a node", grafana.Count, grafana.Query{
			Expr: "sum by (cause) (" + of("dovetail_join_wasted_instance_hours_total") + ")", Legend: "{{cause}}",
		}, "Hours that instances ran without becoming nodes, since the controller started, by cause. It is money: fix the first cause first."),
			wide(half), empty("None")),
		as(percentiles("Time until a node registers", "operator_nodeclaim_status_condition_transition_seconds",
			"From the launch of an instance until its node registers. If it rises, images or user data have changed; above a minute it is late.",
			`type="Registered"`, `to_status="True"`, inClaimPool), wide(half)),
	}
}

func stuckVolumes() []grafana.Panel {
	return []grafana.Panel{
		waiting("Nodes that wait for volumes", notDetached,
			"Terminating nodes with volumes that are attached after the pods have gone. The condition VolumesDetached names each volume and what "+
				"holds it.", "State"),
		as(over("Longest wait for volumes", grafana.Seconds, grafana.Query{
			Expr:   "max(" + of("operator_nodeclaim_status_condition_current_status_seconds", notDetached, inClaimPool) + ")",
			Legend: "longest",
		}, "For how long the oldest node has waited for its volumes. Above a minute the CSI driver on the node is gone or stuck: check that its "+
			"DaemonSet tolerates karpenter.sh/disrupted."), empty("No node waits for volumes")),
		doctorFindings("Findings about storage", "storage-.*",
			"What dovetail doctor finds about volumes and their drivers, such as DaemonSets that do not tolerate the disruption taint. Run it "+
				"for the remedies."),
	}
}

func twoNodes() []grafana.Panel {
	p := []grafana.Panel{
		as(over("NodeClaims and the nodes that they became", grafana.Count, grafana.Query{
			Expr: "sum(increase(" + of("karpenter_nodeclaims_created_total", inPool) + "[$__range]))", Legend: "NodeClaims created",
		}, "NodeClaims created and nodes that joined, over the time of the page. Many more NodeClaims than nodes: launches fail, or pods change "+
			"while nodes boot."), with(grafana.Query{
			Expr: "sum(increase(" + of("karpenter_nodes_created_total", inPool) + "[$__range]))", Legend: "nodes created",
		})),
		as(bars("Nodes that no pod came to", grafana.Query{
			Expr: events("cause", "dovetail_surplus_launches_total"), Legend: "{{cause}}",
		}, "Nodes launched for pods and removed before any pod came. launched_again: they got another NodeClaim; bound_elsewhere: room became "+
			"free; unbound: they still wait. Check taints and StorageClasses."), empty("Pods came to all nodes")),
		over("Pods that wait for a volume", grafana.Count, grafana.Query{
			Expr: "max(" + of("karpenter_scheduler_ignored_pods_count") + ")", Legend: "pods left out of plans",
		}, "Pods that plans leave out, because of their spec or because a volume is not bound yet. An event on each pod names the volume and its "+
			"StorageClass."),
		doctorFindings("Findings about zones of volumes", "storage-immediate|storage-unreachable-volume",
			"StorageClasses that bind at once, and volumes in zones where no NodePool launches. dovetail doctor has the remedy."),
	}
	for i := range p {
		p[i].Width = quarter
	}
	return p
}

func stuckTaints() []grafana.Panel {
	return []grafana.Panel{
		waiting("Nodes with a taint that stays", notInitialized,
			"Nodes that take no pods, because of a startup taint or because they are not Ready. kubectl describe nodeclaim NAME has the taint and "+
				"its owner.", "Reason"),
		percentiles("Time until a node is initialized", "operator_nodeclaim_status_condition_transition_seconds",
			"From the registration of a node until it takes pods. If it rises, the cloud controller manager or a network plugin is slow: check its "+
				"log for throttling.", `type="Initialized"`, `to_status="True"`, inClaimPool),
		doctorFindings("Findings about nodes", "nodes-.*",
			"What dovetail doctor finds about nodes that do not come up. It names the owner of the taint, and the command that helps."),
	}
}

// doctorFindings lists checks with findings.
func doctorFindings(title, checks, description string) grafana.Panel {
	return as(list(title, "sum by (check, severity) ("+of("dovetail_doctor_findings", `check=~"`+checks+`"`)+") > 0", description,
		grafana.Column{Field: "check", Title: "Check"}, grafana.Column{Field: "severity", Title: "Severity"},
		grafana.Column{Field: "Value", Title: "Findings"}), wide(third), empty("Nothing found"))
}
