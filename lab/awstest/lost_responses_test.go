package awstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// faultyTransport is one process's connection to AWS. It loses messages either way, and is cut for good when the
// process dies.
type faultyTransport struct {
	server http.Handler

	mu  sync.Mutex
	rng *rand.Rand
	// reliable lines lose nothing.
	reliable bool
	dead     bool
	// callsUntilDeath is how many more calls of CreateFleet the process lives through; after the last it dies before, or
	// after, the call takes effect.
	callsUntilDeath int
	afterEffect     bool
}

var errMessageLost = errors.New("the message was lost")

// fate is what becomes of a request: whether it arrives, whether its answer does, and what stands in for the answer.
func (l *faultyTransport) fate(action string) (arrives, answered bool, status int, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false, false, 0, ""
	}
	if action == "CreateFleet" && l.callsUntilDeath > 0 {
		if l.callsUntilDeath--; l.callsUntilDeath == 0 {
			l.dead = true
			return l.afterEffect, false, 0, ""
		}
	}
	if l.reliable || action != "CreateFleet" && l.rng.IntN(10) > 0 {
		return true, true, 0, ""
	}
	switch l.rng.IntN(8) {
	case 0:
		return false, false, 0, ""
	case 1:
		return true, false, 0, ""
	case 2:
		return true, true, 500, "InternalError"
	case 3:
		return false, true, 503, "RequestLimitExceeded"
	}
	return true, true, 0, ""
}

func (l *faultyTransport) Do(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(strings.NewReader(string(text)))
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return nil, err
	}
	arrives, answered, status, code := l.fate(form.Get("Action"))
	answer := httptest.NewRecorder()
	if arrives {
		l.server.ServeHTTP(answer, r)
	}
	if !answered {
		return nil, errMessageLost
	}
	if status != 0 {
		answer = httptest.NewRecorder()
		answer.WriteHeader(status)
		_, _ = fmt.Fprintf(
			answer,
			"<Response><Errors><Error><Code>%s</Code><Message>no</Message></Error></Errors><RequestID>1</RequestID></Response>",
			code,
		)
	}
	return answer.Result(), nil
}

// storedClaim is a claim as the API server has it.
type storedClaim struct {
	claim    *karpv1.NodeClaim
	version  int
	provider string
	// gone claims have been deleted, and released by the finalizer.
	deleted, gone bool
}

// simulation is one seed: a few claims, and what befalls those who launch them.
type simulation struct {
	*simulationFixture
	t         *testing.T
	rng       *rand.Rand
	mu        sync.Mutex
	claims    []*storedClaim
	transport *faultyTransport
	launcher  *launch.Launcher
	instances *instance.Instances
}

// simulationFixture is what all seeds share.
type simulationFixture struct {
	*world
	class    *awsv1.EC2NodeClass
	types    []*catalog.InstanceType
	identity identity.Identity
	cfg      awssdk.Config
}

// start replaces the process by a new one, that knows nothing.
func (s *simulation) start() { s.startGathering(shortWindow()) }

func shortWindow() batch.Window {
	return batch.Window{Idle: 200 * time.Microsecond, Max: 5 * time.Millisecond, Items: 100}
}

// startGathering is start, where claims are gathered for this long.
func (s *simulation) startGathering(window batch.Window) {
	s.transport = &faultyTransport{server: s.Sim, rng: rand.New(rand.NewPCG(s.rng.Uint64(), 0)), afterEffect: s.rng.IntN(2) == 0}
	if s.rng.IntN(3) == 0 {
		s.transport.callsUntilDeath = 1 + s.rng.IntN(3)
	}
	cfg := s.cfg
	cfg.HTTPClient = s.transport
	api := ec2.NewFromConfig(cfg)
	s.instances = instance.New(instance.Config{EC2: api, Identity: s.identity, Window: shortWindow(), Now: s.Clock.Now})
	addresses := network.NewAddresses(time.Minute, s.Clock.Now)
	s.launcher = launch.New(launch.Config{
		EC2: api, Identity: s.identity, Templates: launch.NewTemplates(api, s.identity, s.Clock.Now), Instances: s.instances,
		Addresses:            addresses,
		UnavailableOfferings: unavailableofferings.New(s.Clock.Now), Window: window, Now: s.Clock.Now, Log: slog.New(slog.DiscardHandler),
		Cluster: func() bootstrap.Cluster {
			return bootstrap.Cluster{Name: clusterName, Endpoint: endpoint, CABundle: "Y2E=", ServiceCIDR: "10.100.0.0/16", DNS: "10.100.0.10"}
		},
	})
}

// annotate writes on a claim as an API server does: not over what another has written since it was read. Now and then
// it states that it has not, whether it has or not.
func (s *simulation) annotate(e *storedClaim, read int) launch.Annotate {
	return func(_ context.Context, mark string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		trouble := s.rng.IntN(20)
		if e.version != read || e.gone || trouble == 0 || s.transport.dead {
			return errors.New("conflict")
		}
		e.version++
		e.claim = e.claim.DeepCopy()
		e.claim.Annotations = map[string]string{}
		if mark != "" {
			e.claim.Annotations[karpv1.AnnotationLaunch] = mark
		}
		if trouble == 1 {
			return errors.New("the answer was lost")
		}
		return nil
	}
}

// reconcile does for one claim what the reconcilers of launch and termination do.
func (s *simulation) reconcile(e *storedClaim, forgetful bool) {
	s.mu.Lock()
	claim, version, provider, deleted, gone, l, ends := e.claim, e.version, e.provider, e.deleted, e.gone, s.launcher, s.instances
	s.mu.Unlock()
	ctx := context.Background()
	switch {
	case gone:
	case deleted:
		s.finalize(ctx, e, claim, provider)
	case provider == "":
		i, found, err := l.Adopt(ctx, claim)
		order := launch.Request{Claim: claim, Class: s.class, Types: s.types}
		switch {
		case err != nil && l.Resumable(claim, err):
			i, err = l.Resume(ctx, order, s.annotate(e, version))
		case err != nil || found:
		case launch.IsAlone(claim):
			i, err = l.Launch(ctx, order, s.annotate(e, version))
		default:
			i, err = l.LaunchInBatch(ctx, order, s.annotate(e, version))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && !forgetful && !s.transport.dead && ends == s.instances {
			e.provider = i.ProviderID
			e.version++
		}
	}
}

// finalize stops a deleted claim's instance, and lets the claim go once it is gone.
func (s *simulation) finalize(ctx context.Context, e *storedClaim, claim *karpv1.NodeClaim, provider string) {
	over := true
	providers := []string{provider}
	if provider == "" {
		found, err := s.launcher.Find(ctx, claim)
		if err != nil {
			return
		}
		providers = nil
		for _, i := range found {
			providers = append(providers, i.ProviderID)
		}
	}
	for _, p := range providers {
		over = over && errors.Is(s.instances.Terminate(ctx, destroytest.Permit(p)), cloudprovider.ErrNotFound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.gone = e.gone || over
}

// round lets every claim be reconciled at the same time, as a hundred workers do.
func (s *simulation) round(forgetful func() bool) {
	var done sync.WaitGroup
	for _, e := range s.claims {
		lost := forgetful()
		done.Go(func() { s.reconcile(e, lost) })
	}
	done.Wait()
}

// check is the promise: as many instances live as claims have one, each its own.
func (s *simulation) check() {
	s.t.Helper()
	var have, want []string
	for _, i := range s.runningInstances() {
		have = append(have, "aws:///"+i.Zone+"/"+i.ID)
	}
	for _, e := range s.claims {
		if e.deleted != e.gone || e.provider == "" && !e.deleted {
			s.t.Errorf("claim %s, deleted %v and gone %v, has instance %q", e.claim.Name, e.deleted, e.gone, e.provider)
		}
		if !e.deleted {
			want = append(want, e.provider)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		s.t.Errorf("instances %v, claims have %v", have, want)
	}
}

// clear stops all instances, and lets EC2 forget them.
func (s *simulationFixture) clear(t *testing.T) {
	t.Helper()
	var ids []string
	for _, i := range s.runningInstances() {
		ids = append(ids, i.ID)
	}
	if len(ids) > 0 {
		if _, err := ec2.NewFromConfig(s.cfg).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
			t.Fatal(err)
		}
	}
	s.Clock.Advance(2 * time.Hour)
}

// runSeed runs one seed: rounds in which things go wrong, then silent ones.
func (s *simulationFixture) runSeed(t *testing.T, seed uint64) {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	sim := &simulation{simulationFixture: s, t: t, rng: dice}
	for n := range 1 + dice.IntN(6) {
		c := claim(
			fmt.Sprintf("seed-%d-%d", seed, n),
			onDemand,
			in(corev1.LabelTopologyZone, []string{"us-east-1a", "us-east-1b"}[dice.IntN(4)/3]),
		)
		if dice.IntN(8) > 0 {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationLaunch, cloudprovider.Unlaunched)
		}
		sim.claims = append(sim.claims, &storedClaim{claim: c})
	}
	timing := awsim.DefaultTiming()
	timing.Visible, timing.VisibleSpread = time.Duration(dice.IntN(20))*time.Second, time.Duration(1+dice.IntN(60))*time.Second
	s.Sim.SetTiming(timing)
	sim.start()
	for range 2 + dice.IntN(5) {
		sim.round(func() bool { return dice.IntN(6) == 0 })
		if sim.transport.dead || dice.IntN(4) == 0 {
			sim.start()
		}
		if e := sim.claims[dice.IntN(len(sim.claims))]; dice.IntN(6) == 0 && !e.deleted {
			e.deleted = true
			e.version++
		}
		s.Clock.Advance(time.Duration(dice.IntN(40)) * time.Second)
	}
	if sim.transport.dead {
		sim.start()
	}
	sim.transport.reliable, sim.transport.callsUntilDeath = true, 0
	for range 16 {
		sim.round(func() bool { return false })
		s.Clock.Advance(20 * time.Second)
	}
	sim.check()
	s.clear(t)
}

// newSimulationFixture is an account with a node class, and a few types to launch.
func newSimulationFixture(t *testing.T) *simulationFixture {
	t.Helper()
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	all, err := c.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.Config
	cfg.HTTPClient = &faultyTransport{server: w.Sim, reliable: true}
	cfg.Retryer = func() awssdk.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
			o.RateLimiter = ratelimit.None
		})
	}
	s := &simulationFixture{world: w, class: class, identity: w.config("uid-1").Identity, cfg: cfg}
	for _, name := range []string{"m5.large", "m6i.large", "c5.large"} {
		s.types = append(s.types, typeNamed(t, all, name))
	}
	return s
}

// TestLostResponsesLaunchNothingTwice is the promise of a launch against the AWS API simulator, with a thousand seeds:
// messages lost before and after their effect, throttled and broken calls, the SDK's own repetitions, instances that
// show late and one by one, controllers that die at any call or lose their state, claims that are deleted, status
// writes that are lost.
func TestLostResponsesLaunchNothingTwice(t *testing.T) {
	s := newSimulationFixture(t)
	for seed := range uint64(1000) {
		s.runSeed(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Two claims are launched together, and the call is lost. Then one of them is deleted.
func TestClaimDeletedAfterALostResponse(t *testing.T) {
	type scene struct {
		*simulation
		kept, deleted *karpv1.NodeClaim
	}
	begin := func(t *testing.T) *scene {
		t.Helper()
		s := &scene{simulation: &simulation{simulationFixture: newSimulationFixture(t), t: t, rng: rand.New(rand.NewPCG(1, 1))}}
		timing := awsim.DefaultTiming()
		timing.Visible = time.Minute
		s.Sim.SetTiming(timing)
		s.startGathering(batch.Window{Idle: time.Hour, Max: time.Hour, Items: 2}) // however slow the host is
		s.transport.reliable, s.transport.callsUntilDeath, s.transport.afterEffect = true, 1, false
		var launches sync.WaitGroup
		for n, c := range []**karpv1.NodeClaim{&s.kept, &s.deleted} {
			*c = claim(fmt.Sprintf("claim-%d", n), onDemand)
			metav1.SetMetaDataAnnotation(&(*c).ObjectMeta, karpv1.AnnotationLaunch, cloudprovider.Unlaunched)
			launches.Go(func() {
				order := launch.Request{Claim: (*c).DeepCopy(), Class: s.class, Types: s.types}
				_, err := s.launcher.LaunchInBatch(t.Context(), order, func(_ context.Context, mark string) error {
					(*c).Annotations[karpv1.AnnotationLaunch] = mark
					return nil
				})
				if err == nil {
					t.Error("the call was not lost")
				}
			})
		}
		launches.Wait()
		if _, err := s.launcher.Find(t.Context(), s.deleted); err == nil {
			t.Error("it is known at once what has come of the lost call")
		}
		return s
	}
	const long = instance.VisibleWithin + time.Second

	t.Run(
		"the other claim retries late and loses the response, too: the deleted claim is not released before the outcome is known",
		func(t *testing.T) {
			s := begin(t)
			s.transport.dead = false
			s.Clock.Advance(long - 2*time.Second)
			s.transport.callsUntilDeath, s.transport.afterEffect = 1, true // EC2 launches for both
			if _, _, err := s.launcher.Adopt(t.Context(), s.kept); err == nil {
				t.Error("the second call was not lost")
			}
			s.transport.dead = false
			s.Clock.Advance(2 * time.Second)
			if found, err := s.launcher.Find(t.Context(), s.deleted); err == nil && len(found) == 0 {
				t.Error("the deleted claim is believed to have no instance")
			}
			s.Clock.Advance(long)
			if found, err := s.launcher.Find(t.Context(), s.deleted); err != nil || len(found) != 1 {
				t.Errorf("the deleted claim has %d instances, %v", len(found), err)
			}
			if _, found, err := s.launcher.Adopt(t.Context(), s.kept); err != nil || !found {
				t.Errorf("the other claim has none: %v", err)
			}
		},
	)
	t.Run("no retry: the claim is released, and nothing is launched for it later", func(t *testing.T) {
		s := begin(t)
		s.transport.dead = false
		s.Clock.Advance(long)
		if found, err := s.launcher.Find(t.Context(), s.deleted); err != nil || len(found) > 0 {
			t.Errorf("the deleted claim has %d instances, %v", len(found), err)
		}
		if s.launcher.InProgress(string(s.deleted.UID)) {
			t.Error("its launch is believed to be in progress")
		}
		for range 2 {
			_, found, err := s.launcher.Adopt(t.Context(), s.kept)
			if found || len(s.runningInstances()) > 0 {
				t.Errorf("something was launched: %v", err)
			}
			s.Clock.Advance(long)
		}
		if _, found, err := s.launcher.Adopt(t.Context(), s.kept); found || err != nil {
			t.Errorf("the other claim cannot be launched anew: found %v, %v", found, err)
		}
	})
}
