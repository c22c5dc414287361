// Package metrics declares the metrics that several reconcilers share, under the names that operators' dashboards
// already use.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

const namespace = "karpenter"

// Metrics are the metrics of claims, nodes and pools.
type Metrics struct {
	Scheduling
	Disruption
	// ClaimsCreated by reason (provisioned), nodepool, min_values_relaxed.
	ClaimsCreated *prometheus.CounterVec
	// ClaimsTerminated by nodepool, capacity_type, zone: finalizer removed.
	ClaimsTerminated *prometheus.CounterVec
	// ClaimsDisrupted by reason, nodepool, capacity_type, consolidation_policy, termination_mode.
	ClaimsDisrupted *prometheus.CounterVec
	// PodsDisruption, by the same labels: pods that must reschedule.
	PodsDisruption *prometheus.CounterVec
	// ClaimTermination and InstanceTermination in seconds, by nodepool.
	ClaimTermination, InstanceTermination *prometheus.HistogramVec
	// NodesCreated and NodesTerminated by nodepool, zone; NodesDrained by nodepool.
	NodesCreated, NodesTerminated, NodesDrained *prometheus.CounterVec
	// NodeTermination, in seconds since a Node's deletion, and NodeLifetime, since its creation, until it is gone; by nodepool.
	NodeTermination *prometheus.SummaryVec
	NodeLifetime    *prometheus.HistogramVec
	// Evictions by HTTP code of the eviction call.
	Evictions *prometheus.CounterVec
	// PodsDrained by the reason that their node was terminated for.
	PodsDrained *prometheus.CounterVec
	// SchedulingSeconds by controller.
	SchedulingSeconds *prometheus.HistogramVec
	// Unschedulable pods by controller.
	Unschedulable *prometheus.GaugeVec
	// PoolLimit and PoolUsage by resource_type, nodepool.
	PoolLimit, PoolUsage *prometheus.GaugeVec
	// ForeignInstances by cluster_uid: instances under this cluster's name that another cluster owns.
	ForeignInstances *prometheus.GaugeVec
	// UnknownInstances have this cluster's name in their tags, but no owner; Adopted counts the adopted ones.
	UnknownInstances prometheus.Gauge
	Adopted          prometheus.Counter
	// CollectionRefused counts how many instances without a claim the last pass did not terminate because they are too
	// many; usually 0.
	CollectionRefused prometheus.Gauge
	// JoinFailures by cause: claims with an instance that did not become a node in time. JoinWaste, by cause, is how
	// long such instances ran until they were terminated, in hours.
	JoinFailures, JoinWaste *prometheus.CounterVec
	// InvalidPlans failed their validation.
	InvalidPlans prometheus.Counter
	// EnginePanics by pass: plans that panicked. RunnablePanics by loop: panics outside of planning.
	EnginePanics, RunnablePanics *prometheus.CounterVec
	// SurplusLaunches by cause: nodes that were launched for pods, and removed before any pod came to them.
	SurplusLaunches *prometheus.CounterVec
	// Quarantined by reason: pods that the last plan for pending pods left out.
	Quarantined *prometheus.GaugeVec
	// RefusedPods by nodepool, state (waiting, held): pending pods for which nodes were launched in vain. RefusedNodes by nodepool,
	// cause are these nodes.
	RefusedPods  *prometheus.GaugeVec
	RefusedNodes *prometheus.CounterVec
	// DoctorFindings by check, severity: the findings of the last run of the checks.
	DoctorFindings *prometheus.GaugeVec
}

// New declares the metrics in reg.
func New(reg prometheus.Registerer) (*Metrics, error) {
	d := registrar{reg: reg}
	m := &Metrics{
		ClaimsCreated: d.counter(
			"nodeclaims", "created_total", "NodeClaims that the controller created, by the reason.",
			"reason", "nodepool", "min_values_relaxed",
		),
		ClaimsTerminated: d.counter(
			"nodeclaims", "terminated_total", "NodeClaims deleted from the API server.", "nodepool", "capacity_type", "zone",
		),
		ClaimsDisrupted: d.counter(
			"nodeclaims", "disrupted_total", "NodeClaims that the controller deleted, by the reason.",
			"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode",
		),
		PodsDisruption: d.counter(
			"pods", "disruption_initiated_total", "Pods that must move because the controller deleted their NodeClaim.",
			"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode",
		),
		ClaimTermination: d.histogram(prometheus.HistogramOpts{
			Subsystem: "nodeclaims", Name: "termination_duration_seconds",
			Help: "Time from a NodeClaim's deletion until it is gone.", Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}, "nodepool"),
		InstanceTermination: d.histogram(prometheus.HistogramOpts{
			Subsystem: "nodeclaims", Name: "instance_termination_duration_seconds",
			Help: "Time from the call that terminates an instance until it is gone.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}, "nodepool"),
		NodesCreated:    d.counter("nodes", "created_total", "Nodes registered.", "nodepool", "zone"),
		NodesTerminated: d.counter("nodes", "terminated_total", "Nodes deleted from the API server.", "nodepool", "zone"),
		NodesDrained:    d.counter("nodes", "drained_total", "Nodes drained.", "nodepool"),
		NodeTermination: d.summary("nodes", "termination_duration_seconds", "Time from a Node's deletion until it is gone.", "nodepool"),
		NodeLifetime: d.histogram(prometheus.HistogramOpts{
			Subsystem: "nodes", Name: "lifetime_duration_seconds", Help: "Age of Nodes that are gone.", Buckets: lifetimeBuckets,
		}, "nodepool"),
		Evictions:   d.counter("pods", "eviction_requests_total", "Calls of the eviction API, by HTTP status code.", "code"),
		PodsDrained: d.counter("pods", "drained_total", "Pods drained from terminating nodes, by the reason of the termination.", "reason"),
		SchedulingSeconds: d.histogram(prometheus.HistogramOpts{
			Subsystem: "scheduler", Name: "scheduling_duration_seconds",
			Help: "Time to compute a plan.", Buckets: durationBuckets,
		}, "controller"),
		Unschedulable: d.gauge("scheduler", "unschedulable_pods_count", "Pods that the last plan could not schedule.", "controller"),
		PoolLimit:     d.gauge("nodepools", "limit", "What spec.limits of the NodePool allows.", "resource_type", "nodepool"),
		PoolUsage:     d.gauge("nodepools", "usage", "What the nodes of the NodePool count against spec.limits.", "resource_type", "nodepool"),
	}
	m.Scheduling, m.Disruption = newScheduling(&d), newDisruption(&d)
	m.SurplusLaunches, m.Quarantined = newSurplus(&d), newQuarantined(&d)
	m.RefusedPods, m.RefusedNodes = newRefused(&d)
	foreign := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_foreign_instances",
		Help: "Instances tagged with this cluster's name that belong to another cluster.",
	}, []string{"cluster_uid"})
	d.register(foreign)
	m.ForeignInstances = foreign
	m.UnknownInstances = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dovetail_unknown_instances",
		Help: "Instances tagged with this cluster's name, but without its UID and without a Node and NodeClaim.",
	})
	m.Adopted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dovetail_adopted_instances_total", Help: "Instances of an earlier autoscaler that were tagged with this cluster's UID.",
	})
	m.CollectionRefused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dovetail_collection_refused_instances",
		Help: "Instances without a NodeClaim that were not terminated because they are suspiciously many.",
	})
	m.InvalidPlans = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dovetail_invalid_plans_total",
		Help: "Plans that failed their validation, which is a defect of Dovetail. The invalid launches were withheld.",
	})
	d.register(m.InvalidPlans)
	m.EnginePanics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_engine_panics_total",
		Help: "Plans that panicked, by pass, which is a defect of Dovetail. They are computed again without the pods concerned.",
	}, []string{"pass"})
	m.RunnablePanics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_runnable_panics_total", Help: "Loops that panicked and were restarted, by loop, which is a defect of Dovetail.",
	}, []string{"loop"})
	d.register(m.EnginePanics)
	for _, pass := range []string{"provisioning", "disruption", "capacity-buffers"} {
		m.EnginePanics.WithLabelValues(pass) // an alert on the increase misses a counter that begins with 1
	}
	d.register(m.RunnablePanics)
	d.register(m.UnknownInstances)
	d.register(m.Adopted)
	d.register(m.CollectionRefused)
	m.JoinFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_join_failures_total", Help: "NodeClaims with an instance that did not become a node in time, by cause.",
	}, []string{"cause"})
	m.JoinWaste = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_join_wasted_instance_hours_total", Help: "Hours that instances ran without becoming nodes, by cause.",
	}, []string{"cause"})
	m.DoctorFindings = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_doctor_findings", Help: "Findings of the last run of the checks of dovetail doctor.",
	}, []string{"check", "severity"})
	d.register(m.DoctorFindings)
	d.register(m.JoinFailures)
	d.register(m.JoinWaste)
	return m, d.err
}

// CountForeign sets ForeignInstances, by cluster UID. It removes clusters without instances.
func (m *Metrics) CountForeign(byCluster map[string]int) {
	m.ForeignInstances.Reset()
	for uid, n := range byCluster {
		m.ForeignInstances.WithLabelValues(uid).Set(float64(n))
	}
}

// durationBuckets are the buckets of Karpenter's duration histograms, in seconds.
var durationBuckets = []float64{
	.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5,
	6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600,
}

// lifetimeBuckets are Karpenter's, in seconds: from a quarter of an hour to 30 days.
var lifetimeBuckets = []float64{
	900, 1800, 2700, 3600, 7200, 14400, 21600, 28800, 36000, 43200, 57600, 72000, 86400, 172800, 259200, 432000, 864000, 1296000,
	1728000, 2160000, 2592000,
}

// registrar registers metrics and keeps the first error, so that the declarations read as a list.
type registrar struct {
	reg prometheus.Registerer
	err error
}

func (d *registrar) register(c prometheus.Collector) {
	if err := d.reg.Register(c); err != nil && d.err == nil {
		d.err = err
	}
}

func (d *registrar) counter(subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	d.register(c)
	return c
}

func (d *registrar) gauge(subsystem, name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	d.register(g)
	return g
}

func (d *registrar) histogram(opts prometheus.HistogramOpts, labels ...string) *prometheus.HistogramVec {
	opts.Namespace = namespace
	h := prometheus.NewHistogramVec(opts, labels)
	d.register(h)
	return h
}

// summary has Karpenter's quantiles.
func (d *registrar) summary(subsystem, name, help string, labels ...string) *prometheus.SummaryVec {
	s := prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
		Objectives: map[float64]float64{0: .01, .5: .01, .9: .01, .99: .01, 1: .01},
	}, labels)
	d.register(s)
	return s
}

// Disrupted counts the deletion of a claim by one of the reconcilers.
func (m *Metrics) Disrupted(claim *karpv1.NodeClaim, reason string) {
	m.ClaimsDisrupted.WithLabelValues(disruption(claim, reason, "")...).Inc()
}

// PodsDisrupted counts the pods that must reschedule because a claim was deleted.
func (m *Metrics) PodsDisrupted(claim *karpv1.NodeClaim, reason string, pods int) {
	m.PodsDisruption.WithLabelValues(disruption(claim, reason, "")...).Add(float64(pods))
}

// disruption are the values of the labels of ClaimsDisrupted and PodsDisruption.
func disruption(claim *karpv1.NodeClaim, reason, policy string) []string {
	return []string{reason, claim.Labels[karpv1.LabelNodePool], claim.Labels[karpv1.LabelCapacityType], policy, TerminationMode(claim)}
}

// TerminationMode is the value of the label termination_mode: graceful without a termination grace period, forceful with one of
// zero, eventual otherwise.
func TerminationMode(claim *karpv1.NodeClaim) string {
	switch grace := claim.Spec.TerminationGracePeriod; {
	case grace == nil:
		return "graceful"
	case grace.Duration <= 0:
		return "forceful"
	default:
		return "eventual"
	}
}
