package cloudprovider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RepairPolicy is a condition of a Node that requires a replacement: once it has lasted for the toleration, the node is repaired.
type RepairPolicy struct {
	Type       corev1.NodeConditionType
	Status     corev1.ConditionStatus
	Toleration time.Duration
}
