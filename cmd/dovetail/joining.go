package main

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/controller/join"
)

// joining is what watches over the joining of nodes, and holds launches back that would be in vain.
type joining struct {
	*join.Reconciler
	guard *join.Guard
	// wake has an item when node classes are to be looked at again.
	wake <-chan event.GenericEvent
}

func (a *assembly) joins(ec2 *aws.Cloud) joining {
	wake := make(chan event.GenericEvent, 1)
	changed := func() {
		select {
		case wake <- event.GenericEvent{Object: &awsv1.EC2NodeClass{}}:
		default: // a look is due anyway
		}
	}
	breakers := join.NewBreakers(time.Now, changed)
	return joining{
		Reconciler: &join.Reconciler{
			Client: a.mgr.GetClient(), Cloud: ec2, Breakers: breakers, Times: join.NewTimes(a.settings.UsualJoinTime), Changed: changed,
			Events: a.events, Metrics: a.metrics, Log: a.log, Now: time.Now,
		},
		guard: join.NewGuard(ec2, breakers, time.Now),
		wake:  wake,
	}
}
