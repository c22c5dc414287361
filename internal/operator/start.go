package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/lastknown"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/dependency"
)

// What a process reads of AWS after its start, by the names that people see.
const (
	credentialsDependency = "aws-credentials"
	clusterDependency     = "eks-cluster"
	typesDependency       = "ec2-instance-types"
	pricesDependency      = "aws-prices"
	shiftsDependency      = "zonal-shifts"
)

const (
	// firstAttempt sets how long a start waits for EKS, so that a wrong cluster name is found before anything is written. EKS answers within
	// a second; a kubelet's probes give a container more time than this.
	firstAttempt = 5 * time.Second
	// authenticationTimeout is for STS, or the agent on the node.
	authenticationTimeout = 20 * time.Second
	clusterTimeout        = 20 * time.Second
	// typesTimeout is for ten pages of instance types, and as many of offerings.
	typesTimeout = 45 * time.Second
	// pricesTimeout is for all pages of the Pricing API, some dozen for each platform.
	pricesTimeout = 2 * time.Minute
	shiftsTimeout = 15 * time.Second
	// grace sets how long launches wait for prices and zonal shifts. The prices that ship with the program are a few per cent off; a node
	// later than that costs more.
	grace = 15 * time.Second
	// pricesPause is the longest pause between two attempts to read prices: each attempt takes dozens of calls.
	pricesPause = 5 * time.Minute
)

// awsReads are the calls that make the dependencies known.
type awsReads struct {
	credentials, cluster, types, prices func(context.Context) error
	// shifts is nil where zonal shifts are not followed.
	shifts func(context.Context) error
	// earlierTypes and earlierPrices return when the answer of an earlier process was given that stands in; false if none does. Nil has none.
	earlierTypes, earlierPrices func() (time.Time, bool)
	// sufficient reports whether launches need no answer of EKS: the cluster is verified, and its version is not EKS's.
	sufficient func() bool
}

// awsDependencies returns what launches need of AWS. Prices that ship with the program, and zones that may be shifted away from, are better
// than no nodes; an error that a person has to correct holds launches where it concerns zonal shifts.
func awsDependencies(r awsReads) []dependency.Dependency {
	out := []dependency.Dependency{
		{Name: credentialsDependency, Read: r.credentials, Timeout: authenticationTimeout},
		{
			Name: clusterDependency, Read: r.cluster, Timeout: clusterTimeout, After: credentialsDependency,
			Optional: func(error) bool { return r.sufficient() },
		},
		{
			Name: typesDependency, Read: r.types, Timeout: typesTimeout, After: credentialsDependency,
			Optional: func(err error) bool { return passes(err) && stands(r.earlierTypes) }, Grace: grace, StandsIn: r.earlierTypes,
		},
		{
			Name: pricesDependency, Read: r.prices, Timeout: pricesTimeout, After: credentialsDependency, MaxPause: pricesPause,
			Optional: func(error) bool { return true }, Grace: grace, StandsIn: r.earlierPrices,
		},
	}
	if r.shifts != nil {
		out = append(out, dependency.Dependency{
			Name: shiftsDependency, Read: r.shifts, Timeout: shiftsTimeout, After: credentialsDependency, Optional: passes, Grace: grace,
		})
	}
	return out
}

// stands reports whether an answer of an earlier process stands in.
func stands(earlier func() (time.Time, bool)) bool {
	if earlier == nil {
		return false
	}
	_, does := earlier()
	return does
}

// passes reports whether an error of AWS may pass without anybody's help; no answer yet is none.
func passes(err error) bool {
	return err == nil || awserrors.IsRetryable(err) || errors.Is(err, context.DeadlineExceeded)
}

// newDependencies returns those of this process. The adapter exists when they are first read.
func (a *assembly) newDependencies(local ekscluster.APIServer) *dependency.Set {
	reads := awsReads{
		credentials: func(ctx context.Context) error { return session.Authenticate(ctx, a.sdk, os.Getenv) },
		cluster: func(ctx context.Context) error {
			if err := a.aws.Cluster.Discover(ctx, local); err != nil {
				return err
			}
			return a.aws.Cluster.Undescribed()
		},
		types: func(ctx context.Context) error {
			call := session.Call{Service: "ec2", Action: "DescribeInstanceTypes"}
			return session.Explain(call, a.sdk.Region, a.aws.Offerings.RefreshTypes(ctx))
		},
		prices:        func(ctx context.Context) error { return a.aws.Offerings.RefreshPrices(ctx) },
		earlierTypes:  func() (time.Time, bool) { return a.aws.Offerings.RecalledTypes() },
		earlierPrices: func() (time.Time, bool) { return a.aws.Offerings.RecalledPrices() },
		sufficient:    func() bool { return a.aws.Cluster.Verified() && !a.settings.EKSControlPlane },
	}
	if a.settings.EnableZonalShift {
		reads.shifts = func(ctx context.Context) error { return a.aws.ZonalShift.RefreshZonalShifts(ctx) }
	}
	return dependency.New(dependency.Config{
		Dependencies: awsDependencies(reads), Brief: awserrors.Brief, Log: a.log, Now: time.Now,
		Changed: func() {
			if a.joining.changed != nil {
				a.joining.changed()
			}
		},
	})
}

// beginAWS gives AWS a moment to answer before anything is written, and goes on without it: what is missing is read while the manager
// runs. It returns a cluster name that is another cluster's, and an environment that has no way to credentials.
func (a *assembly) beginAWS(ctx context.Context, local ekscluster.APIServer) error {
	limited, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	if err := session.Configured(limited, a.sdk, os.Getenv); err != nil {
		return err
	}
	a.aws.Offerings.Recall(limited)
	for _, name := range []string{credentialsDependency, clusterDependency} {
		if err := a.dependencies.Attempt(limited, name); err != nil {
			return err
		}
	}
	if a.aws.Cluster.Undescribed() == nil {
		return nil
	}
	recalled, err := a.aws.Cluster.Recall(ctx, local)
	switch {
	case err != nil:
		a.log.Warn("what EKS returned to an earlier process cannot be read; waiting for EKS", "error", err)
	case recalled:
		a.log.Info("EKS has not answered; continuing with what it returned to an earlier process", "ConfigMap", ekscluster.RecordName)
	}
	return nil
}

// keeper keeps instance types and prices where records keep what EKS returns; nil where these are nil.
func (a *assembly) keeper(clusterUID string) offerings.Keeper {
	namespace := a.namespace()
	if namespace == "" || a.refusals != nil {
		return nil
	}
	return &lastknown.Store{
		Client: a.clientset.CoreV1().ConfigMaps(namespace), Region: a.sdk.Region, ClusterUID: clusterUID, Now: time.Now,
	}
}

// records keep what EKS returns in the namespace of the leader's lease; nil in shadow mode, which writes nothing, and where the
// namespace is not known.
func (a *assembly) records() ekscluster.Records {
	namespace := a.namespace()
	if namespace == "" || a.refusals != nil {
		return nil
	}
	return recordsIn(a.clientset.CoreV1().ConfigMaps(namespace))
}

func recordsIn(client typedcorev1.ConfigMapInterface) ekscluster.Records {
	return &ekscluster.ConfigMapRecords{Client: client}
}

// aboutInstances are calls that decide about instances, though they only read: "not found" by the wrong account or region would let a
// node go without its instance.
var aboutInstances = map[string]bool{"DescribeInstances": true, "DescribeInstanceStatus": true}

// guardCalls refuses what changes AWS, and what decides about instances, until the cluster is verified.
func guardCalls(verified func() bool) func(service, action string) error {
	return func(service, action string) error {
		allowed := policy.Reads(action) && !aboutInstances[action] || action == "ReceiveMessage"
		if allowed || verified() {
			return nil
		}
		return fmt.Errorf("%w: %s:%s is not called before it is certain that settings.clusterName names this cluster",
			cloudprovider.ErrNotKnownYet, service, action)
	}
}

// wireDependencies wires what reads AWS until everything is known, and the report of missing permissions.
func (a *assembly) wireDependencies() error {
	return errors.Join(a.addLoops(a.dependencies), a.addHeldLoops(permissionsReport{a.aws, a.log}))
}

// addHeldLoops adds loops that begin once launches need wait for nothing of AWS anymore.
func (a *assembly) addHeldLoops(loops ...manager.Runnable) error {
	var errs []error
	for _, loop := range loops {
		errs = append(errs, a.held.Add(loop))
	}
	return errors.Join(errs...)
}

// holdingManager holds each loop that is added to it.
type holdingManager struct {
	manager.Manager
	hold func(manager.Runnable) manager.Runnable
}

// Add adds a loop.
func (m holdingManager) Add(r manager.Runnable) error { return m.Manager.Add(m.hold(r)) }

// permissionsReport logs the permissions that the role lacks, once in each replica.
type permissionsReport struct {
	account *adapter.Adapter
	log     *slog.Logger
}

// NeedLeaderElection is false: a replica reports before it leads.
func (permissionsReport) NeedLeaderElection() bool { return false }

// Start makes the report.
func (r permissionsReport) Start(ctx context.Context) error {
	if missing := r.account.Preflight.MissingPermissions(ctx); len(missing) > 0 {
		r.log.Error("the controller's role lacks permissions; attach the policy that `dovetail iam-policy` prints", "missing", missing)
	}
	return nil
}
