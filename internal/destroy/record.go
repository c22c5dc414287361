package destroy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Verb is what is done to an object.
type Verb string

// The verbs.
const (
	DeleteNodeClaim   Verb = "DeleteNodeClaim"
	DeleteNode        Verb = "DeleteNode"
	EvictPod          Verb = "EvictPod"
	DeletePod         Verb = "DeletePod"
	TerminateInstance Verb = "TerminateInstance"
	RebootInstance    Verb = "RebootInstance"
)

// Record is the audit of one deletion: what, why, and what proved that it may be. Its JSON is stable: fields are added, not changed.
type Record struct {
	At       time.Time `json:"at"`
	Verb     Verb      `json:"verb"`
	NodePool string    `json:"nodePool,omitempty"`
	Kind     Kind      `json:"kind"`
	Reason   string    `json:"reason"`
	Decision string    `json:"decision,omitempty"`
	// Object is the proof of the API server.
	Object Object `json:"object"`
	// Instance is the proof of EC2.
	Instance Instance `json:"instance,omitzero"`
}

// Object is an object as the API server had it when it was deleted.
type Object struct {
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

// Instance is an instance as EC2 described it.
type Instance struct {
	ProviderID string `json:"providerID,omitempty"`
	// State is that of EC2; gone if EC2 knows no such instance.
	State string `json:"state,omitempty"`
	// Owner is the cluster that it belongs to by its tags: ours, foreign, adoptable or unknown.
	Owner        string `json:"owner,omitempty"`
	NodeClaimUID string `json:"nodeClaimUID,omitempty"`
}
