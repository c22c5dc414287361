package operator

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	awsinterruption "github.com/dovetail-k8s/dovetail/internal/aws/interruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/interruption"
)

// wireInterruption wires the interruption queue and the status checks of instances.
func (a *assembly) wireInterruption() error {
	c, received, log, now := a.mgr.GetClient(), a.measures.interruptions, a.log, time.Now
	actor := &interruption.Actor{
		Client: c, Guard: a.deletions.Guard,
		Live: a.mgr.GetAPIReader(), Cloud: a.aws.Offerings, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
	}
	standing := &interruption.QueueCondition{Client: c, Events: a.events, Log: log, Now: now}
	queue := &interruption.Queue{Actor: actor, Condition: standing, Metrics: received, Log: log, Now: now}
	if name := a.settings.InterruptionQueue; name != "" {
		queue.Source = awsinterruption.NewQueue(sqs.NewFromConfig(a.sdk), name)
	}
	return errors.Join(a.addLoops(queue), a.addHeldLoops(&interruption.Status{
		Instances: a.aws.InstanceStatus, Actor: actor, Condition: standing, Metrics: received, Log: log,
	}))
}
