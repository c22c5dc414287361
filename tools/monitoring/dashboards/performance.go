package dashboards

import "github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"

// performance answers how fast the controller is, and what it waits for.
func performance() grafana.Dashboard {
	return grafana.Dashboard{
		UID: "dovetail-performance", Title: prefix + "Performance", From: "now-3h",
		Description: "How fast do pods get nodes, and what does the controller wait for?",
		Rows: []grafana.Row{
			{Height: statHeight, Panels: performanceNumbers()},
			{Title: "From a pod to its node", Height: panelHeight, Panels: performancePods()},
			{Title: "Plans", Height: panelHeight, Panels: performancePlans()},
			{Title: "Calls of AWS", Height: panelHeight, Panels: performanceAWS()},
			{Title: "API server and controllers", Height: panelHeight, Panels: performanceControllers()},
			{Title: "Process", Height: panelHeight, Panels: performanceProcess()},
		},
	}
}

// throttled are the HTTP codes with which AWS reports that calls are too many.
const throttled = `code=~"429|503"`

func performanceNumbers() []grafana.Panel {
	seconds := func(title, metric string, slow float64, description string) grafana.Panel {
		p := stat(title, typical("0.99", metric), grafana.Seconds, description)
		p.Steps = []grafana.Step{{Color: good}, {From: slow / 2, Color: warning}, {From: slow, Color: bad}}
		p.Empty = "None yet"
		return p
	}
	return []grafana.Panel{
		seconds("Pod bound, p99", "karpenter_pods_bound_duration_seconds", 300,
			"From the creation of a pod until it is bound, the slowest of a hundred. The row From a pod to its node shows which step takes long."),
		seconds("Pod planned, p99", "karpenter_pods_scheduling_decision_duration_seconds", 60,
			"From when a pod was seen to the first plan for it, the slowest of a hundred. It includes the time to collect pods "+
				"(settings.batchMaxDuration, 10 s)."),
		seconds("Plan, p99", "karpenter_scheduler_scheduling_duration_seconds", 30,
			"Time to compute a plan, the slowest of a hundred. Above some seconds: give the controller more CPU; docs/performance.md has what to "+
				"expect."),
		number("Throttled calls of AWS", total("aws_sdk_go_request_attempt_total", throttled), fewIsGood,
			"Attempts that AWS rejected because they were too many, in the time of the page. Some are normal while many nodes launch. Many: "+
				"request a higher rate from AWS, or find what else calls."),
		number("Failed reconciliations", total("controller_runtime_reconcile_errors_total"), fewIsGood,
			"Reconciliations that failed, in the time of the page. Single ones are retried. If the number grows, read the log of the controller."),
		number("Panics", "sum(increase("+of("dovetail_engine_panics_total")+"[$__range])) + sum(increase("+
			of("controller_runtime_reconcile_panics_total")+"[$__range])) + (sum(increase("+of("dovetail_runnable_panics_total")+
			"[$__range])) or vector(0)) or vector(0)", noneIsGood,
			"Panics of planning, of controllers and of loops, which are defects of Dovetail. Report them with the stack in the log."),
	}
}

func performancePods() []grafana.Panel {
	return []grafana.Panel{
		as(percentiles("Pod seen to first plan", "karpenter_pods_scheduling_decision_duration_seconds",
			"From when a pod was first seen to the first plan for it. It includes the time to collect pods. If it is long, plans are slow, or "+
				"the cluster state is not synced.")),
		as(percentiles("Plan to bound", "karpenter_pods_provisioning_bound_duration_seconds",
			"From the plan that schedules a pod until it is bound: launch, boot and join. If it is long, see Steps of a NodeClaim.")),
		as(percentiles("Plan to ready", "karpenter_pods_provisioning_startup_duration_seconds",
			"From the plan that schedules a pod until it is ready. What it is longer than Plan to bound is images and probes of the pod.")),
		as(over("Created to ready", grafana.Seconds, grafana.Query{
			Expr: "max by (quantile) (" + of("karpenter_pods_startup_duration_seconds", `quantile=~"0.5|0.99"`) + ")", Legend: "p{{quantile}}",
		}, "From the creation of a pod until it is ready, of the last minutes. Compare with Plan to ready: the difference is the time before the "+
			"plan.")),
		as(over("Steps of a NodeClaim", grafana.Seconds, grafana.Query{
			Expr: "histogram_quantile(0.9, sum by (le, type) (rate(" + of("operator_nodeclaim_status_condition_transition_seconds_bucket",
				inClaimPool, `type=~"Launched|Registered|Initialized"`, `to_status="True"`) + "[10m])))",
			Legend: "{{type}}",
		}, "How long NodeClaims wait for each step, 9 of 10 at most. Launched: EC2. Registered: boot of the instance. Initialized: network plugin, "+
			"drivers and startup taints.")),
		as(over("Pods that wait longest", grafana.Seconds, grafana.Query{
			Expr: "max(" + of("karpenter_pods_unbound_time_seconds") + ")", Legend: "created, not bound",
		}, "Age of the pod that has waited longest, by what it waits for. Undecided: no plan yet. Not bound: its node is not there. Not ready: "+
			"the pod itself."),
			with(
				grafana.Query{Expr: "max(" + of("karpenter_pods_unstarted_time_seconds") + ")", Legend: "created, not ready"},
				grafana.Query{
					Expr: "max(" + of("karpenter_pods_provisioning_scheduling_undecided_time_seconds") + ")", Legend: "seen, undecided",
				},
				grafana.Query{Expr: "max(" + of("karpenter_pods_provisioning_unbound_time_seconds") + ")", Legend: "planned, not bound"},
				grafana.Query{Expr: "max(" + of("karpenter_pods_provisioning_unstarted_time_seconds") + ")", Legend: "planned, not ready"},
			), empty("No pod waits")),
	}
}

func performancePlans() []grafana.Panel {
	return []grafana.Panel{
		over("Time to compute a plan, p99", grafana.Seconds, grafana.Query{
			Expr: recent("0.99", "controller", "karpenter_scheduler_scheduling_duration_seconds"), Legend: "{{controller}}",
		}, "The slowest one of a hundred plans, by controller. Above some seconds: give the controller more CPU; docs/performance.md has what to "+
			"expect."),
		as(over("Pods of the plan in progress", grafana.Count, grafana.Query{
			Expr: "sum by (controller) (" + of("karpenter_scheduler_queue_depth") + ")", Legend: "{{controller}}",
		}, "Pods of plans that are being computed. Most plans are over between two scrapes. If there is a line for minutes, the controller lacks "+
			"CPU."), with(grafana.Query{
			Expr: "max by (controller) (" + of("karpenter_scheduler_unfinished_work_seconds") + ")", Legend: "{{controller}}: seconds so far",
		}), empty("No plan is in progress")),
		as(over("Pods that get no node", grafana.Count, grafana.Query{
			Expr: "sum by (controller) (" + of("karpenter_scheduler_unschedulable_pods_count") + ")", Legend: "{{controller}}: unschedulable",
		}, "Pods that the last plan could not schedule, and pods that it ignored for their spec or volumes. Events on the pods have the "+
			"reasons."), with(grafana.Query{Expr: "sum(" + of("karpenter_scheduler_ignored_pods_count") + ")", Legend: "ignored"})),
		as(over("Pending pods by zone", grafana.Count, grafana.Query{
			Expr:   "sum by (zone) (" + of("karpenter_scheduler_pending_pods_by_effective_zone_count", `controller="provisioner"`) + ")",
			Legend: "{{zone}}",
		}, "Pending pods by the only zone that they fit in. none: no zone is possible, since a volume and the pod's rules contradict. Read the "+
			"events of the pod."), stacked),
		over("Nodes in the cluster state", grafana.Count, grafana.Query{
			Expr: "max(" + of("karpenter_cluster_state_node_count") + ")", Legend: "nodes",
		}, "Nodes that plans count on, with those in flight. If it differs from kubectl get nodes for long, restart the controller, and "+
			"report it."),
		as(over("Cluster state not synced", grafana.Seconds, grafana.Query{
			Expr: "max(" + of("karpenter_cluster_state_unsynced_time_seconds") + ")", Legend: "not synced for",
		}, "For how long the cluster state has not been synced with the API server. Nothing is planned meanwhile. Above a minute: check the "+
			"RBAC of the controller and the load of the API server."),
			with(grafana.Query{Expr: "1 - min(" + of("karpenter_cluster_state_synced") + ")", Legend: "1 while not synced"})),
	}
}

func performanceAWS() []grafana.Panel {
	return []grafana.Panel{
		over("Calls of AWS", grafana.PerSecond, grafana.Query{
			Expr: "sum by (service) (" + perSecond("aws_sdk_go_request_total") + ")", Legend: "{{service}}",
		}, "Calls of AWS per second, by service. Calls of EC2 rise with launches; if they stay high, see the actions beside."),
		ranking("Most frequent calls", grafana.PerSecond, grafana.Query{
			Expr: "sum by (action) (rate(" + of("aws_sdk_go_request_total") + "[$__range]))", Legend: "{{action}}",
		}, "Calls of AWS per second over the time of the page, by action. If one dominates that is not DescribeInstances or ReceiveMessage, "+
			"report it."),
		as(bars("Calls of AWS that failed", grafana.Query{
			Expr:   events("action, code", "aws_sdk_go_request_total", `code=~"401|403|429|5.."`) + " > 0",
			Legend: "{{action}} {{code}}",
		}, "Calls that failed after all retries, by action and HTTP code. 403: dovetail doctor lists the missing permissions. 429 and 503: AWS "+
			"throttles."), empty("No call has failed")),
		ranking("Slowest calls, p99", grafana.Seconds, grafana.Query{
			Expr:   typicalBy("0.99", "action", "aws_sdk_go_request_duration_seconds", `action!="ReceiveMessage"`),
			Legend: "{{action}}",
		}, "The slowest one of a hundred calls, retries included, over the time of the page. Above some seconds, AWS throttles or is slow. "+
			"ReceiveMessage is left out: it waits for messages."),
		over("Retries of AWS", grafana.PerSecond, grafana.Query{
			Expr: "sum by (service) (rate(" + of("aws_sdk_go_request_retry_count_sum") + "[$__rate_interval]))", Legend: "{{service}}",
		}, "Attempts beyond the first, per second. Steady retries mean throttling or faults of AWS."),
		over("Operations of the cloud, p99", grafana.Seconds, grafana.Query{
			Expr: quantile("0.99", "method", "karpenter_cloudprovider_duration_seconds"), Legend: "{{method}}",
		}, "The slowest one of a hundred operations, by method. Create includes the time to collect launches for one call."),
		as(bars("Errors of the cloud", grafana.Query{
			Expr: events("method, error", "karpenter_cloudprovider_errors_total", `error!="NodeClaimNotFoundError"`), Legend: "{{method}} {{error}}",
		}, "Errors by operation. InsufficientCapacityError: allow more instance types and zones. Others: the event on "+
			"the NodeClaim has the cause."), empty("No operation has failed")),
		over("Requests in one call", grafana.Count, grafana.Query{
			Expr: "sum by (batcher) (" + "rate(" + of("karpenter_cloudprovider_batcher_batch_size_sum") + "[10m])" + ") / sum by (batcher) (" +
				"rate(" + of("karpenter_cloudprovider_batcher_batch_size_count") + "[10m])" + ")",
			Legend: "{{batcher}}",
		}, "Requests that were joined into one call, on average. More means fewer calls. At 1 while AWS throttles, requests come too slowly to "+
			"join."),
		over("Time to collect a call, p99", grafana.Seconds, grafana.Query{
			Expr: recent("0.99", "batcher", "karpenter_cloudprovider_batcher_batch_time_seconds"), Legend: "{{batcher}}",
		}, "How long requests wait for others to join them. Above 1 s, the controller lacks CPU."),
	}
}

func performanceControllers() []grafana.Panel {
	return []grafana.Panel{
		over("Requests to the API server", grafana.PerSecond, grafana.Query{
			Expr: "sum by (method, code) (" + perSecond("client_go_request_total") + ")", Legend: "{{method}} {{code}}",
		}, "Requests per second, by method and status code. 429: the API server throttles; see API Priority and Fairness. 409 is normal: another "+
			"writer was first. 403: the RBAC is incomplete."),
		over("Time of the API server, p99", grafana.Seconds, grafana.Query{
			Expr: quantile("0.99", "verb", "client_go_request_duration_seconds"), Legend: "{{verb}}",
		}, "The slowest one of a hundred requests, by verb. Above a second, the API server or an admission webhook is slow."),
		ranking("Busiest controllers", grafana.Operations, grafana.Query{
			Expr:   "sum by (controller) (rate(" + of("controller_runtime_reconcile_total") + "[$__range]))",
			Legend: "{{controller}}",
		}, "Reconciliations per second over the time of the page. One far above the others without changes in the cluster: report it."),
		ranking("Slowest controllers, p99", grafana.Seconds, grafana.Query{
			Expr: typicalBy("0.99", "controller", "controller_runtime_reconcile_time_seconds"), Legend: "{{controller}}",
		}, "The slowest one of a hundred reconciliations, over the time of the page. Those that launch and terminate wait for AWS."),
		as(bars("Errors of controllers", grafana.Query{
			Expr: events("controller", "controller_runtime_reconcile_errors_total") + " > 0", Legend: "{{controller}}",
		}, "Reconciliations that failed and are retried. If one goes on, the log has the object and the cause."), empty("No errors")),
		over("Depth of queues", grafana.Count, grafana.Query{
			Expr: "sum(" + of("workqueue_depth") + ")", Legend: "all controllers",
		}, "Objects that wait for a controller. See the slowest queues for which. If it does not come down, the controller lacks CPU, or waits for "+
			"AWS."),
		ranking("Slowest queues, p99", grafana.Seconds, grafana.Query{
			Expr: typicalBy("0.99", "name", "workqueue_queue_duration_seconds"), Legend: "{{name}}",
		}, "How long objects wait for their controller, the slowest one of a hundred, over the time of the page. If it is long, see the depth of the queue."),
		as(over("Longest reconciliation in progress", grafana.Seconds, grafana.Query{
			Expr: "max by (name) (" + of("workqueue_longest_running_processor_seconds") + ") > 5", Legend: "{{name}}",
		}, "Controllers that have worked on one object for more than 5 s. Minutes mean that it hangs: take a profile (settings.enableProfiling), and "+
			"report it."), empty("None takes long")),
		as(bars("Writes of deletion costs", grafana.Query{
			Expr: events("result", "karpenter_pod_deletion_cost_pod_annotation_writes_total") + " > 0", Legend: "{{result}}",
		}, "Annotations of pods with their deletion cost (feature gate PodDeletionCostManagement). Errors: read the log for the pods."),
			empty("The feature gate is off")),
	}
}

func performanceProcess() []grafana.Panel {
	return []grafana.Panel{
		over("CPU", grafana.Cores, grafana.Query{
			Expr: "sum by (pod, instance) (" + perSecond("process_cpu_seconds_total") + ")", Legend: "{{pod}} {{instance}}",
		}, "vCPUs that each replica uses. If plans are slow and this is at the limit, raise controller.resources."),
		over("Memory", grafana.Bytes, grafana.Query{
			Expr: "max by (pod, instance) (" + of("process_resident_memory_bytes") + ")", Legend: "{{pod}} {{instance}}",
		}, "Memory of each replica. Near its limit, garbage collection takes the CPU: raise controller.resources."),
		over("Goroutines", grafana.Count, grafana.Query{
			Expr: "max by (pod, instance) (" + of("go_goroutines") + ")", Legend: "{{pod}} {{instance}}",
		}, "Goroutines of each replica. If they only grow, report it with a profile (settings.enableProfiling)."),
		as(list("Versions", "max by (version, commit, goversion) ("+of("karpenter_build_info")+")",
			"Versions that run now. Two of them for long: an upgrade hangs; check the rollout of the Deployment.",
			grafana.Column{Field: "version", Title: "Version"}, grafana.Column{Field: "commit", Title: "Commit"},
			grafana.Column{Field: "goversion", Title: "Go"}), wide(third)),
		over("User data", grafana.Bytes, grafana.Query{
			Expr: "max by (nodeclass) (" + of("karpenter_ec2nodeclasses_userdata_bytes") + ")", Legend: "{{nodeclass}}",
		}, "Size of the user data of the instances. EC2 accepts 16 KiB: move scripts to the image or to S3 before."),
		as(over("Sources of AWS that do not answer", grafana.Count, grafana.Query{
			Expr: "1 - min by (queue) (" + of("dovetail_interruption_queue_available") + ")", Legend: "queue {{queue}} cannot be read",
		}, "1 while the interruption queue, or the zonal shifts, cannot be read. Nodes are then not replaced before an interruption, or launched in "+
			"a shifted zone: run dovetail doctor."),
			with(grafana.Query{
				Expr: "1 - min(" + of("dovetail_zonal_shifts_readable") + ")", Legend: "zonal shifts cannot be read",
			}), empty("Neither queue nor zonal shifts are in use")),
		as(bars("Recorded decisions", grafana.Query{
			Expr: "sum(increase(" + of("dovetail_recorder_decisions_total") + "[$__rate_interval]))", Legend: "decisions",
		}, "Decisions in the recording of the controller, and the parts of passes that they were made in. None for long while pods wait: the "+
			"controller does not decide."), with(grafana.Query{
			Expr: "sum(increase(" + of("dovetail_recorder_passes_total") + "[$__rate_interval]))", Legend: "parts of passes",
		})),
		over("Growth of the recording, per hour", grafana.Bytes, grafana.Query{
			Expr:   "sum by (pod, instance) (rate(" + of("dovetail_recorder_written_bytes_total") + "[$__rate_interval])) * 3600",
			Legend: "{{pod}} {{instance}}",
		}, "Bytes that recording writes in an hour. The size of the recording over this is how far back it reaches: for more, raise "+
			"settings.recorderSize."),
		as(bars("Missing from the recording", grafana.Query{
			Expr: events("what, reason", "dovetail_recorder_dropped_total") + " > 0", Legend: "{{what}}: {{reason}}",
		}, "Passes and steps that are not in the recording. queue: the disk is too slow. file: it is full or gone; see the log. size: one pass is "+
			"larger than settings.recorderSize. defect: report it."), empty("The recording is complete")),
	}
}
