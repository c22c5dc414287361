package awstest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// launchMetrics notes what is counted.
type launchMetrics struct {
	cloudprovider.NoMeter
	mu      sync.Mutex
	failed  []string // zone/zoneID/capacityType/reason
	batched []string // batcher:size
}

func (m *launchMetrics) LaunchFailed(zone, zoneID, capacityType, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = append(m.failed, strings.Join([]string{zone, zoneID, capacityType, reason}, "/"))
}

func (m *launchMetrics) Batched(batcher string, size int, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batched = append(m.batched, fmt.Sprintf("%s:%d", batcher, size))
}

// launchFixture is a world with a ready EC2NodeClass, and a launcher with batch windows that close when full.
type launchFixture struct {
	*world
	*cloud
	class *awsv1.EC2NodeClass
	meter *launchMetrics
}

// newLaunchFixture returns a shop; its windows close with so many requests.
func newLaunchFixture(t *testing.T, items int, change ...func(*awsv1.EC2NodeClass)) *launchFixture {
	t.Helper()
	s := &launchFixture{world: newWorld(t), class: nodeClass("default"), meter: &launchMetrics{}}
	cfg := s.config("uid-1")
	cfg.Meter = s.meter
	cfg.Window = batch.Window{Idle: 3 * time.Second, Max: 30 * time.Second, Items: items}
	s.cloud = s.start(cfg)
	for _, f := range change {
		f(s.class)
	}
	resolve(t, s.cloud, s.class)
	return s
}

// launchResult is what a launch comes to.
type launchResult struct {
	cloudprovider.Launched
	err error
}

// launchBatch launches claims at the same time, each as the controller does, and returns what comes of it in their
// order.
func (s *launchFixture) launchBatch(claims ...*karpv1.NodeClaim) []launchResult {
	out := make([]launchResult, len(claims))
	var done sync.WaitGroup
	for n, c := range claims {
		if c.Annotations[karpv1.AnnotationLaunch] == "" {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationLaunch, cloudprovider.Unlaunched)
		}
		annotated := c.DeepCopy()
		done.Go(func() {
			out[n].Launched, out[n].err = s.LaunchInBatch(s.t.Context(), c, s.class, func(_ context.Context, mark string) error {
				metav1.SetMetaDataAnnotation(&annotated.ObjectMeta, karpv1.AnnotationLaunch, mark)
				return nil
			})
			c.Annotations = annotated.Annotations
		})
	}
	done.Wait()
	return out
}

// sent are the parameters of the calls of an action so far.
func (w *world) sent(action string) (all []url.Values) {
	for _, c := range w.Sim.Calls() {
		if c.Action == action {
			all = append(all, c.Parameters)
		}
	}
	return all
}

// sameRequirements are n claims that request the same: an m5.large on demand in zone a.
func sameRequirements(n int) (all []*karpv1.NodeClaim) {
	for i := range n {
		all = append(
			all,
			claim(
				fmt.Sprintf("general-%d", i),
				onDemand,
				in(corev1.LabelInstanceTypeStable, "m5.large"),
				in(corev1.LabelTopologyZone, "us-east-1a"),
			),
		)
	}
	return all
}

func withoutCapacity(err error) bool {
	var capacity *cloudprovider.InsufficientCapacityError
	return errors.As(err, &capacity)
}

func reasonOf(err error) string {
	var create *cloudprovider.CreateError
	if !errors.As(err, &create) {
		return ""
	}
	return create.Reason
}

func TestBatchLaunch(t *testing.T) {
	t.Run("five claims that ask for the same are launched by one call, and each gets an instance of its own", func(t *testing.T) {
		s := newLaunchFixture(t, 5)
		claims := sameRequirements(5)
		ids := map[string]bool{}
		for n, b := range s.launchBatch(claims...) {
			ids[b.ProviderID] = true
			if slot, ok := cloudprovider.ParseBatchSlot(claims[n].Annotations[karpv1.AnnotationLaunch]); b.err != nil || !ok ||
				slot.Of != 5 {
				t.Errorf("%s: %v, annotation %v", claims[n].Name, b.err, claims[n].Annotations)
			}
		}
		calls := s.sent("CreateFleet")
		if len(ids) != 5 || len(s.runningInstances()) != 5 || len(calls) != 1 ||
			calls[0].Get("TargetCapacitySpecification.TotalTargetCapacity") != "5" {
			t.Errorf("%d different instances of %d, calls %v", len(ids), len(s.runningInstances()), calls)
		}
		if !slices.Contains(s.meter.batched, "create_fleet:5") {
			t.Errorf("measured %v", s.meter.batched)
		}
		for n, again := range s.launchBatch(claims...) {
			if again.err != nil || !ids[again.ProviderID] {
				t.Errorf("on the second launch, %s has %s, %v", claims[n].Name, again.ProviderID, again.err)
			}
		}
		s.advancePastDelays()
		next := s.start(s.config("uid-1"))
		for _, c := range claims {
			adopted, err := next.Launch(t.Context(), c, s.class)
			if err != nil || !ids[adopted.ProviderID] {
				t.Errorf("a process that starts anew: %s has %s, %v", c.Name, adopted.ProviderID, err)
			}
			delete(ids, adopted.ProviderID)
		}
		if len(s.runningInstances()) != 5 {
			t.Errorf("%d instances", len(s.runningInstances()))
		}
	})
	t.Run("claims that ask for something else get a call of their own", func(t *testing.T) {
		s := newLaunchFixture(t, 100)
		claims := sameRequirements(6)
		for n, change := range []func(*karpv1.NodeClaim){
			func(c *karpv1.NodeClaim) { c.Spec.Requirements[2] = in(corev1.LabelTopologyZone, "us-east-1b") },
			func(c *karpv1.NodeClaim) { c.Labels = map[string]string{karpv1.LabelNodePool: "other"} },
			func(c *karpv1.NodeClaim) { c.Spec.Requirements[0] = in(karpv1.LabelCapacityType, "spot") },
			func(c *karpv1.NodeClaim) {
				c.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
			},
		} {
			change(claims[n])
		}
		for n, b := range s.launchBatch(claims...) {
			if b.err != nil {
				t.Errorf("%s: %v", claims[n].Name, b.err)
			}
		}
		if n := s.called("CreateFleet"); n != 5 || len(s.runningInstances()) != 6 {
			t.Errorf("%d calls, %d instances", n, len(s.runningInstances()))
		}
	})
	t.Run("two instances for three claims: the third gets the reason, and the failure counts once", func(t *testing.T) {
		s := newLaunchFixture(t, 3)
		s.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: "us-east-1a", Lifecycle: "on-demand"}, 2)
		got, failed := 0, 0
		for _, b := range s.launchBatch(sameRequirements(3)...) {
			switch {
			case b.err == nil:
				got++
			case withoutCapacity(b.err) && strings.Contains(b.err.Error(), "InsufficientInstanceCapacity"):
				failed++
			}
		}
		if got != 2 || failed != 1 || len(s.runningInstances()) != 2 || len(s.meter.failed) != 1 {
			t.Errorf("%d have an instance, %d none; %d instances; counted %v", got, failed, len(s.runningInstances()), s.meter.failed)
		}
	})
	t.Run("a call that EC2 refuses is an error for all, and the next attempt is made together again", func(t *testing.T) {
		s := newLaunchFixture(t, 3)
		s.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "CreateFleet",
				Error:   protocol.Errorf("UnauthorizedOperation", "You are not authorized to perform this operation.").WithStatus(403),
			},
		)
		claims := sameRequirements(3)
		for _, b := range s.launchBatch(claims...) {
			if reasonOf(b.err) != "Unauthorized" {
				t.Errorf("want Unauthorized, got %v", b.err)
			}
		}
		for _, b := range s.launchBatch(claims...) {
			if b.err != nil {
				t.Error(b.err)
			}
		}
		if n := s.called("CreateFleet"); n != 2 || len(s.runningInstances()) != 3 {
			t.Errorf("%d calls, %d instances", n, len(s.runningInstances()))
		}
	})
	t.Run("each claim requests one instance, whatever else is in its batch", func(t *testing.T) {
		s := newLaunchFixture(t, 1)
		if b := s.launchBatch(sameRequirements(1)...)[0]; b.err != nil {
			t.Fatal(b.err)
		}
		if got := s.sent("CreateFleet")[0].Get("TargetCapacitySpecification.TotalTargetCapacity"); got != "1" ||
			len(s.runningInstances()) != 1 {
			t.Errorf("requested %s, %d instances", got, len(s.runningInstances()))
		}
	})
}

func TestBatchedReadsAndTerminations(t *testing.T) {
	// two launches two instances, and a process that knows neither gathers requests by two.
	two := func(t *testing.T) (*launchFixture, *cloud, []string) {
		s := newLaunchFixture(t, 2)
		var ids []string
		for _, b := range s.launchBatch(sameRequirements(2)...) {
			ids = append(ids, b.ProviderID)
		}
		s.advancePastDelays()
		cfg := s.config("uid-1")
		cfg.Window = batch.Window{Idle: 3 * time.Second, Max: 30 * time.Second, Items: 2}
		next := s.start(cfg)
		s.Clock.Advance(instance.VisibleWithin)
		return s, next, ids
	}
	both := func(do func(n int)) {
		var done sync.WaitGroup
		for n := range 2 {
			done.Go(func() { do(n) })
		}
		done.Wait()
	}
	t.Run("a request for other than one instance is rejected before any call", func(t *testing.T) {
		s, c, ids := two(t)
		before := len(s.Sim.Calls())
		for _, id := range []string{"", "aws:///us-east-1a/", ids[0] + "," + ids[1] + "/"} {
			if _, err := c.Get(t.Context(), id); err == nil {
				t.Errorf("%q was read", id)
			}
			if err := c.Terminate(t.Context(), destroytest.Permit(id)); err == nil {
				t.Errorf("%q was ended", id)
			}
		}
		if n := len(s.Sim.Calls()) - before; n != 0 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("one instance that two ask for", func(t *testing.T) {
		s, c, ids := two(t)
		before := s.called("DescribeInstances")
		both(func(int) {
			if i, err := c.Get(t.Context(), ids[0]); err != nil || i.ProviderID != ids[0] {
				t.Errorf("%s, %v", i.ProviderID, err)
			}
		})
		if n := s.called("DescribeInstances") - before; n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("an instance missing from the batched response is described alone", func(t *testing.T) {
		s, c, ids := two(t)
		ids[1] = "aws:///us-east-1a/i-0123456789abcdef0"
		before := s.called("DescribeInstances")
		both(func(n int) {
			i, err := c.Get(t.Context(), ids[n])
			if n == 0 && (err != nil || i.ProviderID != ids[0]) || n == 1 && !errors.Is(err, cloudprovider.ErrNotFound) {
				t.Errorf("%s: %s, %v", ids[n], i.ProviderID, err)
			}
		})
		if n := s.called("DescribeInstances") - before; n != 2 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("after a rejected batched call, each instance is described alone", func(t *testing.T) {
		s, c, ids := two(t)
		before := s.called("DescribeInstances")
		s.Sim.Inject(awsim.Fault{Service: "ec2", Action: "DescribeInstances", Error: protocol.Errorf("InvalidParameterValue", "no")})
		both(func(n int) {
			if i, err := c.Get(t.Context(), ids[n]); err != nil || i.ProviderID != ids[n] {
				t.Errorf("%s: %s, %v", ids[n], i.ProviderID, err)
			}
		})
		if n := s.called("DescribeInstances") - before; n != 3 {
			t.Errorf("%d calls", n)
		}
		t.Run("but not after throttling", func(t *testing.T) {
			before := s.called("DescribeInstances")
			s.Sim.Inject(
				awsim.Fault{Service: "ec2", Action: "DescribeInstances", Error: protocol.Errorf("RequestLimitExceeded", "no").WithStatus(503)},
			)
			both(func(n int) {
				if _, err := c.Get(t.Context(), ids[n]); err == nil {
					t.Error("the throttling is not an error")
				}
			})
			if n := s.called("DescribeInstances") - before; n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	})
	t.Run("two are ended by one call", func(t *testing.T) {
		s, c, ids := two(t)
		both(func(n int) {
			if err := c.Terminate(t.Context(), destroytest.Permit(ids[n])); err != nil {
				t.Error(err)
			}
		})
		if n := s.called("TerminateInstances"); n != 1 || len(s.runningInstances()) != 0 {
			t.Errorf("%d calls, %d instances", n, len(s.runningInstances()))
		}
	})
}
