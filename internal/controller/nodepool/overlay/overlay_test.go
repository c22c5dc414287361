package overlay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	terms "github.com/dovetail-k8s/dovetail/internal/engine/overlay"
)

// cloud sells one type to every class but those that it fails for.
type cloud struct {
	types []*catalog.InstanceType
	fails map[string]error
}

func (c *cloud) InstanceTypes(_ context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return c.types, c.fails[class.Name]
}

func newCloud() *cloud {
	return &cloud{types: []*catalog.InstanceType{engine.Type("m.large", 10, "cpu", "4")}, fails: map[string]error{}}
}

func priced(name, price string) *v1alpha1.NodeOverlay {
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.Price = &price
	return o
}

type fixture struct {
	*controllertest.Fixture
	*Reconciler
	cloud    *cloud
	overlays *cluster.Overlays
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	f := controllertest.New(t, objects...)
	w := &fixture{Fixture: f, cloud: newCloud(), overlays: &cluster.Overlays{}}
	w.Reconciler = &Reconciler{
		Client: f.API, Types: w.cloud, Planning: w.overlays, Terms: terms.Terms{Labels: engine.World(nil).Labels}, Log: f.Log, Now: f.Now,
	}
	return w
}

// price returns what the planning of a pool takes m.large on demand for; negative while the pool may not be planned.
func (w *fixture) price(pool string) float64 {
	p := controllertest.Pool(pool)
	w.Get(p)
	types, judged := w.overlays.Apply(p, w.cloud.types)
	if !judged {
		return -1
	}
	return types[0].Offerings[0].Price
}

// verdict is the status of an overlay.
func (w *fixture) verdict(name string) string {
	o := priced(name, "")
	w.Get(o)
	c, _ := condition.Get(o, v1alpha1.ConditionValidationSucceeded)
	ready, _ := condition.Get(o, condition.Ready)
	return string(c.Status) + " " + c.Reason + ", Ready " + string(ready.Status)
}

func TestVerdictsAreWrittenAndHold(t *testing.T) {
	broken := priced("broken", "1")
	broken.Spec.Requirements = []v1alpha1.Requirement{{Key: karpv1.LabelRegistered, Operator: corev1.NodeSelectorOpExists}}
	w := newFixture(t, controllertest.Class(), controllertest.Pool("general"), priced("a", "1"), priced("b", "2"), broken)
	if got := w.price("general"); got != -1 {
		t.Errorf("before the first judgement the pool is planned at %g", got)
	}
	if result := w.Fixture.Reconcile(w.Reconciler, "all"); result.RequeueAfter != reevaluateInterval {
		t.Errorf("requeued after %v, want %v", result.RequeueAfter, reevaluateInterval)
	}
	for name, want := range map[string]string{
		"a": "False Conflict, Ready False", "b": "True ValidationSucceeded, Ready True", "broken": "False RuntimeValidation, Ready False",
	} {
		if got := w.verdict(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := w.price("general"); got != 2 {
		t.Errorf("price %g, want that of b", got)
	}
	w.Do(w.API.Delete(t.Context(), priced("b", "2")))
	w.Fixture.Reconcile(w.Reconciler, "all")
	if got := w.verdict("a"); got != "True ValidationSucceeded, Ready True" || w.price("general") != 1 {
		t.Errorf("with b gone: a is %s, the price %g", got, w.price("general"))
	}
}

// A pool that cannot be evaluated is not planned; the others are. Only what may pass by itself is an error.
func TestPoolsThatCannotBeJudged(t *testing.T) {
	other := func(name string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = name }
	}
	w := newFixture(t, controllertest.Class(), controllertest.Pool("general"), priced("a", "1"),
		controllertest.Class(func(c *awsv1.EC2NodeClass) { c.Name = "failing" }), controllertest.Pool("failing", other("failing")),
		controllertest.Class(func(c *awsv1.EC2NodeClass) {
			c.Name = "unready"
			condition.SetFalse(c, c.ConditionTypes().Dependents[0], condition.Because("None", ""), controllertest.Start)
		}), controllertest.Pool("unready", other("unready")),
		controllertest.Pool("classless", other("none")))
	fault := errors.New("throttled")
	w.cloud.fails["failing"] = fault
	if _, err := w.Try(w.Reconciler, "all"); !errors.Is(err, fault) || !strings.Contains(err.Error(), `"failing"`) {
		t.Errorf("error %v, want one that names the pool", err)
	}
	for pool, want := range map[string]float64{"general": 1, "failing": -1, "unready": -1, "classless": -1} {
		if got := w.price(pool); got != want {
			t.Errorf("%s: price %g, want %g", pool, got, want)
		}
	}
	if got := w.verdict("a"); got != "True ValidationSucceeded, Ready True" {
		t.Errorf("a: %s", got)
	}
	delete(w.cloud.fails, "failing")
	w.Fixture.Reconcile(w.Reconciler, "all")
	if got := w.price("failing"); got != 1 {
		t.Errorf("once it can be evaluated: price %g", got)
	}
}

// When an overlay changes while it is judged, what was found out is not put in force.
func TestOverlayChangesMeanwhile(t *testing.T) {
	w := newFixture(t, controllertest.Class(), controllertest.Pool("general"), priced("a", "1"))
	lost := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	once := true
	w.Client = interceptor.NewClient(w.API, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			if once {
				once = false
				return lost
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	if _, err := w.Try(w.Reconciler, "all"); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want the conflict", err)
	}
	if got := w.price("general"); got != -1 {
		t.Errorf("the pool is planned at %g", got)
	}
	w.Fixture.Reconcile(w.Reconciler, "all")
	if got := w.price("general"); got != 1 {
		t.Errorf("price %g, want 1", got)
	}
}

// Nothing is written when nothing has changed: else each write would trigger the next.
func TestQuiet(t *testing.T) {
	w := newFixture(t, controllertest.Class(), controllertest.Pool("general"), priced("a", "1"))
	w.Fixture.Reconcile(w.Reconciler, "all")
	before := priced("a", "1")
	w.Get(before)
	w.Clock = w.Clock.Add(time.Hour)
	w.Fixture.Reconcile(w.Reconciler, "all")
	after := priced("a", "1")
	if w.Get(after); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("written again: %+v", after.Status)
	}
}
