package operator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/transition"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// coreBuckets, in seconds, and those of Prometheus for node classes are Karpenter's.
var coreBuckets = prometheus.ExponentialBuckets(.5, 2, 15)

// conditions returns those of a kind of ours, with the missing ones as Unknown.
func conditions(o client.Object) []metav1.Condition { return condition.All(o.(condition.Object)) }

// nodeConditions returns those of a Node, without their heartbeats.
func nodeConditions(o client.Object) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range o.(*corev1.Node).Status.Conditions {
		out = append(out, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// coreKinds are Karpenter's core kinds with conditions that are measured, and Nodes.
func coreKinds() []transition.Kind {
	return []transition.Kind{
		{
			Group: karpv1.Group, Name: "NodeClaim", New: func() client.Object { return &karpv1.NodeClaim{} }, Conditions: conditions,
			Ours:   func(o client.Object) bool { return awsv1.IsEC2NodeClass(o.(*karpv1.NodeClaim).Spec.NodeClassRef) },
			Labels: []string{awsv1.LabelNodeClass, karpv1.LabelNodePool}, Buckets: coreBuckets,
		},
		{
			Group: karpv1.Group, Name: "NodePool", New: func() client.Object { return &karpv1.NodePool{} }, Conditions: conditions,
			Ours: func(o client.Object) bool {
				return awsv1.IsEC2NodeClass(o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef)
			},
			Buckets: coreBuckets,
		},
		{
			Name: "Node", New: func() client.Object { return &corev1.Node{} }, Conditions: nodeConditions,
			Ours:   func(o client.Object) bool { return o.GetLabels()[awsv1.LabelNodeClass] != "" },
			Labels: []string{awsv1.LabelNodeClass, karpv1.LabelNodePool, karpv1.LabelInitialized}, Buckets: coreBuckets,
		},
	}
}

// bufferKind is the kind of CapacityBuffers, which the API server may lack.
func bufferKind() transition.Kind {
	return transition.Kind{
		Group: bufferv1.Group, Name: "CapacityBuffer", New: func() client.Object { return &bufferv1.CapacityBuffer{} },
		Conditions: func(o client.Object) []metav1.Condition { return o.(*bufferv1.CapacityBuffer).Status.Conditions },
		Ours:       func(client.Object) bool { return true }, Buckets: coreBuckets,
	}
}

// nodeClassKind is the kind of node classes.
func nodeClassKind() transition.Kind {
	return transition.Kind{
		Group: awsv1.Group, Name: "EC2NodeClass", New: func() client.Object { return &awsv1.EC2NodeClass{} }, Conditions: conditions,
		Ours: func(client.Object) bool { return true }, Buckets: prometheus.DefBuckets,
	}
}

// measuredKinds are the kinds with conditions that are measured.
func measuredKinds(s settings.Settings) []transition.Kind {
	kinds := []transition.Kind{nodeClassKind()}
	if !s.DisableClusterStateObservability {
		kinds = append(append(kinds, coreKinds()...), bufferKind())
	}
	return kinds
}

// wireTransitions wires the events and metrics of conditions that change.
func (a *assembly) wireTransitions() error {
	var errs []error
	for _, kind := range measuredKinds(a.settings) {
		if kind.Group == bufferv1.Group && !a.settings.Gate(settings.GateCapacityBuffer) {
			continue // the API server may lack the kind
		}
		errs = append(errs, a.register(&transition.Reconciler{
			Client: a.mgr.GetClient(), Kind: kind, Events: a.events, Metrics: a.measures.transitions[kind.Name],
		}))
	}
	return errors.Join(errs...)
}
