package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	sampleApp = "sample"
	// shadowPods is how many pods run at first, shadowMore are added while nobody acts.
	shadowPods, shadowMore = 24, 40
	// unchangedPasses is how many passes of the shadow over pods without a node must not count them again.
	unchangedPasses = 2
)

// shadowTotals and shadowReport are what the scenario reads of `dovetail shadow report -o json`.
type shadowTotals struct {
	Launches, Removed, Evictions, Nodes               int
	LaunchedHourlyCost, RemovedHourlyCost, HourlyCost float64
}

type shadowReport struct {
	Since          time.Time
	Passes         int
	Shadow, Acting shadowTotals
	RemovedByBoth  int
	RefusedWrites  int
}

// shadowMode runs a controller in shadow mode beside the one that acts.
func shadowMode() Scenario {
	s := &shadowRun{}
	return Scenario{
		Name:    "shadow",
		Summary: "a controller in shadow mode, with rights to read only, beside one that acts: it reports what both do, and changes nothing",
		Long:    true,
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{Name: "start the shadow, with rights to read and to write its report", Timeout: 30 * time.Second, Run: s.start},
			{
				Name:    fmt.Sprintf("create %d pods, kill the shadow during the launch: it reports the launches of both", shadowPods),
				Timeout: time.Minute, PauseKills: true, Run: s.scaleUp,
			},
			{
				Name: fmt.Sprintf("stop the acting controller, create %d pods, kill the shadow: launches that nobody makes count once",
					shadowMore),
				Timeout: 90 * time.Second, PauseKills: true, Run: s.nobodyActs,
			},
			{
				Name:    "start the acting controller again: its launches count beside the shadow's",
				Timeout: time.Minute, PauseKills: true, Run: s.actAgain,
			},
			{Name: "scale to 4 pods: both remove nodes", Timeout: 2 * time.Minute, PauseKills: true, Run: s.scaleDown},
			{Name: "the shadow has written nothing but its report", Timeout: 10 * time.Second, PauseKills: true, Run: s.wroteNothing},
		},
	}
}

// shadowRun is one run of the scenario.
type shadowRun struct {
	shadow *world.Shadow
	last   shadowReport
}

func (s *shadowRun) start(ctx context.Context, w *World) (err error) {
	if s.shadow, err = w.NewShadow(ctx); err != nil {
		return err
	}
	if err := s.shadow.Start(ctx); err != nil {
		return err
	}
	return s.await(ctx, func(r shadowReport) error { return nil })
}

// await waits for a report that is as expected.
func (s *shadowRun) await(ctx context.Context, expected func(shadowReport) error) error {
	var unlike error // the last report that was not
	return world.Until(ctx, func() error {
		var r shadowReport
		if err := s.shadow.Report(ctx, &r); err != nil {
			return errors.Join(unlike, err)
		}
		if err := expected(r); err != nil {
			unlike = fmt.Errorf("%w; the report is %+v", err, r)
			return unlike
		}
		s.last = r
		return nil
	})
}

// scaleUp has the acting controller launch nodes. The shadow is killed when the first launch has taken effect.
func (s *shadowRun) scaleUp(ctx context.Context, w *World) error {
	var once sync.Once
	killed := make(chan error, 1)
	launch := controllerCall("CreateFleet")
	w.Intercept(func(c awsim.Call) {
		if launch(c) {
			once.Do(func() { killed <- s.shadow.Kill() })
		}
	})
	defer w.Intercept(nil)
	if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": strconv.Itoa(shadowPods)}); err != nil {
		return err
	}
	select {
	case err := <-killed:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.Intercept(nil)
	if err := s.shadow.Start(ctx); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, sampleApp, shadowPods); err != nil {
		return err
	}
	return s.agrees(ctx, w)
}

// agrees waits until the report has the acting controller's launches and fleet as they are, and as much capacity launched by the
// shadow.
func (s *shadowRun) agrees(ctx context.Context, w *World) error {
	if err := s.await(ctx, func(r shadowReport) error {
		cost, err := w.Cost(ctx)
		if err != nil {
			return err
		}
		launched := len(w.History.Claims())
		switch {
		case r.Acting.Launches != launched || r.Acting.Nodes != len(w.Running()):
			return fmt.Errorf("the acting controller launched %d nodes, and %d run", launched, len(w.Running()))
		case math.Abs(r.Acting.HourlyCost-cost) > 0.0005:
			return fmt.Errorf("the fleet costs $%.4f/h", cost)
		case r.Shadow.Launches == 0 || r.Shadow.LaunchedHourlyCost > 1.25*r.Acting.LaunchedHourlyCost:
			return errors.New("the shadow launched nothing, or far more than the acting controller")
		case math.Abs(r.Shadow.HourlyCost-r.Acting.HourlyCost) > 0.0005:
			return errors.New("the fleets differ, although all pods run")
		}
		return nil
	}); err != nil {
		return err
	}
	w.Note("launched: %d nodes at $%.3f/h by the shadow, %d at $%.3f/h by the acting controller",
		s.last.Shadow.Launches, s.last.Shadow.LaunchedHourlyCost, s.last.Acting.Launches, s.last.Acting.LaunchedHourlyCost)
	return nil
}

// nobodyActs has the shadow look at pods that nobody launches nodes for.
func (s *shadowRun) nobodyActs(ctx context.Context, w *World) error {
	if err := w.KillController(); err != nil {
		return err
	}
	before := s.last
	if err := w.Scale(ctx, sampleApp, shadowPods+shadowMore); err != nil {
		return err
	}
	if err := awaitPodsTried(ctx, w, sampleApp, shadowPods+shadowMore); err != nil {
		return err
	}
	first := 0 // the first pass that is known to know all pods is the one after this
	if err := s.await(ctx, func(r shadowReport) error {
		if first == 0 {
			first = r.Passes
		}
		if r.Shadow.Launches == before.Shadow.Launches || r.Passes < first+2 {
			return errors.New("the shadow has not planned all pods")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.shadow.Kill(), s.shadow.Start(ctx)); err != nil {
		return err
	}
	if err := s.unchanged(ctx); err != nil {
		return fmt.Errorf("after the shadow was killed: %w", err)
	}
	if s.last.Acting.Launches != before.Acting.Launches {
		return fmt.Errorf("nobody acted, and the report has %d launches of the acting controller, before %d",
			s.last.Acting.Launches, before.Acting.Launches)
	}
	w.Note("%d launches at $%.3f/h, once", s.last.Shadow.Launches-before.Shadow.Launches,
		s.last.Shadow.LaunchedHourlyCost-before.Shadow.LaunchedHourlyCost)
	return nil
}

// unchanged waits for some passes, which must not count anything.
func (s *shadowRun) unchanged(ctx context.Context) error {
	settled := s.last
	for settled.Passes == s.last.Passes || s.last.Passes < settled.Passes+unchangedPasses {
		previous := s.last
		if err := s.await(ctx, func(r shadowReport) error {
			if r.Passes == previous.Passes {
				return errors.New("there was no pass yet")
			}
			return nil
		}); err != nil {
			return err
		}
		if s.last.Shadow.Launches != settled.Shadow.Launches {
			return fmt.Errorf("the shadow counts %d launches, before %d, for the same pods", s.last.Shadow.Launches, settled.Shadow.Launches)
		}
	}
	return nil
}

func (s *shadowRun) actAgain(ctx context.Context, w *World) error {
	if err := w.StartController(ctx); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, sampleApp, shadowPods+shadowMore); err != nil {
		return err
	}
	return s.agrees(ctx, w)
}

// scaleDown has both consolidate.
func (s *shadowRun) scaleDown(ctx context.Context, w *World) error {
	before := s.last
	if err := w.Scale(ctx, sampleApp, 4); err != nil {
		return err
	}
	if err := s.await(ctx, func(r shadowReport) error {
		gone := 0
		for _, c := range w.History.Claims() {
			if !c.DeletedAt.IsZero() {
				gone++
			}
		}
		switch {
		case gone == 0 || r.Acting.Removed < gone:
			return fmt.Errorf("the acting controller removed %d nodes", gone)
		case r.Shadow.Removed <= before.Shadow.Removed || r.RemovedByBoth == 0:
			return errors.New("the shadow has not removed a node that the acting controller removed")
		case r.Acting.HourlyCost >= before.Acting.HourlyCost:
			return errors.New("the fleet costs no less")
		}
		return nil
	}); err != nil {
		return err
	}
	text, err := s.shadow.Text(ctx)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n")[:12] {
		w.Note("%s", line)
	}
	return nil
}

// methods matches the metric of requests to the API server, by method.
var methods = regexp.MustCompile(`(?m)^client_go_request_total\{.*method="([A-Z]+)".*\} ([0-9.e+]+)$`)

// wroteNothing checks what the shadow has sent to the API server and to AWS, that the API server allows it no more, and who holds
// the lease.
func (s *shadowRun) wroteNothing(ctx context.Context, w *World) error {
	for _, c := range w.AWS.Calls() {
		if strings.HasSuffix(c.Principal, "/"+w.ShadowSession()) && !readsOnly(c.Action) {
			return fmt.Errorf("the shadow called %s of %s on %v", c.Action, c.Service, c.Resources)
		}
	}
	if s.last.RefusedWrites != 0 {
		return fmt.Errorf("the shadow tried %d writes, see shadow.log", s.last.RefusedWrites)
	}
	text, err := s.shadow.Metrics(ctx)
	if err != nil {
		return err
	}
	sent := methods.FindAllStringSubmatch(text, -1)
	if len(sent) == 0 {
		return errors.New("the shadow has no metric client_go_request_total")
	}
	for _, m := range sent {
		if m[1] != "GET" && m[1] != "PATCH" {
			return fmt.Errorf("the shadow sent %s requests with the method %s", m[2], m[1])
		}
		w.Note("%s requests to the API server: %s", m[1], m[2])
	}
	var maps corev1.ConfigMapList
	if err := w.Client.List(ctx, &maps, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return err
	}
	if n := managedBy(maps.Items, "dovetail-shadow"); n != 1 {
		return fmt.Errorf("the shadow manages %d ConfigMaps, want its report", n)
	}
	leases := &coordinationv1.LeaseList{}
	if err := w.Client.List(ctx, leases, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return err
	}
	for i := range leases.Items {
		if strings.Contains(leases.Items[i].Name, "dovetail") {
			return fmt.Errorf("there is a lease %s", leases.Items[i].Name)
		}
	}
	return nil
}

// managedBy counts the ConfigMaps with fields of a manager.
func managedBy(maps []corev1.ConfigMap, manager string) int {
	n := 0
	for i := range maps {
		for _, f := range maps[i].ManagedFields {
			if f.Manager == manager {
				n++
				break
			}
		}
	}
	return n
}

// readsOnly reports whether an action of AWS changes nothing.
func readsOnly(action string) bool {
	for _, prefix := range []string{"Describe", "Get", "List"} {
		if strings.HasPrefix(action, prefix) {
			return true
		}
	}
	return false
}
