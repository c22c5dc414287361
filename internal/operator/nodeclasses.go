package operator

import (
	"errors"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/refresh"
	nodeclassstatus "github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/status"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/zonalshift"
)

// refreshed describes what goes out of date slowly: instance types, prices, and the version of Kubernetes.
type refreshed struct {
	*offerings.Source
	*ekscluster.Cluster
}

// wireNodeClasses wires the status of EC2NodeClasses, and the loops that refresh or delete what they need in AWS.
func (a *assembly) wireNodeClasses() error {
	log, now := a.log, time.Now
	return errors.Join(
		a.register(&nodeclassstatus.Reconciler{
			Client: a.mgr.GetClient(), Cloud: a.joining.guard, Events: a.events, Log: log, Now: now, Triggers: a.joining.classes,
			Waiting: a.dependencies.Err, StandIns: a.dependencies.StandIns,
		}),
		a.addHeldLoops(
			&refresh.Catalog{Cloud: refreshed{a.aws.Offerings, a.aws.Cluster}, Log: log},
			&refresh.Templates{Cloud: a.aws.Resources, Log: log, Now: now},
			&instanceprofile.Loop{Live: a.mgr.GetAPIReader(), Cloud: a.aws.Resources, Log: log},
		),
		a.wireZonalShift(),
	)
}

// wireZonalShift wires what follows zonal shifts of the cluster, if that is configured.
func (a *assembly) wireZonalShift() error {
	if !a.settings.EnableZonalShift {
		return nil
	}
	return a.addLoops(
		&zonalshift.Refresher{Cloud: a.aws.ZonalShift, Readable: a.measures.shiftsReadable.WithLabelValues(), Log: a.log},
		&zonalshift.EventRecorder{
			Client: a.mgr.GetClient(), Cloud: a.aws.ZonalShift, Labels: labels(), Events: a.events, Log: a.log, Now: time.Now,
		},
	)
}
