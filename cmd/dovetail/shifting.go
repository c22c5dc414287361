package main

import (
	"errors"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/controller/zonalshift"
)

// addZonalShift adds what follows zonal shifts of the cluster, if that is wanted.
func (a *assembly) addZonalShift(ec2 *aws.Cloud) error {
	if !a.settings.EnableZonalShift {
		return nil
	}
	return errors.Join(
		a.mgr.Add(&zonalshift.Refresher{Cloud: ec2, Log: a.log}),
		a.mgr.Add(&zonalshift.Teller{Client: a.mgr.GetClient(), Cloud: ec2, Labels: labels(), Events: a.events, Log: a.log}),
	)
}
