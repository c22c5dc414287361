package adoption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// ec2 is a fleet with instances that are ours once they are adopted.
type ec2 struct {
	instances []cloudprovider.Instance
	adopted   []string
	err       error
	// refused are errors by instance.
	refused map[string]error
}

func (e *ec2) List(context.Context) ([]cloudprovider.Instance, error) {
	return slices.Clone(e.instances), nil
}

func (e *ec2) Adopt(_ context.Context, i cloudprovider.Instance) error {
	if err := errors.Join(e.refused[i.ID], e.err); err != nil {
		return err
	}
	e.adopted = append(e.adopted, i.ID)
	for n := range e.instances {
		if e.instances[n].ID == i.ID {
			e.instances[n].Owner = cloudprovider.Ours
		}
	}
	return nil
}

func instance(id string, owner cloudprovider.Ownership, uid string) cloudprovider.Instance {
	return cloudprovider.Instance{
		ID:         id,
		Owner:      owner,
		State:      cloudprovider.Running,
		LaunchedAt: controllertest.Start.Add(-time.Hour),
		Tags:       map[string]string{awsv1.TagClusterUID: uid},
	}
}

func loop(t *testing.T, fleet *ec2, objects ...client.Object) (*Loop, *controllertest.Fixture) {
	f := controllertest.New(t, objects...)
	return &Loop{Client: f.API, Cloud: fleet, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}, f
}

func runPass(t *testing.T, l *Loop) {
	t.Helper()
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func shared(f *controllertest.Fixture, name string) string {
	pool := controllertest.Pool(name)
	f.Get(pool)
	c, ok := condition.Get(pool, karpv1.ConditionClusterNameShared)
	if !ok {
		return ""
	}
	return string(c.Status) + " " + c.Message
}

func TestSharedClusterNameIsReported(t *testing.T) {
	fleet := &ec2{
		instances: []cloudprovider.Instance{
			instance("i-1", cloudprovider.Ours, "uid-blue"),
			instance("i-2", cloudprovider.Foreign, "uid-green"),
			instance("i-3", cloudprovider.Foreign, "uid-green"),
		},
	}
	elses := controllertest.Pool("elses", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Kind = "Other" })
	l, f := loop(t, fleet, controllertest.Pool("general"), controllertest.Pool("spot"), elses)
	runPass(t, l)
	said := f.RecordedEvents()
	if len(said) != 2 {
		t.Errorf("said %q, want an event on each of our two pools", said)
	}
	for _, s := range said {
		if !strings.HasPrefix(s, "Warning ClusterNameShared") || !strings.Contains(s, "uid-green") {
			t.Errorf("said %q", s)
		}
	}
	for _, pool := range []string{"general", "spot"} {
		if got := shared(f, pool); !strings.HasPrefix(got, "True ") || !strings.Contains(got, "uid-green") {
			t.Errorf("pool %s: ClusterNameShared is %q", pool, got)
		}
	}
	if got := shared(f, "elses"); got != "" {
		t.Errorf("a pool of another provider says %q", got)
	}
	if got := testutil.ToFloat64(l.Metrics.ForeignInstances.WithLabelValues("uid-green")); got != 2 {
		t.Errorf("dovetail_foreign_instances{cluster_uid=uid-green} is %v", got)
	}

	for _, step := range []struct {
		after time.Duration
		said  int
	}{{4 * time.Minute, 0}, {time.Minute, 2}, {time.Minute, 0}} {
		f.Clock = f.Clock.Add(step.after)
		runPass(t, l)
		if said := f.RecordedEvents(); len(said) != step.said {
			t.Errorf("at %s: said %q, want %d events", f.Clock.Sub(controllertest.Start), said, step.said)
		}
	}

	// The other cluster is renamed or gone.
	fleet.instances = fleet.instances[:1]
	runPass(t, l)
	if got := shared(f, "general"); got != "" {
		t.Errorf("when the clash is over, ClusterNameShared is %q", got)
	}
	if got := testutil.CollectAndCount(l.Metrics.ForeignInstances); got != 0 {
		t.Errorf("%d clusters are still counted", got)
	}
}

func TestAdoption(t *testing.T) {
	fleet := &ec2{instances: []cloudprovider.Instance{
		instance(
			"i-1",
			cloudprovider.Ours,
			"uid-blue",
		), instance("i-2", cloudprovider.Foreign, "uid-green"), instance("i-3", cloudprovider.Unknown, ""), instance("i-4",
			cloudprovider.Adoptable, ""), instance("i-5", cloudprovider.Adoptable, ""),
	}}
	l, _ := loop(t, fleet)
	runPass(t, l)
	runPass(t, l)
	if diff := cmp.Diff([]string{"i-4", "i-5"}, fleet.adopted); diff != "" {
		t.Errorf("adopted (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(l.Metrics.Adopted); got != 2 {
		t.Errorf("dovetail_adopted_instances_total is %v", got)
	}
}

// That something cannot be adopted keeps nobody from being informed of a clash.
func TestFailedAdoptionHidesNothing(t *testing.T) {
	fleet := &ec2{
		instances: []cloudprovider.Instance{
			instance("i-1", cloudprovider.Adoptable, ""),
			instance("i-2", cloudprovider.Foreign, "uid-green"),
		},
		err: fmt.Errorf("UnauthorizedOperation"),
	}
	l, f := loop(t, fleet, controllertest.Pool("general"))
	if _, err := l.pass(t.Context()); err == nil {
		t.Error("no error")
	}
	if got := shared(f, "general"); !strings.HasPrefix(got, "True ") {
		t.Errorf("ClusterNameShared is %q", got)
	}
}

func TestUnknownInstancesAreReported(t *testing.T) {
	joining := instance("i-9", cloudprovider.Unknown, "")
	joining.LaunchedAt = controllertest.Start.Add(-time.Minute)
	ending := instance("i-8", cloudprovider.Unknown, "")
	ending.State = cloudprovider.ShuttingDown
	fleet := &ec2{instances: []cloudprovider.Instance{joining, ending}}
	for n := range 7 {
		fleet.instances = append(fleet.instances, instance(fmt.Sprintf("i-%d", n), cloudprovider.Unknown, ""))
	}
	l, f := loop(t, fleet, controllertest.Pool("general"))
	runPass(t, l)
	said := f.RecordedEvents()
	if len(said) != 1 || !strings.HasPrefix(said[0], "Warning UnknownInstances") ||
		!strings.Contains(said[0], "i-0, i-1, i-2, i-3, i-4 and 2 more") || !strings.Contains(said[0], "dovetail adopt i-0 i-1") {
		t.Errorf("said %q", said)
	}
	if got := testutil.ToFloat64(l.Metrics.UnknownInstances); got != 7 {
		t.Errorf("dovetail_unknown_instances is %v", got)
	}
	if len(fleet.adopted) > 0 {
		t.Errorf("adopted %v", fleet.adopted)
	}
}

// The rate of calls of EC2 does not grow with the fleet, and a cluster of the same name is found within a minute.
func TestPauseBetweenPasses(t *testing.T) {
	for seen, want := range map[int]time.Duration{
		0: 3 * time.Second, 99: 3 * time.Second, 1000: 33 * time.Second, 5000: 45 * time.Second, 1_000_000: 45 * time.Second,
	} {
		if got := pause(seen); got != want {
			t.Errorf("%d instances: %v, want %v", seen, got, want)
		}
	}
}
