package awsim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// Check is one of the checks that EC2 makes of instances.
type Check = ec2.Check

// Checks that EC2 makes of instances.
const (
	InstanceCheck = ec2.InstanceCheck
	SystemCheck   = ec2.SystemCheck
	EBSCheck      = ec2.EBSCheck
)

// SendEvents has EventBridge send what happens to instances to a queue: spot interruption warnings, rebalance
// recommendations, changes of state, interruptions of capacity reservations, and what AWS Health says. The queue is made if
// there is none.
func (s *Sim) SendEvents(queue string) error {
	if err := s.sqs.CreateQueue(queue, map[string]string{"MessageRetentionPeriod": "300"}); err != nil {
		return err
	}
	number := uint64(0) // notices come one at a time
	s.ec2.OnNotice(func(n ec2.Notice) {
		number++
		body, err := s.event(n, number)
		if err == nil {
			err = s.sqs.Send(queue, body)
		}
		if err != nil { // as EventBridge does with a target that is gone
			s.options.Log.Warn("event dropped", "queue", queue, "event", n.DetailType, "error", err)
		}
	})
	return nil
}

// event is a notice as EventBridge writes it: the nth of the account.
func (s *Sim) event(n ec2.Notice, number uint64) (string, error) {
	resources := n.Resources
	if n.Source == "aws.ec2" {
		resources = make([]string, len(n.Resources))
		for i, id := range n.Resources {
			resources[i] = fmt.Sprintf("arn:aws:ec2:%s:%s:instance/%s", s.options.Region, s.options.AccountID, id)
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "event %d %d", s.options.Seed, number))
	text, err := json.Marshal(map[string]any{
		"version": "0", "id": fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]), "detail-type": n.DetailType,
		"source": n.Source, "account": s.options.AccountID, "time": n.At.UTC().Format(time.RFC3339), "region": s.options.Region,
		"resources": resources, "detail": n.Detail,
	})
	return string(text), err
}
