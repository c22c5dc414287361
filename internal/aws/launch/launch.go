package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
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
	Scarcity  *unavailableofferings.Memory
	// Cluster is what nodes are told about the cluster they join.
	Cluster func() bootstrap.Cluster
	// StrictMinValues refuses a launch whose choice of types is narrower than the claim asks for.
	StrictMinValues bool
	// Reservations are kept informed; nil while capacity reservations are not used.
	Reservations Reservations
	// Window is how long claims are gathered that can be launched together; zero means what EC2's limits call for.
	Window batch.Window
	// Meter is told what goes wrong; nil tells nobody.
	Meter cloudprovider.Meter
	Now   func() time.Time
	Log   *slog.Logger
}

// Launcher buys instances.
//
// A claim gets one instance, whatever goes wrong. There are two ways to launch, and a claim is never on both:
//
// Alone. The instance carries the claim's UID as a tag from its first moment, and the call that buys it carries a token that
// follows from the UID. A launch first looks for an instance with the tag and adopts it; while EC2 does not show it yet, the
// token makes the same call give the same instance. See ledger for what happens when parameters have changed meanwhile.
//
// Together with others that ask for the same. The instances of such a launch cannot carry the claims' UIDs, so the claims
// carry the launch's: a ticket that is written on each before the call is made, and only on a claim for which no call was
// made before. See joint for how the outcome becomes known, deal for how it is found out by those who were not there.
type Launcher struct {
	cfg     Config
	ledger  *tokenLedger
	batcher *batch.Batcher[string, *batchMember, cloudprovider.Instance]
	// joints are the launches of several that this process has made, by the UID of each claim, the last one last. A claim may still
	// have the ticket of an earlier one: a later attempt may have failed to write its own.
	batches *memo.Memo[string, []*batchLaunch]
	// alone are the claims that this process has launched alone, by their UID, or was about to. They have no ticket any more, whatever
	// a cache still shows.
	single *memo.Memo[string, struct{}]
	// doubts are since when claims have been asked for whose launch another process has made, by their UID.
	firstLookups *memo.Memo[string, time.Time]
	lookups      singleflight.Group
	// told are the node classes of which it was said lately that their user data is large.
	largeUserData *memo.Memo[string, struct{}]
	// launches counts those of several.
	batchCount atomic.Uint64

	mu sync.Mutex
	// begun counts the launches in progress, by the UID of their claim.
	inProgress map[string]int
}

// New returns a Launcher.
func New(cfg Config) *Launcher {
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.Unmeasured{}
	}
	if cfg.Window == (batch.Window{}) {
		cfg.Window = batch.Window{Idle: 35 * time.Millisecond, Max: time.Second, Items: 1000}
	}
	l := &Launcher{
		cfg: cfg, ledger: newTokenLedger(cfg.Now), inProgress: map[string]int{},
		batches: memo.New[string, []*batchLaunch](launchTTL, cfg.Now), single: memo.New[string, struct{}](launchTTL, cfg.Now),
		firstLookups:  memo.New[string, time.Time](launchTTL, cfg.Now),
		largeUserData: memo.New[string, struct{}](launchTTL, cfg.Now),
	}
	l.batcher = batch.New(batch.Config[string, *batchMember, cloudprovider.Instance]{
		Name: "create_fleet", Window: cfg.Window, Call: l.launchBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched,
	})
	return l
}

// callTimeout bounds what is done for several claims: tickets, call, repetitions.
const callTimeout = 5 * time.Minute

// Begin says that a launch for a claim is in progress until done is called.
func (l *Launcher) Begin(claimUID string) (done func()) {
	l.count(claimUID, 1)
	return func() { l.count(claimUID, -1) }
}

func (l *Launcher) count(claimUID string, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inProgress[claimUID] += by; l.inProgress[claimUID] == 0 {
		delete(l.inProgress, claimUID)
	}
}

// Busy reports whether a launch for a claim is in progress, or the outcome of one is in doubt.
func (l *Launcher) Busy(claimUID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if made, _ := l.batches.Get(claimUID); slices.ContainsFunc(made, (*batchLaunch).unsettled) {
		return true
	}
	return l.inProgress[claimUID] > 0 || l.ledger.outcomeUnknown(claimUID)
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

// ReasonOutcomeUnknown is the reason of a launch that waits to see what an earlier call did.
const ReasonOutcomeUnknown = "LaunchOutcomeUnknown"

// errTemplateGone means that a launch template was deleted between making sure of it and using it.
var errTemplateGone = errors.New("launch template is gone")

// errTokenUsed means that EC2 remembers a client token from a call that it has refused.
var errTokenUsed = errors.New("client token was used by a call that EC2 has refused")

// Adopt returns the instance that was launched for a claim before, if there is one. The error is a CreateError with
// ReasonOutcomeUnknown where that cannot be told yet.
func (l *Launcher) Adopt(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.Instance, bool, error) {
	uid, mark := string(claim.UID), l.launchAnnotation(claim)
	if j := l.batchOf(claim); j != nil {
		if _, _, settled := j.outcome(uid); !settled {
			l.settle(ctx, j)
		}
		switch i, err, settled := j.outcome(uid); {
		case !settled:
			return cloudprovider.Instance{}, false, err
		case err == nil:
			return i, true, nil
		}
		return cloudprovider.Instance{}, false, nil
	}
	if mark == cloudprovider.Unlaunched {
		return cloudprovider.Instance{}, false, nil
	}
	if ticket, ok := cloudprovider.ParseTicket(mark); ok {
		return l.lookUpSlot(ctx, claim, ticket)
	}
	found, err := l.cfg.Instances.ForClaim(ctx, uid)
	found = slices.DeleteFunc(found, func(i cloudprovider.Instance) bool { return !alive(i) })
	if err != nil || len(found) == 0 {
		return cloudprovider.Instance{}, false, err
	}
	if len(found) > 1 {
		l.cfg.Log.Error("NodeClaim has more than one instance; the oldest one is kept", "claim", claim.Name, "instances", len(found))
	}
	l.ledger.done(uid)
	return found[0], true, nil
}

// launchAnnotation is what the claim says of how it is launched. One that this process has launched alone has no ticket, though it may be read
// from before that was written on it.
func (l *Launcher) launchAnnotation(claim *karpv1.NodeClaim) string {
	if _, alone := l.single.Get(string(claim.UID)); alone {
		return ""
	}
	return claim.Annotations[karpv1.AnnotationLaunch]
}

// batchOf returns the launch of several that the claim took part in last, if this process has made it and not given it up: that of
// its ticket, or the last one where the claim is read from before it was written on. Any other ticket another process has written,
// which knows better.
func (l *Launcher) batchOf(claim *karpv1.NodeClaim) *batchLaunch {
	mark := l.launchAnnotation(claim)
	ticket, enrolled := cloudprovider.ParseTicket(mark)
	if !enrolled && mark != cloudprovider.Unlaunched {
		return nil
	}
	made, _ := l.batches.Get(string(claim.UID))
	for _, j := range slices.Backward(made) {
		if !enrolled || ticket.Launch == j.id {
			if j.isAbandoned() {
				return nil
			}
			return j
		}
	}
	return nil
}

// made remembers a launch of several for one of its claims.
func (l *Launcher) recordBatch(claimUID string, j *batchLaunch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier, _ := l.batches.Get(claimUID)
	l.batches.Put(claimUID, append(slices.Clone(earlier), j))
}

// Find returns the instances that were launched for a claim and are not on their way out, whatever its status says, without
// making a call that could launch one. The error says that it is not known yet.
func (l *Launcher) Find(ctx context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	uid, over := string(claim.UID), true
	if j := l.batchOf(claim); j != nil {
		over = j.abandon(l.cfg.Now()) // before EC2 is asked, which then shows all that the calls have brought
		switch i, err, settled := j.outcome(uid); {
		case settled && err == nil:
			i, err := l.cfg.Instances.Get(ctx, i.ProviderID)
			if errors.Is(err, cloudprovider.ErrNotFound) || err == nil && !alive(i) {
				return nil, nil
			}
			return []cloudprovider.Instance{i}, err
		case settled:
			return nil, nil
		}
	}
	mark := l.launchAnnotation(claim)
	if mark == cloudprovider.Unlaunched {
		return nil, nil
	}
	ticket, ok := cloudprovider.ParseTicket(mark)
	if !ok {
		return l.findSingle(ctx, uid)
	}
	i, found, err := l.lookUpSlot(ctx, claim, ticket)
	switch {
	case err != nil:
		return nil, err
	case found:
		return []cloudprovider.Instance{i}, nil
	case !over:
		return nil, outcomeUnknown(nil) // another claim may ask EC2 once more, which then launches for this one, too
	}
	return nil, nil
}

// findSingle is Find for a claim that was launched alone, if at all.
func (l *Launcher) findSingle(ctx context.Context, claimUID string) ([]cloudprovider.Instance, error) {
	found, err := l.cfg.Instances.ForClaim(ctx, claimUID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && (l.Busy(claimUID) || l.cfg.Instances.JustBecameLeader()) {
		return nil, outcomeUnknown(nil)
	}
	return slices.DeleteFunc(found, func(i cloudprovider.Instance) bool { return !alive(i) }), nil
}

// Launch buys an instance for the claim, alone. It must follow an Adopt that found none. Errors are those of package cloud.
func (l *Launcher) Launch(ctx context.Context, o Order) (cloudprovider.Instance, error) {
	bought, err := l.try(ctx, o)
	if errors.Is(err, errTemplateGone) || errors.Is(err, errTokenUsed) {
		bought, err = l.try(ctx, o)
	}
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	l.ledger.done(string(o.Claim.UID))
	l.cfg.Instances.RecordLaunch(bought)
	return bought, nil
}

func (l *Launcher) try(ctx context.Context, o Order) (cloudprovider.Instance, error) {
	claim := string(o.Claim.UID)
	state := l.ledger.next(claim)
	switch {
	case state.replay != nil:
		return l.launchWithToken(ctx, o, state.replay, nil)
	case !state.unknownSince.IsZero():
		return cloudprovider.Instance{}, outcomeUnknown(nil)
	}
	plan, err := l.plan(o)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	defer plan.choice.Settle("") // of no effect once call has settled it
	fleet, err := l.fleet(ctx, o, plan)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	fleet.tags[awsv1.TagNodeClaim], fleet.tags[identity.TagNodeClaimUID] = o.Claim.Name, claim
	fleet.token = token(l.cfg.Identity.ClusterUID, claim, state.number)
	return l.launchWithToken(ctx, o, fleet.call(), plan.choice)
}

// call asks EC2 and notes in the ledger what is known of the outcome afterwards.
func (l *Launcher) launchWithToken(ctx context.Context, o Order, in *fleetCall, choice *network.Choice) (cloudprovider.Instance, error) {
	claim := string(o.Claim.UID)
	a := l.createFleet(ctx, in)
	switch {
	case a.tokenMismatch:
		if l.ledger.mismatched(claim) {
			return cloudprovider.Instance{}, errors.Join(errTokenUsed, createError(fmt.Errorf("create fleet: %w", a.err)))
		}
		return cloudprovider.Instance{}, outcomeUnknown(a.err)
	case !a.known:
		l.ledger.lost(claim, in)
		return cloudprovider.Instance{}, unknownOutcomeError(a.err)
	case a.templateGone:
		l.ledger.rejected(claim)
		return cloudprovider.Instance{}, l.forgetTemplates(in.CreateFleetInput, a.err)
	case a.err != nil:
		// Nothing came of this call. What an earlier one did is as it was.
		l.ledger.rejected(claim)
		return cloudprovider.Instance{}, rejectionError(a)
	}
	if len(a.instances) == 0 {
		l.ledger.noInstance(claim)
		l.logFailures(o, a, "")
		return cloudprovider.Instance{}, failureError(a.failures)
	}
	bought := a.instances[0]
	if choice != nil {
		choice.Settle(bought.SubnetID)
	}
	l.logFailures(o, a, bought.ID)
	l.complete(&bought, o, in)
	return bought, nil
}

// tell logs what an answer complains of.
func (l *Launcher) logFailures(o Order, a fleetResult, launched string) {
	if len(a.failures) > 0 {
		l.cfg.Log.Info("fleet errors", "claim", o.Claim.Name, "launched", launched, "errors", describe(a.failures))
	}
}

// recordReservationFailure passes on that EC2 launches nothing into a reservation at the moment.
func (l *Launcher) recordReservationFailure(id, code string) {
	switch {
	case l.cfg.Reservations == nil:
	case code == awserrors.ReservationFull:
		l.cfg.Reservations.Full(id)
	default:
		l.cfg.Reservations.Unavailable(id)
	}
}

// complete adds what the answer does not say about an instance.
func (l *Launcher) complete(i *cloudprovider.Instance, o Order, in *fleetCall) {
	i.ProviderID = instance.ProviderID(i.Zone, i.ID)
	i.LaunchedAt = l.cfg.Now()
	i.NodeClaim, i.NodeClaimUID = o.Claim.Name, string(o.Claim.UID)
	i.Owner = cloudprovider.Ours
	i.Tenancy = awsv1.TenancyDefault
	if reqs, err := Requirements(o.Claim); err == nil {
		i.Tenancy = tenancy(reqs)
	}
	i.Placement = in.placement
	i.Tags = map[string]string{}
	for _, t := range in.TagSpecifications[0].Tags {
		i.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	i.Launch = i.Tags[identity.TagLaunch]
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

func outcomeUnknown(err error) error {
	return &cloudprovider.CreateError{
		Reason:  ReasonOutcomeUnknown,
		Message: "an earlier call may have launched an instance that is not visible yet; waiting for it",
		Err:     err,
	}
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
