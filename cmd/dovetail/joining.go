package main

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/doctorloop"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/join"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/liveness"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
)

// joining is what watches over the joining of nodes, and holds launches back that would be in vain.
type joining struct {
	*join.Reconciler
	guard *join.Guard
	// removals are fed by the initialization of nodes.
	removals *cluster.TaintRemovals
	// classes has an item when node classes are to be looked at again, pools when NodePools are.
	classes, pools <-chan event.GenericEvent
}

// checkup looks the cluster over on a timer, as the doctor command does.
func (a *assembly) checkup(ec2 *aws.Cloud) *doctorloop.Loop {
	look := func(ctx context.Context) []doctorloop.Finding {
		facts := gather.Facts(ctx, gather.Sources{
			Kubernetes: a.mgr.GetClient(), Cloud: ec2, ClusterName: a.settings.ClusterName, Now: time.Now(),
		})
		var out []doctorloop.Finding
		for _, f := range doctor.Run(facts).At(doctor.Warning).Findings {
			out = append(out, doctorloop.Finding{Check: f.Check, Severity: string(f.Severity), Object: f.Object, Seen: f.Seen, Remedy: f.Remedy})
		}
		return out
	}
	return &doctorloop.Loop{Look: look, Metrics: a.metrics, Log: a.log, Now: time.Now}
}

func (a *assembly) joins(ec2 *aws.Cloud) joining {
	classes, pools := make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 1)
	changed := func() {
		for wake, o := range map[chan event.GenericEvent]client.Object{classes: &awsv1.EC2NodeClass{}, pools: &karpv1.NodePool{}} {
			select {
			case wake <- event.GenericEvent{Object: o}:
			default: // a look is due anyway
			}
		}
	}
	breakers, removals := join.NewBreakers(time.Now, changed), cluster.NewTaintRemovals()
	return joining{
		Reconciler: &join.Reconciler{
			Client: a.mgr.GetClient(), Cloud: ec2, Breakers: breakers, Times: join.NewTimes(a.settings.UsualJoinTime), Changed: changed,
			Removals: removals, Timeout: liveness.RegistrationTimeout,
			Events: a.events, Metrics: a.metrics, Log: a.log, Now: time.Now,
		},
		guard:    join.NewGuard(ec2, breakers, time.Now),
		removals: removals,
		classes:  classes,
		pools:    pools,
	}
}
