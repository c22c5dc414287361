package operator

import (
	"context"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/preflight"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/doctorloop"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// DoctorAccount describes what the checks of the doctor read of AWS.
type DoctorAccount struct {
	*zonalshift.Instances
	*offerings.Source
	*nodeclass.JoinChecks
	*preflight.Checker
}

// maxListingAge limits how old the listing of instances may be that the checks use. That of the adoption loop is younger, so that the
// checks seldom make one of their own: 5,000 instances are described in 75 MB of text.
const maxListingAge = 2 * time.Minute

// List returns the instances of a recent listing.
func (a DoctorAccount) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	return a.Recent(ctx, maxListingAge)
}

func NewDoctorAccount(a *adapter.Adapter) DoctorAccount {
	return DoctorAccount{a.Instances, a.Offerings, a.Joins, a.Preflight}
}

// wireDoctor wires the loop that makes the checks of the doctor command.
func (a *assembly) wireDoctor() error {
	look := func(ctx context.Context) []doctorloop.Finding {
		var out []doctorloop.Finding
		for _, f := range doctor.Run(a.doctorFacts(ctx)).At(doctor.Warning).Findings {
			out = append(out, doctorloop.Finding{Check: f.Check, Severity: string(f.Severity), Object: f.Object, Seen: f.Seen, Remedy: f.Remedy})
		}
		return out
	}
	return a.addHeldLoops(&doctorloop.Loop{
		Check: look, Metrics: a.metrics, Log: a.log, Now: time.Now, Provisioning: a.batch, Turns: a.turns,
	})
}
