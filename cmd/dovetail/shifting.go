package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclass/zonalshift"
)

// shiftsWithin bounds how long a start waits for the zonal shifts.
const shiftsWithin = 15 * time.Second

// firstShifts reads the zonal shifts before the first plan. Where AWS fails, the start goes on without them, since a cluster
// without nodes is worse than nodes in a zone that it should keep away from; zonalshift.Refresher goes on asking. What a person
// has to put right ends the start.
func firstShifts(ctx context.Context, log *slog.Logger, refresh func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, shiftsWithin)
	defer cancel()
	err := refresh(bounded)
	if err == nil || !awserrors.Passing(err) || ctx.Err() != nil {
		return err
	}
	log.Error("zonal shifts cannot be read; starting without them, and retrying", "error", err)
	return nil
}

// addZonalShift adds what follows zonal shifts of the cluster, if that is wanted.
func (a *assembly) addZonalShift(ec2 *aws.Cloud) error {
	if !a.settings.EnableZonalShift {
		return nil
	}
	readable, err := zonalshift.NewReadable(ctrlmetrics.Registry)
	return errors.Join(
		err,
		a.mgr.Add(&zonalshift.Refresher{Cloud: ec2, Readable: readable, Log: a.log}),
		a.mgr.Add(&zonalshift.Teller{Client: a.mgr.GetClient(), Cloud: ec2, Labels: labels(), Events: a.events, Log: a.log, Now: time.Now}),
	)
}
