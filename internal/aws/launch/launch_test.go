package launch

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func pricedOrder(price float64) Request {
	return newOrder(instanceType("m5.xlarge", nil, offering("spot", price, "us-east-1a")))
}

// AL2023 nodes need the service CIDR, which EKS alone knows. A launch before EKS has answered launches nothing, and is worth waiting for.
func TestLaunchBeforeTheServiceCIDRIsKnown(t *testing.T) {
	w := newFakeEC2()
	p := w.start(pricedOrder(0.05))
	known := p.cfg.Cluster
	p.cfg.Cluster = func() bootstrap.Cluster {
		cluster := known()
		cluster.ServiceCIDR, cluster.DNS = "", ""
		return cluster
	}
	var notReady *cloudprovider.NodeClassNotReadyError
	if _, err := p.launch(t.Context()); !errors.Is(err, cloudprovider.ErrNotKnownYet) || errors.As(err, &notReady) || len(w.instances) > 0 {
		t.Errorf("error %v, %d instances", err, len(w.instances))
	}
	p.cfg.Cluster = known
	if _, err := p.launch(t.Context()); err != nil || len(w.instances) != 1 {
		t.Errorf("once it is known: error %v, %d instances", err, len(w.instances))
	}
}

// TestOneInstancePerClaim checks the guarantee of this package against everything that can happen to a controller: lost
// messages, rejections, missing capacity, deleted templates, changed parameters, and a kill between any two steps.
func TestOneInstancePerClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newFakeEC2()
		w.visible = time.Duration(rapid.IntRange(0, 60).Draw(t, "visible after seconds")) * time.Second
		w.callOutcomes = rapid.SliceOfN(
			rapid.Map(rapid.IntRange(int(served), int(rejectedWithToken)), func(n int) callOutcome { return callOutcome(n) }),
			0,
			6,
		).Draw(
			t,
			"fates",
		)
		p := w.start(pricedOrder(0.05))
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				p = w.start(p.order) // killed before it wrote anything
			case 1:
				p.order = pricedOrder(rapid.SampledFrom([]float64{0.05, 0.06, 0.07}).Draw(t, "price"))
			case 2:
				w.time = w.time.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			}
			_, _ = p.launch(context.Background()) // only its effects matter
			if len(w.instances) > 1 {
				t.Fatalf("the claim has %d instances", len(w.instances))
			}
		}
		w.callOutcomes = nil
		var got cloudprovider.Instance
		var err error
		for range 40 { // each used token may cost two minutes
			if got, err = p.launch(context.Background()); err == nil {
				break
			}
			w.time = w.time.Add(30 * time.Second)
		}
		switch {
		case err != nil:
			t.Fatalf("no instance after twenty minutes without failures: %v", err)
		case len(w.instances) != 1:
			t.Fatalf("the claim has %d instances", len(w.instances))
		case got.ID != *w.instances[0].InstanceId:
			t.Fatalf("the launch returned %s, but the claim has %s", got.ID, *w.instances[0].InstanceId)
		}
	})
}

func TestLostResponse(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(w *fakeEC2, p *process) *process
	}{
		{"tried again at once", func(_ *fakeEC2, p *process) *process { return p }},
		{"tried again with other prices", func(_ *fakeEC2, p *process) *process { p.order = pricedOrder(0.07); return p }},
		{"tried again by a new process", func(w *fakeEC2, p *process) *process { return w.start(p.order) }},
		{"tried again when visible", func(w *fakeEC2, p *process) *process {
			w.time = w.time.Add(w.visible)
			return w.start(pricedOrder(0.07))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newFakeEC2()
			w.callOutcomes = []callOutcome{responseLost}
			p := w.start(pricedOrder(0.05))
			if _, err := p.launch(t.Context()); err == nil {
				t.Fatal("the lost answer was read")
			}
			got, err := tc.next(w, p).launch(t.Context())
			if err != nil || got.ID != "i-0" || len(w.instances) != 1 {
				t.Errorf("got %q of %d instances, %v", got.ID, len(w.instances), err)
			}
		})
	}
}

// A killed process leaves nothing but EC2's state. If prices have changed since, its successor cannot repeat the call,
// and must not make another before it knows the outcome.
func TestUnknownOutcomeBlocksTheNextCall(t *testing.T) {
	w := newFakeEC2()
	w.visible = time.Minute
	w.callOutcomes = []callOutcome{responseLost}
	_, _ = w.start(pricedOrder(0.05)).launch(t.Context())
	p := w.start(pricedOrder(0.07))
	for range 2 {
		_, err := p.launch(t.Context())
		var create *cloudprovider.CreateError
		if !errors.As(err, &create) || create.Reason != ReasonOutcomeUnknown {
			t.Fatalf("want reason %s, got %v", ReasonOutcomeUnknown, err)
		}
	}
	if w.calls != 2 {
		t.Errorf("EC2 was called %d times, want no call while the outcome is unknown", w.calls)
	}
	w.time = w.time.Add(w.visible)
	if got, err := p.launch(t.Context()); err != nil || got.ID != "i-0" {
		t.Errorf("got %q, %v", got.ID, err)
	}
}

func TestUnknownOutcomeIsResolvedAfterTheVisibilityDelay(t *testing.T) {
	w := newFakeEC2()
	w.callOutcomes = []callOutcome{noCapacity}
	_, _ = w.start(pricedOrder(0.05)).launch(t.Context())
	p := w.start(pricedOrder(0.07))
	if _, err := p.launch(t.Context()); err == nil {
		t.Fatal("a token with other parameters was accepted")
	}
	w.time = w.time.Add(instance.VisibleWithin)
	if _, err := p.launch(t.Context()); err != nil || len(w.instances) != 1 {
		t.Errorf("%d instances, %v", len(w.instances), err)
	}
}

func TestDeletedTemplateIsCreatedAgain(t *testing.T) {
	w := newFakeEC2()
	w.callOutcomes = []callOutcome{templateGone}
	if _, err := w.start(pricedOrder(0.05)).launch(t.Context()); err != nil || len(w.instances) != 1 {
		t.Fatalf("%d instances, %v", len(w.instances), err)
	}
	w = newFakeEC2()
	w.callOutcomes = []callOutcome{templateGone, templateGone}
	_, err := w.start(pricedOrder(0.05)).launch(t.Context())
	var create *cloudprovider.CreateError
	if !errors.As(err, &create) || len(w.instances) != 0 {
		t.Errorf("deleted twice: %d instances, %v", len(w.instances), err)
	}
}

func TestInsufficientCapacityMarksTheOffering(t *testing.T) {
	w := newFakeEC2()
	w.callOutcomes = []callOutcome{noCapacity}
	p := w.start(pricedOrder(0.05))
	_, err := p.launch(t.Context())
	var scarce *cloudprovider.InsufficientCapacityError
	if !errors.As(err, &scarce) {
		t.Fatalf("want insufficient capacity, got %v", err)
	}
	if p.cfg.UnavailableOfferings.Marks() != 1 {
		t.Error("the offering was not marked")
	}
}

func TestNewInstanceFields(t *testing.T) {
	w := newFakeEC2()
	p := w.start(pricedOrder(0.05))
	got, err := p.launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.ProviderID != "aws:///us-east-1a/i-0" || got.ZoneID != "use1-az1" || got.ImageID != "ami-1" || got.SubnetID != "subnet-a" ||
		got.CapacityType != "spot" || got.Owner != cloudprovider.Ours || got.NodeClaim != "general-x7k2p" || !got.LaunchedAt.Equal(w.time) {
		t.Errorf("%+v", got)
	}
	for key, want := range map[string]string{
		"dovetail.sh/cluster-uid": "uid-blue", "dovetail.sh/nodeclaim-uid": "claim-uid", "karpenter.sh/nodeclaim": "general-x7k2p",
		"karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "default", "eks:eks-cluster-name": "prod",
		"kubernetes.io/cluster/prod": "owned",
	} {
		if got.Tags[key] != want {
			t.Errorf("tag %s is %q, want %q", key, got.Tags[key], want)
		}
	}
	// EC2 does not show it yet, and still it is not treated as terminated.
	again, err := p.launch(t.Context())
	if err != nil || again.ID != got.ID || w.calls != 1 {
		t.Errorf("launched again: %q with %d calls, %v", again.ID, w.calls, err)
	}
}
