// Package podreport explains one pod of a cluster: where it runs and why there, or why it is pending, and the smallest
// change with which it gets a node.
//
// The engine answers every question: it plans the cluster as it is, and again with each change. A change that is
// reported has been planned.
package podreport

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// State states where a pod is in flight to a node.
type State string

// The states. All but Running, Starting and Finished are of pods without a node.
const (
	Running  State = "Running"
	Starting State = "Starting"
	Finished State = "Finished"
	Deleting State = "Deleting"
	// Gated: a scheduling gate holds the pod back.
	Gated State = "Gated"
	// Untried: the pod's scheduler has not tried it.
	Untried State = "Untried"
	// Preempting: kube-scheduler makes room for it on a node.
	Preempting State = "Preempting"
	// NodePending: a NodeClaim for the pod exists, and is not a ready node yet.
	NodePending State = "NodePending"
	// Schedulable: a node has room, or the next plan launches one.
	Schedulable State = "Schedulable"
	// Unschedulable: nothing can be launched for the pod.
	Unschedulable State = "Unschedulable"
)

// Report describes what is known about one pod.
type Report struct {
	// Pod is NAMESPACE/NAME.
	Pod   string `json:"pod"`
	State State  `json:"state"`
	// Cause is one sentence with the object, the field and the numbers.
	Cause string `json:"cause"`
	// Node states where the pod runs, or will run; nil if that is nowhere.
	Node *Place `json:"node,omitempty"`
	// Why states why it runs there, Constraints is what limits where it may run, Blocks is what keeps its node from being
	// disrupted. They are sentences.
	Why         []string `json:"why"`
	Constraints []string `json:"constraints"`
	Blocks      []string `json:"blocks"`
	// NodePools are the pools, in the order in which plans try them, each with the first rule that excludes the pod.
	NodePools []PoolReason `json:"nodePools"`
	// Change is the smallest change found; nil if the pod needs none, or none was found.
	Change *Change `json:"change,omitempty"`
	// Alternatives are other changes that work by themselves, the smallest first.
	Alternatives []Change `json:"alternatives"`
	// Search states how changes were searched; nil if they were not.
	Search *Effort `json:"search,omitempty"`
	// Prices states where prices come from.
	Prices string `json:"prices"`
	// PricesProblem states why they are not those that were requested, or not all of them.
	PricesProblem string `json:"pricesProblem,omitempty"`
	// Notes are for people.
	Notes []string `json:"notes"`
	// workload states of which workload the pod is one, if the name that was requested is that of a workload. It is the first note.
	workload string
}

// Place is a node, existing or to be launched.
type Place struct {
	// Name of the Node; empty for a node that does not exist yet. Claim is its NodeClaim, if there is one.
	Name  string `json:"name,omitempty"`
	Claim string `json:"nodeClaim,omitempty"`
	// NodePool, InstanceType, Zone and CapacityType are empty if they are not known.
	NodePool     string `json:"nodePool,omitempty"`
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// HourlyCost is that of the node in $/h, 0 if it is not known. New reports whether the node would be launched.
	HourlyCost float64 `json:"hourlyCost,omitempty"`
	New        bool    `json:"new"`
	// With counts how many other pods share a new node.
	With int `json:"otherPods,omitempty"`
}

// PoolReason states why a NodePool launches no node for the pod.
type PoolReason struct {
	NodePool string `json:"nodePool"`
	// Code is the engine's name of the rule, or NotReady, Deleting, Static.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Rule holds what Message is made of; nil if the code states all.
	Rule *rejection.Rule `json:"rule,omitempty"`
	// short is Message with well-known labels as people call them, bare is short without where the pod would fit.
	short string
	bare  wording.Clause
	// More counts how many other rules exclude the pod from it.
	More int `json:"more,omitempty"`
}

// Effort describes how changes were searched.
type Effort struct {
	// Candidates counts how many changes there were to try, Plans how many times the engine planned the cluster.
	Candidates int `json:"candidates"`
	Plans      int `json:"plans"`
	// Complete is false if the bound on plans left candidates or pairs of them untried.
	Complete bool `json:"complete"`
}

// Explain explains the pod with this namespace and name, or a pod of the workload with it. The error of an unknown pod names the nearest
// ones.
func Explain(view *inspect.View, name types.NamespacedName) (*Report, error) {
	pod, err := find(view.Pods, name)
	workload := ""
	if err != nil {
		switch pod, workload = podOfWorkload(view, name); {
		case pod == nil && isDaemonSet(view, name):
			return nil, &NotFoundError{fmt.Sprintf("%s is a DaemonSet, which has no pods here: on each node, room is kept for one", name)}
		case pod == nil:
			return nil, err
		}
	}
	r := &Report{
		Pod: key(pod), workload: workload, Prices: view.Prices, PricesProblem: view.PricesProblem,
		Why: []string{}, Constraints: []string{}, Blocks: []string{}, NodePools: []PoolReason{}, Alternatives: []Change{}, Notes: []string{},
	}
	if workload != "" {
		r.Notes = append(r.Notes, workload)
	}
	e := &explanation{Report: r, view: view, pod: pod}
	e.explain()
	return r, nil
}

// explanation is a Report in flight.
type explanation struct {
	*Report
	view *inspect.View
	pod  *corev1.Pod
	lab  *whatIf
}

func (e *explanation) explain() {
	switch {
	case e.pod.Spec.NodeName != "":
		e.bound()
	case !e.unprovisionable():
		e.pending()
	}
}

// conclude sets the state and the first line. The sentence follows the name of the pod.
func (e *explanation) conclude(state State, format string, args ...any) {
	e.State, e.Cause = state, e.Pod+" "+fmt.Sprintf(format, args...)
}

// since is the time from an instant to the view's, for people; empty if either is not known.
func (e *explanation) since(then time.Time) string {
	if then.IsZero() || e.view.Now.Sub(then) < time.Second {
		return ""
	}
	return age(e.view.Now.Sub(then))
}
