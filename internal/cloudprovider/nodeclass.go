package cloudprovider

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Resolution is what a node class comes to: the status to write, without conditions, and the conditions to
// set. A condition that is not in the list is to stay as it is, because the cloud gave no answer.
type Resolution struct {
	Status     awsv1.EC2NodeClassStatus
	Conditions []Condition
	// Next is when to look again.
	Next time.Duration
	// Err joins what could not be found out. The rest is valid nevertheless.
	Err error
}

// Condition is a condition to set, all but its times.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}
