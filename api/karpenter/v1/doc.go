// Package v1 holds NodePool and NodeClaim of the API group karpenter.sh, version v1: their Go types, the
// names on the wire (labels, annotations, taints, finalizers, condition types), and the rules that the
// API server cannot check.
//
// A NodePool defines which nodes may be launched for which pods; a NodeClaim is one node, from the decision to launch
// it until its instance is gone. Both are compatible with Karpenter's.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1
