package main

import (
	"github.com/prometheus/client_golang/prometheus"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/transition"
)

// transitions tell of conditions that change.
func (a *assembly) transitions(reg prometheus.Registerer) ([]registrar, error) {
	var out []registrar
	for _, kind := range []struct {
		name  string
		empty func() transition.Object
		class func(transition.Object) karpv1.NodeClassReference
	}{
		{"NodeClaim", func() transition.Object { return &karpv1.NodeClaim{} }, func(o transition.Object) karpv1.NodeClassReference {
			return o.(*karpv1.NodeClaim).Spec.NodeClassRef
		}},
		{"NodePool", func() transition.Object { return &karpv1.NodePool{} }, func(o transition.Object) karpv1.NodeClassReference {
			return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef
		}},
	} {
		metrics, err := transition.NewMetrics(reg, kind.name)
		if err != nil {
			return nil, err
		}
		out = append(out, &transition.Reconciler{
			Client: a.mgr.GetClient(), Kind: kind.name, New: kind.empty, Events: a.events, Metrics: metrics,
			Ours: func(o transition.Object) bool { return awsv1.IsEC2NodeClass(kind.class(o)) },
		})
	}
	return out, nil
}
