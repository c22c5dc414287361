// Package metrics declares the metrics that more than one reconciler counts, under the names that
// operators' dashboards already use.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

const namespace = "karpenter"

// Metrics are counters and gauges over the life of claims and nodes.
type Metrics struct {
	Scheduling
	Disruption
	// ClaimsCreated by reason (provisioned), nodepool, min_values_relaxed.
	ClaimsCreated *prometheus.CounterVec
	// ClaimsTerminated by nodepool, capacity_type, zone: finalizer removed.
	ClaimsTerminated *prometheus.CounterVec
	// ClaimsDisrupted by reason, nodepool, capacity_type, consolidation_policy, termination_mode.
	ClaimsDisrupted *prometheus.CounterVec
	// PodsDisruption, by the same: pods that have to go elsewhere for it.
	PodsDisruption *prometheus.CounterVec
	// ClaimTermination and InstanceTermination in seconds, by nodepool.
	ClaimTermination, InstanceTermination *prometheus.HistogramVec
	// NodesCreated and NodesTerminated by nodepool, zone; NodesDrained by nodepool.
	NodesCreated, NodesTerminated, NodesDrained *prometheus.CounterVec
	// Evictions by HTTP code of the eviction call.
	Evictions *prometheus.CounterVec
	// PodsDrained by the reason their node was ended for.
	PodsDrained *prometheus.CounterVec
	// SchedulingSeconds by controller.
	SchedulingSeconds *prometheus.HistogramVec
	// Unschedulable pods by controller.
	Unschedulable *prometheus.GaugeVec
	// PoolLimit and PoolUsage by resource_type, nodepool.
	PoolLimit, PoolUsage *prometheus.GaugeVec
	// ForeignInstances by cluster_uid: instances under this cluster's name that another cluster owns.
	ForeignInstances *prometheus.GaugeVec
	// UnknownInstances bear this cluster's name, and nobody's identity; Adopted counts those that were taken over.
	UnknownInstances prometheus.Gauge
	Adopted          prometheus.Counter
	// CollectionRefused is how many instances without a claim the last pass found too many to end; 0 as a rule.
	CollectionRefused prometheus.Gauge
	// JoinFailures by cause: claims whose instance did not become a node in time. JoinWaste, by cause, is what such
	// instances have run until they were ended, in hours.
	JoinFailures, JoinWaste *prometheus.CounterVec
	// InvalidPlans broke a rule when they were checked.
	InvalidPlans prometheus.Counter
	// EnginePanics, by pass, are plans that panicked; RunnablePanics, by loop, are panics beside plans.
	EnginePanics, RunnablePanics *prometheus.CounterVec
	// DoctorFindings by check, severity: what the last look at the cluster has found.
	DoctorFindings *prometheus.GaugeVec
}

// New declares the metrics in reg.
func New(reg prometheus.Registerer) (*Metrics, error) {
	d := declarer{reg: reg}
	m := &Metrics{
		ClaimsCreated:       d.counter("nodeclaims", "created_total", "Node claims created.", "reason", "nodepool", "min_values_relaxed"),
		ClaimsTerminated:    d.counter("nodeclaims", "terminated_total", "Node claims gone for good.", "nodepool", "capacity_type", "zone"),
		ClaimsDisrupted:     d.counter("nodeclaims", "disrupted_total", "Node claims deleted by the controller.", "reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"),
		PodsDisruption:      d.counter("pods", "disruption_initiated_total", "Pods on node claims deleted by the controller.", "reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"),
		ClaimTermination:    d.histogram("nodeclaims", "termination_duration_seconds", "From a claim's deletion until it is gone.", prometheus.ExponentialBuckets(1, 2, 12), "nodepool"),
		InstanceTermination: d.histogram("nodeclaims", "instance_termination_duration_seconds", "From the call that ends an instance until it is gone.", prometheus.ExponentialBuckets(1, 2, 11), "nodepool"),
		NodesCreated:        d.counter("nodes", "created_total", "Nodes registered.", "nodepool", "zone"),
		NodesTerminated:     d.counter("nodes", "terminated_total", "Nodes gone for good.", "nodepool", "zone"),
		NodesDrained:        d.counter("nodes", "drained_total", "Nodes drained.", "nodepool"),
		Evictions:           d.counter("pods", "eviction_requests_total", "Calls of the eviction API.", "code"),
		PodsDrained:         d.counter("pods", "drained_total", "Pods driven off ending nodes.", "reason"),
		SchedulingSeconds:   d.histogram("scheduler", "scheduling_duration_seconds", "Time to make a plan.", durations, "controller"),
		Unschedulable:       d.gauge("scheduler", "unschedulable_pods_count", "Pods without a home in the last plan.", "controller"),
		PoolLimit:           d.gauge("nodepools", "limit", "spec.limits.", "resource_type", "nodepool"),
		PoolUsage:           d.gauge("nodepools", "usage", "What counts against spec.limits.", "resource_type", "nodepool"),
	}
	m.Scheduling, m.Disruption = newScheduling(&d), newDisruption(&d)
	foreign := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_foreign_instances",
		Help: "Instances tagged with this cluster's name that belong to another cluster.",
	}, []string{"cluster_uid"})
	d.register(foreign)
	m.ForeignInstances = foreign
	m.UnknownInstances = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dovetail_unknown_instances", Help: "Instances tagged with this cluster's name that neither bear an identity nor have a Node and NodeClaim.",
	})
	m.Adopted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dovetail_adopted_instances_total", Help: "Instances of an earlier autoscaler that were given this cluster's identity.",
	})
	m.CollectionRefused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dovetail_collection_refused_instances", Help: "Instances without a NodeClaim that were not ended because they are suspiciously many.",
	})
	m.InvalidPlans = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dovetail_invalid_plans_total", Help: "Plans that broke a rule when they were checked: a defect of the program. The launches in question were not made.",
	})
	d.register(m.InvalidPlans)
	m.EnginePanics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_engine_panics_total", Help: "Plans that panicked, by pass: a defect of the program. They are made again without the pods concerned.",
	}, []string{"pass"})
	m.RunnablePanics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_runnable_panics_total", Help: "Loops that panicked and were started again, by loop: a defect of the program.",
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
		Name: "dovetail_join_failures_total", Help: "Node claims whose instance did not become a node in time, by cause.",
	}, []string{"cause"})
	m.JoinWaste = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dovetail_join_wasted_instance_hours_total", Help: "Hours that instances ran which never became nodes, by cause.",
	}, []string{"cause"})
	m.DoctorFindings = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_doctor_findings", Help: "What the last look at the cluster has found, as dovetail doctor shows it.",
	}, []string{"check", "severity"})
	d.register(m.DoctorFindings)
	d.register(m.JoinFailures)
	d.register(m.JoinWaste)
	return m, d.err
}

// CountForeign sets ForeignInstances to what was counted, by cluster UID. Clusters that have no instances any
// more are forgotten.
func (m *Metrics) CountForeign(byCluster map[string]int) {
	m.ForeignInstances.Reset()
	for uid, n := range byCluster {
		m.ForeignInstances.WithLabelValues(uid).Set(float64(n))
	}
}

// durations are the buckets of Karpenter's duration histograms, in seconds.
var durations = []float64{
	.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5,
	6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600,
}

// declarer keeps the first error, so that the declarations read as a list.
type declarer struct {
	reg prometheus.Registerer
	err error
}

func (d *declarer) register(c prometheus.Collector) {
	if err := d.reg.Register(c); err != nil && d.err == nil {
		d.err = err
	}
}

func (d *declarer) counter(subsystem, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	d.register(c)
	return c
}

func (d *declarer) gauge(subsystem, name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	d.register(g)
	return g
}

func (d *declarer) histogram(subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, labels)
	d.register(h)
	return h
}

// Disrupted counts the deletion of a claim by one of the reconcilers.
func (m *Metrics) Disrupted(claim *karpv1.NodeClaim, reason string) {
	m.ClaimsDisrupted.WithLabelValues(disruption(claim, reason, "")...).Inc()
}

// PodsDisrupted counts the pods that have to go elsewhere because a claim was deleted.
func (m *Metrics) PodsDisrupted(claim *karpv1.NodeClaim, reason string, pods int) {
	m.PodsDisruption.WithLabelValues(disruption(claim, reason, "")...).Add(float64(pods))
}

// disruption are the values of the labels of ClaimsDisrupted and PodsDisruption.
func disruption(claim *karpv1.NodeClaim, reason, policy string) []string {
	mode := "graceful"
	if grace := claim.Spec.TerminationGracePeriod; grace != nil {
		mode = "eventual"
		if grace.Duration <= 0 {
			mode = "forceful"
		}
	}
	return []string{reason, claim.Labels[karpv1.LabelNodePool], claim.Labels[karpv1.LabelCapacityType], policy, mode}
}
