package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/fault"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/scarcity"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// FleetAPI is what Launcher calls of EC2 itself.
type FleetAPI interface {
	CreateFleet(ctx context.Context, in *ec2.CreateFleetInput, optFns ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
}

// Config is what a Launcher works with.
type Config struct {
	EC2       FleetAPI
	Identity  identity.Identity
	Templates *Templates
	Instances *instance.Instances
	Addresses *network.Addresses
	Scarcity  *scarcity.Memory
	// Cluster is what nodes are told about the cluster they join.
	Cluster func() bootstrap.Cluster
	// StrictMinValues refuses a launch whose choice of types is narrower than the claim asks for.
	StrictMinValues bool
	// Reservations are kept informed; nil while capacity reservations are not used.
	Reservations Reservations
	Now          func() time.Time
	Log          *slog.Logger
}

// Launcher buys instances.
//
// A claim gets one instance, whatever goes wrong. The instance carries the claim's UID as a tag from its
// first moment, and the call that buys it carries a token that follows from the UID. A launch first looks
// for an instance with the tag and adopts it; while EC2 does not show it yet, the token makes the same
// call give the same instance. See ledger for what happens when parameters have changed meanwhile.
type Launcher struct {
	cfg    Config
	ledger *ledger

	mu sync.Mutex
	// begun counts the launches in progress, by the UID of their claim.
	begun map[string]int
}

// New returns a Launcher.
func New(cfg Config) *Launcher {
	return &Launcher{cfg: cfg, ledger: newLedger(cfg.Now), begun: map[string]int{}}
}

// Begin says that a launch for a claim is in progress until done is called.
func (l *Launcher) Begin(claimUID string) (done func()) {
	l.count(claimUID, 1)
	return func() { l.count(claimUID, -1) }
}

func (l *Launcher) count(claimUID string, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[claimUID] += by; l.begun[claimUID] == 0 {
		delete(l.begun, claimUID)
	}
}

// Busy reports whether a launch for a claim is in progress, or the outcome of one is in doubt.
func (l *Launcher) Busy(claimUID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun[claimUID] > 0 || l.ledger.inDoubt(claimUID)
}

// Order is what to buy.
type Order struct {
	Claim *karpv1.NodeClaim
	Class *awsv1.EC2NodeClass
	// Types as the class would launch them.
	Types []*catalog.InstanceType
	// Group is the placement group that the class asks for; zero for none.
	Group placement.Group
	// Kubelet returns the kubelet settings for a type, as JSON. It is nil where those of the class hold for all types.
	Kubelet func(instanceType string) ([]byte, error)
}

// kubelet is spec.kubelet as instances of the type are told, empty where it is that of the class.
func (o Order) kubelet(instanceType string) (string, error) {
	if o.Kubelet == nil {
		return "", nil
	}
	raw, err := o.Kubelet(instanceType)
	return string(raw), err
}

// ReasonInDoubt is the reason of a launch that waits to see what an earlier call did.
const ReasonInDoubt = "LaunchOutcomeUnknown"

// errTemplateGone means that a launch template was deleted between making sure of it and using it.
var errTemplateGone = errors.New("launch template is gone")

// Adopt returns the instance that was launched for a claim before, if there is one.
func (l *Launcher) Adopt(ctx context.Context, claim *karpv1.NodeClaim) (cloud.Instance, bool, error) {
	found, err := l.cfg.Instances.OfClaim(ctx, string(claim.UID))
	if err != nil || len(found) == 0 {
		return cloud.Instance{}, false, err
	}
	if len(found) > 1 {
		l.cfg.Log.Error("a claim has more than one instance; the oldest is kept", "claim", claim.Name, "instances", len(found))
	}
	l.ledger.bought(string(claim.UID))
	return found[0], true, nil
}

// Launch buys an instance for the claim. It must follow an Adopt that found none. Errors are those of package cloud.
func (l *Launcher) Launch(ctx context.Context, o Order) (cloud.Instance, error) {
	bought, err := l.try(ctx, o)
	if errors.Is(err, errTemplateGone) {
		bought, err = l.try(ctx, o)
	}
	if err != nil {
		return cloud.Instance{}, err
	}
	l.ledger.bought(string(o.Claim.UID))
	l.cfg.Instances.Remember(bought)
	return bought, nil
}

func (l *Launcher) try(ctx context.Context, o Order) (cloud.Instance, error) {
	claim := string(o.Claim.UID)
	state := l.ledger.settled(claim)
	switch {
	case state.replay != nil:
		return l.call(ctx, o, state.replay, nil)
	case !state.doubtful.IsZero():
		return cloud.Instance{}, inDoubt(nil)
	}
	plan, err := l.plan(o)
	if err != nil {
		return cloud.Instance{}, err
	}
	defer plan.choice.Settle("") // of no effect once call has settled it
	fleet, err := l.fleet(ctx, o, plan)
	if err != nil {
		return cloud.Instance{}, err
	}
	fleet.token = token(l.cfg.Identity.ClusterUID, claim, state.number)
	return l.call(ctx, o, fleet.request(), plan.choice)
}

// call asks EC2 and notes in the ledger what is known of the outcome afterwards.
func (l *Launcher) call(ctx context.Context, o Order, in *request, choice *network.Choice) (cloud.Instance, error) {
	claim := string(o.Claim.UID)
	out, err := l.cfg.EC2.CreateFleet(ctx, in.CreateFleetInput)
	switch {
	case fault.Is(err, fault.TokenMismatch):
		l.ledger.mismatched(claim)
		return cloud.Instance{}, inDoubt(err)
	case err != nil && !fault.Definite(err):
		l.ledger.lost(claim, in)
		return cloud.Instance{}, createError(fmt.Errorf("create fleet: %w", err))
	case err != nil:
		// Nothing came of this call. What an earlier one did is as it was.
		if fault.Is(err, fault.LaunchTemplateNotFound) {
			return cloud.Instance{}, l.forgetTemplates(in.CreateFleetInput, err)
		}
		return cloud.Instance{}, createError(fmt.Errorf("create fleet: %w", err))
	}
	failed := failures(in, out)
	mark(failed, l.cfg.Scarcity, l.full, l.cfg.Addresses.Exhausted)
	bought, ok := instanceOf(in, out)
	if choice != nil {
		choice.Settle(bought.SubnetID)
	}
	if len(failed) > 0 {
		l.cfg.Log.Info("fleet errors", "claim", o.Claim.Name, "launched", bought.ID, "errors", describe(failed))
	}
	if !ok {
		l.ledger.answered(claim)
		return cloud.Instance{}, refusal(failed)
	}
	if id := bought.Reservation.ID; id != "" && l.cfg.Reservations != nil {
		l.cfg.Reservations.Launched(id)
	}
	l.complete(&bought, o, in.CreateFleetInput)
	return bought, nil
}

func (l *Launcher) full(id string) {
	if l.cfg.Reservations != nil {
		l.cfg.Reservations.Full(id)
	}
}

// complete adds what the answer does not say about an instance.
func (l *Launcher) complete(i *cloud.Instance, o Order, in *ec2.CreateFleetInput) {
	i.ProviderID = instance.ProviderID(i.Zone, i.ID)
	i.LaunchedAt = l.cfg.Now()
	i.NodeClaim, i.NodeClaimUID = o.Claim.Name, string(o.Claim.UID)
	i.Owner = cloud.Ours
	i.Tenancy = awsv1.TenancyDefault
	if reqs, err := Requirements(o.Claim); err == nil {
		i.Tenancy = tenancy(reqs)
		i.Placement = o.placement(reqs)
	}
	i.Tags = map[string]string{}
	for _, t := range in.TagSpecifications[0].Tags {
		i.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	for _, s := range o.Class.Status.Subnets {
		if s.ID == i.SubnetID {
			fill(&i.ZoneID, s.ZoneID)
		}
	}
	for _, g := range o.Class.Status.SecurityGroups {
		i.SecurityGroupIDs = append(i.SecurityGroupIDs, g.ID)
	}
}

func (l *Launcher) forgetTemplates(in *ec2.CreateFleetInput, err error) error {
	for _, c := range in.LaunchTemplateConfigs {
		l.cfg.Templates.Forget(aws.ToString(c.LaunchTemplateSpecification.LaunchTemplateName))
	}
	return errors.Join(errTemplateGone, createError(fmt.Errorf("create fleet: %w", err)))
}

func inDoubt(err error) error {
	return &cloud.CreateError{
		Reason:  ReasonInDoubt,
		Message: "an earlier call may have launched an instance that is not visible yet; waiting for it",
		Err:     err,
	}
}

// launchTags are the tags of the instance for a claim.
func (l *Launcher) launchTags(o Order) map[string]string {
	tags := l.sharedTags(o)
	tags[awsv1.TagNodeClaim] = o.Claim.Name
	tags[identity.TagNodeClaimUID] = string(o.Claim.UID)
	return tags
}

// sharedTags are those of everything that claims of one class and pool have in common.
func (l *Launcher) sharedTags(o Order) map[string]string {
	return l.cfg.Identity.LaunchTags(o.Class.Name, o.Claim.Labels[karpv1.LabelNodePool], o.Class.Spec.Tags)
}

// EFAs is the number of EFA interfaces that an instance of the type gets for the claim.
func EFAs(claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, capacity corev1.ResourceList) int {
	_, asked := claim.Spec.Resources.Requests[awsv1.ResourceEFA]
	if !asked && len(class.Spec.NetworkInterfaces) == 0 {
		return 0
	}
	q := capacity[awsv1.ResourceEFA]
	return int(q.Value())
}
