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
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// FleetAPI is the calls of EC2 that Launcher makes itself.
type FleetAPI interface {
	CreateFleet(ctx context.Context, in *ec2.CreateFleetInput, optFns ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
}

// Config configures a Launcher.
type Config struct {
	EC2       FleetAPI
	Identity  identity.Identity
	Templates *Templates
	Instances *instance.Instances
	// Surplus permits the termination of an instance that EC2 has launched beyond what was requested. Nil leaves it to garbage collection.
	Surplus              func(ctx context.Context, i cloudprovider.Instance) (destroy.Permit, error)
	Addresses            *network.Addresses
	UnavailableOfferings *unavailableofferings.Cache
	// Cluster returns what nodes need to join the cluster.
	Cluster func() bootstrap.Cluster
	// StrictMinValues rejects a launch with fewer types than minValues requires.
	StrictMinValues bool
	// Reservations records the use of capacity reservations; nil while the feature is off.
	Reservations Reservations
	// Window states how long NodeClaims wait for a batch launch; zero uses a window that fits EC2's limits.
	Window batch.Window
	// Meter records failures; nil records nothing.
	Meter cloudprovider.Meter
	Now   func() time.Time
	Log   *slog.Logger
}

// Launcher launches instances.
//
// A NodeClaim gets one instance, whatever fails. There are two ways to launch, and a NodeClaim never takes both:
//
// Single launch. The instance has the UID of the NodeClaim as a tag from the start, and the client token of the call is
// derived from the UID. A launch first looks for an instance with the tag and adopts it. While EC2 does not show the
// instance yet, the token makes a repeated call return the same instance. See tokenLedger for calls with changed
// parameters.
//
// Batch launch, together with other NodeClaims that need the same. The instances of a batch cannot have the UIDs of
// single NodeClaims. Instead each NodeClaim is annotated with a slot of the batch before the call, and only if no call
// was made for it before. See batchLaunch for how the outcome becomes known, assign for how another process finds the
// instance of a slot, and Resume for how it launches what was not launched.
type Launcher struct {
	cfg     Config
	ledger  *tokenLedger
	batcher *batch.Batcher[string, *batchMember, cloudprovider.Instance]
	resumer *batch.Batcher[resumption, *batchMember, cloudprovider.Instance]
	// batches are the batch launches of this process, by the UID of each NodeClaim, the latest last. A NodeClaim may
	// still have the annotation of an earlier batch, because a later attempt may have failed to write its own.
	batches *ttlcache.Cache[string, []*batchLaunch]
	// single are the NodeClaims that this process has launched alone or is about to, by UID. They have no slot anymore,
	// even if a cache still shows one.
	single *ttlcache.Cache[string, struct{}]
	// firstLookups has the time at which this process first looked up the slot of a NodeClaim, by UID.
	firstLookups *ttlcache.Cache[string, time.Time]
	lookups      singleflight.Group
	// largeUserData are the node classes with a recent warning about the size of their user data.
	largeUserData *ttlcache.Cache[string, struct{}]
	// batchCount counts the batch launches.
	batchCount atomic.Uint64
	userDatas  bootstrap.Renderer

	mu sync.Mutex
	// inProgress counts the launches in progress, by the UID of the NodeClaim.
	inProgress map[string]int
}

// New returns a Launcher.
func New(cfg Config) *Launcher {
	if cfg.Meter == nil {
		cfg.Meter = cloudprovider.NoMeter{}
	}
	resumeWindow := cfg.Window
	if cfg.Window == (batch.Window{}) {
		cfg.Window = batch.Window{Idle: 35 * time.Millisecond, Max: time.Second, Items: 1000}
		// NodeClaims that an earlier process has left are reconciled one after the other as this one starts.
		resumeWindow = batch.Window{Idle: 300 * time.Millisecond, Max: 2 * time.Second, Items: 1000}
	}
	l := &Launcher{
		cfg: cfg, ledger: newTokenLedger(cfg.Now), inProgress: map[string]int{},
		batches: ttlcache.New[string, []*batchLaunch](launchTTL, cfg.Now), single: ttlcache.New[string, struct{}](launchTTL, cfg.Now),
		firstLookups:  ttlcache.New[string, time.Time](launchTTL, cfg.Now),
		largeUserData: ttlcache.New[string, struct{}](launchTTL, cfg.Now),
	}
	l.batcher = batch.New(batch.Config[string, *batchMember, cloudprovider.Instance]{
		Name: "create_fleet", Window: cfg.Window, Call: l.launchBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched, AtOnce: maxLaunches,
	})
	l.resumer = batch.New(batch.Config[resumption, *batchMember, cloudprovider.Instance]{
		Name: "create_fleet", Window: resumeWindow, Call: l.resumeBatch, Timeout: callTimeout, Batched: cfg.Meter.Batched,
	})
	return l
}

// maxLaunches limits how many batch launches are in progress at once. EC2 lets five calls of CreateFleet through in a second, so that this
// many are four seconds of calls: NodeClaims that come after them wait together and share a call, where each would wait for a call of its
// own.
const maxLaunches = 20

// callTimeout bounds the work for one batch: annotations, call, retries. Five minutes leave room for throttled retries,
// and the next attempt finds the outcome of a call that was cut off.
const callTimeout = 5 * time.Minute

// Begin records that a launch for a NodeClaim is in progress until done is called.
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

// InProgress reports whether a launch for a NodeClaim is in progress, or the outcome of one is unknown.
func (l *Launcher) InProgress(claimUID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if made, _ := l.batches.Get(claimUID); slices.ContainsFunc(made, (*batchLaunch).unsettled) {
		return true
	}
	return l.inProgress[claimUID] > 0 || l.ledger.outcomeUnknown(claimUID)
}

// Request describes what to launch.
type Request struct {
	Claim *karpv1.NodeClaim
	Class *awsv1.EC2NodeClass
	// Types as the class would launch them.
	Types []*catalog.InstanceType
	// Group is the placement group of the class; zero for none.
	Group placement.Group
	// Kubelet returns the kubelet settings for a type, as JSON. It is nil if the settings of the class apply to all
	// types.
	Kubelet func(instanceType string) ([]byte, error)
}

// kubelet returns spec.kubelet for instances of the type; empty if it is that of the class.
func (o Request) kubelet(instanceType string) (string, error) {
	if o.Kubelet == nil {
		return "", nil
	}
	raw, err := o.Kubelet(instanceType)
	return string(raw), err
}

// ReasonOutcomeUnknown is the reason of a launch that waits for the outcome of an earlier call.
const ReasonOutcomeUnknown = "LaunchOutcomeUnknown"

// errTemplateGone means that a launch template was deleted after it was ensured.
var errTemplateGone = errors.New("launch template is gone")

// errTokenUsed means that EC2 remembers a client token from a call that it has rejected.
var errTokenUsed = errors.New("client token was used by a call that EC2 has refused")

// Adopt returns the instance that was launched for a NodeClaim before, if there is one. The error is a CreateError with
// ReasonOutcomeUnknown while that is unknown.
func (l *Launcher) Adopt(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.Instance, bool, error) {
	uid, mark := string(claim.UID), l.launchAnnotation(claim)
	if j := l.batchOf(claim); j != nil {
		if _, settled, _ := j.outcome(uid); !settled {
			l.settle(ctx, j)
		}
		switch i, settled, err := j.outcome(uid); {
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
	if slot, ok := cloudprovider.ParseBatchSlot(mark); ok {
		return l.lookUpSlot(ctx, claim, slot)
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

// launchAnnotation returns the launch annotation of the NodeClaim. It is empty for a NodeClaim that this process has
// launched alone, even if a stale read still shows a slot.
func (l *Launcher) launchAnnotation(claim *karpv1.NodeClaim) string {
	if _, alone := l.single.Get(string(claim.UID)); alone {
		return ""
	}
	return claim.Annotations[karpv1.AnnotationLaunch]
}

// batchOf returns the last batch launch of the NodeClaim, if this process has made it and not abandoned it: the batch
// of its slot, or the last batch if the NodeClaim was read before it was annotated. A slot of another batch comes from
// another process, and nil is returned.
func (l *Launcher) batchOf(claim *karpv1.NodeClaim) *batchLaunch {
	mark := l.launchAnnotation(claim)
	slot, annotated := cloudprovider.ParseBatchSlot(mark)
	if !annotated && mark != cloudprovider.Unlaunched {
		return nil
	}
	made, _ := l.batches.Get(string(claim.UID))
	for _, j := range slices.Backward(made) {
		if !annotated || slot.Launch == j.id {
			if j.isAbandoned() {
				return nil
			}
			return j
		}
	}
	return nil
}

// recordBatch records a batch launch for one of its NodeClaims.
func (l *Launcher) recordBatch(claimUID string, j *batchLaunch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	earlier, _ := l.batches.Get(claimUID)
	l.batches.Set(claimUID, append(slices.Clone(earlier), j))
}

// Find returns the living instances that were launched for a NodeClaim, whatever its status contains. It makes no call
// that could launch one. The error means that the outcome is not known yet.
func (l *Launcher) Find(ctx context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	uid, over := string(claim.UID), true
	if j := l.batchOf(claim); j != nil {
		over = j.abandon(l.cfg.Now()) // before EC2 is read, which then shows all instances of the calls
		switch i, settled, err := j.outcome(uid); {
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
	slot, ok := cloudprovider.ParseBatchSlot(mark)
	if !ok {
		return l.findSingle(ctx, uid)
	}
	i, found, err := l.lookUpSlot(ctx, claim, slot)
	switch {
	case err != nil:
		return nil, err
	case found:
		return []cloudprovider.Instance{i}, nil
	case !over:
		return nil, outcomeUnknown(nil) // another NodeClaim may repeat the call, which then launches for this one, too
	}
	return nil, nil
}

// findSingle is Find for a NodeClaim without a batch slot.
func (l *Launcher) findSingle(ctx context.Context, claimUID string) ([]cloudprovider.Instance, error) {
	found, err := l.cfg.Instances.ForClaim(ctx, claimUID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && (l.InProgress(claimUID) || l.cfg.Instances.JustBecameLeader()) {
		return nil, outcomeUnknown(nil)
	}
	return slices.DeleteFunc(found, func(i cloudprovider.Instance) bool { return !alive(i) }), nil
}

// IsAlone reports whether a NodeClaim is launched alone: it has no slot of a batch launch, and may have been launched before.
func IsAlone(claim *karpv1.NodeClaim) bool {
	mark := claim.Annotations[karpv1.AnnotationLaunch]
	return mark == "" || cloudprovider.ParseAlone(mark) > 0
}

// Launch launches an instance for the NodeClaim alone. It must follow an Adopt that found none. annotate may be nil; then a later process
// does not know which client tokens are used up. Errors are those of package cloudprovider, or of annotate.
func (l *Launcher) Launch(ctx context.Context, o Request, annotate Annotate) (cloudprovider.Instance, error) {
	launched, err := l.try(ctx, o, annotate)
	if errors.Is(err, errTemplateGone) || errors.Is(err, errTokenUsed) {
		launched, err = l.try(ctx, o, annotate)
	}
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	l.ledger.done(string(o.Claim.UID))
	l.cfg.Instances.RecordLaunch(launched)
	return launched, nil
}

func (l *Launcher) try(ctx context.Context, o Request, annotate Annotate) (cloudprovider.Instance, error) {
	claim, recorded := string(o.Claim.UID), cloudprovider.ParseAlone(o.Claim.Annotations[karpv1.AnnotationLaunch])
	l.ledger.usedUp(claim, recorded)
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
	defer plan.choice.Settle("") // no effect once launchWithToken has settled it
	fleet, err := l.fleet(ctx, o, plan)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	if state.number > recorded && annotate != nil {
		if err := annotate(ctx, cloudprovider.Alone(state.number)); err != nil {
			return cloudprovider.Instance{}, err
		}
	}
	fleet.tags[awsv1.TagNodeClaim], fleet.tags[identity.TagNodeClaimUID] = o.Claim.Name, claim
	fleet.token = token(l.cfg.Identity.ClusterUID, claim, state.number)
	return l.launchWithToken(ctx, o, fleet.call(), plan.choice)
}

// launchWithToken calls EC2 and records the outcome in the ledger.
func (l *Launcher) launchWithToken(ctx context.Context, o Request, in *fleetCall, choice *network.Choice) (cloudprovider.Instance, error) {
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
		// This call launched nothing. The outcome of an earlier call is unchanged.
		l.ledger.rejected(claim)
		return cloudprovider.Instance{}, rejectionError(a)
	}
	if len(a.instances) == 0 {
		l.ledger.noInstance(claim)
		l.logFailures(o, a, "")
		return cloudprovider.Instance{}, failureError(a.failures)
	}
	launched := a.instances[0]
	if choice != nil {
		choice.Settle(launched.SubnetID)
	}
	l.logFailures(o, a, launched.ID)
	l.complete(&launched, o, in)
	return launched, nil
}

// logFailures logs the failures of a response.
func (l *Launcher) logFailures(o Request, a fleetResult, launched string) {
	if len(a.failures) > 0 {
		l.cfg.Log.Info("fleet errors", "claim", o.Claim.Name, "launched", launched, "errors", describe(a.failures))
	}
}

// recordReservationFailure records that EC2 launches nothing into a reservation at the moment.
func (l *Launcher) recordReservationFailure(id, code string) {
	switch {
	case l.cfg.Reservations == nil:
	case code == awserrors.ReservationFull:
		l.cfg.Reservations.Full(id)
	default:
		l.cfg.Reservations.Unavailable(id)
	}
}

// complete adds the facts about an instance that the response leaves out.
func (l *Launcher) complete(i *cloudprovider.Instance, o Request, in *fleetCall) {
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

// requestsEFA reports whether pods of the NodeClaim request EFA interfaces, as a resource or as devices.
func requestsEFA(claim *karpv1.NodeClaim) bool {
	_, requested := claim.Spec.Resources.Requests[awsv1.ResourceEFA]
	return requested || slices.Contains(karpv1.RequestedDRADrivers(claim), awsv1.DRADriverEFA)
}

// sharedTags are the tags that NodeClaims of one class and pool have in common.
func (l *Launcher) sharedTags(o Request) map[string]string {
	return l.cfg.Identity.LaunchTags(o.Class.Name, o.Claim.Labels[karpv1.LabelNodePool], o.Class.Spec.Tags)
}

// EFAs returns the number of EFA interfaces that an instance of the type gets for the NodeClaim.
func EFAs(claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, capacity corev1.ResourceList) int {
	if !requestsEFA(claim) && len(class.Spec.NetworkInterfaces) == 0 {
		return 0
	}
	q := capacity[awsv1.ResourceEFA]
	return int(q.Value())
}
