package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Surge is the record, in a DisruptionCommand of a candidate, of a Deployment that is restarted before the candidate is deleted.
//
// +kubebuilder:object:generate=false
type Surge struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Began is when the command could do without the node of the pods.
	Began *metav1.Time `json:"began,omitempty"`
	// Restarted is the time that the pod template gets as kubectl.kubernetes.io/restartedAt; Generation is that of the Deployment before.
	// They are recorded before the write, so that a process that takes over neither repeats nor omits it.
	Restarted  *metav1.Time `json:"restarted,omitempty"`
	Generation int64        `json:"generation,omitempty"`
	// GaveUp is true if the pods are evicted instead.
	GaveUp bool `json:"gaveUp,omitempty"`
}
