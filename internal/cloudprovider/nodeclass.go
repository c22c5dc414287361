package cloudprovider

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Resolution is the result of resolving a node class: the status to write, without conditions, and the conditions to set. A
// condition that is not in the list must stay as it is, because the cloud did not respond.
type Resolution struct {
	Status     awsv1.EC2NodeClassStatus
	Conditions []Condition
	// Next is the time when to resolve the class again.
	Next time.Duration
	// Err joins the errors of what could not be resolved. The rest is valid.
	Err error
	// Unread has, in words, what could not be read and was found before: launches use that.
	Unread []string
}

// Condition is a condition to set, all but its times.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}
