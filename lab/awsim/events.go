package awsim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
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

// eventTargets are the queues that EventBridge sends events to.
type eventTargets struct {
	mu     sync.Mutex
	queues []string
	// sent is how many events there were: each has an ID of its own.
	sent uint64
}

// SendEventsTo has EventBridge send what happens to instances to a queue, beside those that get it already: spot
// interruption warnings, rebalance recommendations, changes of state, interruptions of capacity reservations, and AWS
// Health events. It creates the queue if there is none; a queue that gets events already goes on to.
func (s *Sim) SendEventsTo(queue string) error {
	if err := s.sqs.CreateQueue(queue, map[string]string{"MessageRetentionPeriod": "300"}); err != nil {
		return err
	}
	s.targets.mu.Lock()
	defer s.targets.mu.Unlock()
	if !slices.Contains(s.targets.queues, queue) {
		s.targets.queues = append(s.targets.queues, queue)
	}
	return nil
}

// send puts a notice into every target queue. EC2 calls it under its lock.
func (s *Sim) send(n ec2.Event) {
	s.targets.mu.Lock()
	defer s.targets.mu.Unlock()
	if len(s.targets.queues) == 0 {
		return
	}
	s.targets.sent++
	body, err := s.event(n, s.targets.sent)
	if err != nil {
		s.options.Log.Warn("event dropped", "event", n.DetailType, "error", err)
		return
	}
	for _, queue := range s.targets.queues {
		if err := s.sqs.Send(queue, body); err != nil { // EventBridge drops it too when its target is gone
			s.options.Log.Warn("event dropped", "queue", queue, "event", n.DetailType, "error", err)
		}
	}
}

// event is a notice as EventBridge writes it: the nth of the account.
func (s *Sim) event(n ec2.Event, number uint64) (string, error) {
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
