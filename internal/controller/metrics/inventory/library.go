package inventory

// libraryTypes are the types of the metrics that controller-runtime registers by itself and that may have no series.
var libraryTypes = map[string]string{
	"certwatcher_read_certificate_errors_total":                   "counter",
	"certwatcher_read_certificate_total":                          "counter",
	"controller_runtime_active_workers":                           "gauge",
	"controller_runtime_client_consistency_wait_duration_seconds": "histogram",
	"controller_runtime_max_concurrent_reconciles":                "gauge",
	"controller_runtime_reconcile_errors_total":                   "counter",
	"controller_runtime_reconcile_panics_total":                   "counter",
	"controller_runtime_reconcile_time_seconds":                   "histogram",
	"controller_runtime_reconcile_timeouts_total":                 "counter",
	"controller_runtime_reconcile_total":                          "counter",
	"controller_runtime_terminal_reconcile_errors_total":          "counter",
	"controller_runtime_webhook_latency_seconds":                  "histogram",
	"controller_runtime_webhook_panics_total":                     "counter",
	"controller_runtime_webhook_requests_in_flight":               "gauge",
	"controller_runtime_webhook_requests_total":                   "counter",
	"leader_election_master_status":                               "gauge",
	"rest_client_requests_total":                                  "counter",
	"workqueue_adds_total":                                        "counter",
	"workqueue_depth":                                             "gauge",
	"workqueue_longest_running_processor_seconds":                 "gauge",
	"workqueue_queue_duration_seconds":                            "histogram",
	"workqueue_retries_total":                                     "counter",
	"workqueue_unfinished_work_seconds":                           "gauge",
	"workqueue_work_duration_seconds":                             "histogram",
}
