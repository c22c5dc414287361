package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// Mixes are the seeds of the story chaos.
type Seeds struct {
	First uint64
	Count int
}

// split shares the seeds out to so many worlds, or as many as there are seeds.
func (m Seeds) split(worlds int) []Seeds {
	var out []Seeds
	first, rest := m.First, m.Count
	for left := min(worlds, m.Count); left > 0; left-- {
		part := Seeds{First: first, Count: (rest + left - 1) / left}
		out = append(out, part)
		first, rest = first+uint64(part.Count), rest-part.Count
	}
	return out
}

// Chaos is the story chaos, told in several worlds, each with its share of the seeds.
func Chaos(m Seeds, worlds int) []Scenario {
	var out []Scenario
	for _, part := range m.split(worlds) {
		s := chaos(part)
		if worlds > 1 {
			s.Name = fmt.Sprintf("%s-%d-%d", s.Name, part.First, part.First+uint64(part.Count)-1)
		}
		out = append(out, s)
	}
	return out
}

// DefaultSeeds are few enough to be told with every other story.
var DefaultSeeds = Seeds{First: 1, Count: 3}

// chaosTimeout is for one seed.
const chaosTimeout = 5 * time.Minute

// chaosBudget is how many nodes the pool of the story lets go at a time.
const chaosBudget = 3

// chaosApp is a workload of the story.
type chaosApp struct {
	name  string
	most  int // pods that it may have
	scale func(w *World, ctx context.Context, name string, replicas int32) error
}

// chaosApps are the workloads of the story.
func chaosApps() []chaosApp {
	deployment := func(w *World, ctx context.Context, name string, n int32) error { return w.Scale(ctx, name, n) }
	return []chaosApp{
		{"web", 60, deployment},
		{"batch", 10, deployment},
		{"keep", 4, deployment},
		{"ledger", 5, func(w *World, ctx context.Context, name string, n int32) error { return w.ScaleStateful(ctx, name, n) }},
	}
}

// chaos goes through mixes of everything that can go wrong around a controller, one seed after another in one world: after
// each, all is as if nothing had been, and what may never happen has not happened at any moment.
func chaos(m Seeds) Scenario {
	g := newInvariants(nodeBudget(chaosBudget))
	want := map[string]int{} // pods by app, as the last storm has left it
	steps := []Step{
		startController(),
		installPool(manifests.Chaos, nil),
		installStorage("does not tolerate the taint of ending nodes", toleratesNone),
		{Name: "create workloads without pods", Timeout: 10 * time.Second, Run: func(ctx context.Context, w *World) error {
			g.watch(w)
			w.RestartControllerOnExit()
			w.RestartClientsOnExit()
			return apply(ctx, w, manifests.ChaosWorkload, nil)
		}},
	}
	for seed := m.First; seed < m.First+uint64(m.Count); seed++ {
		steps = append(steps, Step{
			Name: fmt.Sprintf("seed %d: a storm, then all is well", seed), Timeout: chaosTimeout,
			Run: func(ctx context.Context, w *World) error {
				err := newFaultSchedule(w, seed, want).inject(ctx)
				return errors.Join(err, g.check(w))
			},
		})
	}
	steps = append(steps, Step{
		Name: "delete the workloads: all nodes, instances and volumes go", Timeout: 4 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			workload, err := render(w, manifests.ChaosWorkload, nil)
			if err != nil {
				return err
			}
			if err := w.Delete(ctx, workload); err != nil {
				return err
			}
			for _, app := range chaosApps() {
				if err := awaitEmpty(ctx, w, app.name); err != nil {
					return err
				}
			}
			if err := w.Client.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace("default")); err != nil {
				return err
			}
			if err := awaitNoVolumes(ctx, w); err != nil {
				return err
			}
			w.Note("%d NodeClaims, %d instances, %d starts of the controller", len(w.History.Claims()), len(w.Instances()), w.ControllerStarts())
			return g.check(w)
		},
	}, removeStorage(), removePool(manifests.Chaos, nil))
	return Scenario{
		Name:    "chaos",
		Summary: "throttling, lost answers, no capacity, crashes of controller and API server, seeded: no pod gets two nodes, nothing leaks, no volume is lost",
		Long:    true,
		Steps:   steps,
	}
}

// storm is one mix.
type faultSchedule struct {
	w    *World
	rng *rand.Rand
	seed uint64
	want map[string]int // pods by app
	actions []string
	// crashed is true once the API server was.
	apiServerCrashed bool
}

func newFaultSchedule(w *World, seed uint64, want map[string]int) *faultSchedule {
	return &faultSchedule{w: w, rng: rand.New(rand.NewPCG(seed, 0xc4a05)), seed: seed, want: want}
}

// rage lets the storm break, and waits until the world has come to rest after it.
func (s *faultSchedule) inject(ctx context.Context) error {
	begin := time.Now()
	s.startAWSFaults()
	err := s.disturbCluster(ctx)
	s.stopAWSFaults()
	if err != nil {
		return err
	}
	if s.apiServerCrashed {
		// Kubernetes' own controllers wait for the pods that they have asked for when a crash has swallowed the answer: for five
		// minutes, and then until something happens to that workload. What they forget is not what the story is about.
		if err := s.w.RestartControllerManager(ctx); err != nil {
			return err
		}
	}
	if err := s.w.AwaitController(ctx); err != nil {
		return err
	}
	calm := time.Now()
	s.w.Note("%.0f s of storm: %s", calm.Sub(begin).Seconds(), strings.Join(s.actions, ", "))
	if err := s.awaitSettled(ctx); err != nil {
		return err
	}
	s.w.Note("at rest after %.0f s: %d nodes", time.Since(calm).Seconds(), len(s.w.Running()))
	return nil
}

// breaks sets what lasts as long as the storm.
func (s *faultSchedule) startAWSFaults() {
	aws := s.w.AWS
	share := func(most float64) float64 { return s.rng.Float64() * most }
	aws.SetFaultSource(&protocol.FaultSchedule{
		Seed: s.seed, Principal: awsim.ControllerRole(s.w.Name),
		Throttled: share(0.25), Broken: share(0.15), Lost: share(0.1), Dropped: share(0.1), Slow: share(0.2),
	})
	timing := awsim.DefaultTiming()
	timing.Visible = time.Duration(s.rng.Int64N(int64(4 * time.Second)))
	timing.Boot = time.Duration(s.rng.Int64N(int64(6 * time.Second)))
	aws.SetTiming(timing)
	zones := []string{"a", "b", "c"}
	for range s.rng.IntN(3) {
		p := awsim.Pool{Zone: s.w.Region() + zones[s.rng.IntN(3)]}
		if s.rng.IntN(2) == 0 {
			p.Lifecycle = "spot"
		}
		aws.SetCapacity(p, s.rng.IntN(3))
	}
}

func (s *faultSchedule) stopAWSFaults() {
	aws := s.w.AWS
	aws.ClearFaults()
	aws.SetTiming(awsim.DefaultTiming())
	aws.ClearCapacity()
}

// acts does what people, pods and machines do in the meantime.
func (s *faultSchedule) disturbCluster(ctx context.Context) error {
	deeds := []struct {
		weight int
		do     func(context.Context) error
	}{{6, s.scale}, {3, s.killController}, {1, s.crashAPIServer}, {2, s.deletePod}, {1, s.deleteClaim}}
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	first := s.scale
	if s.rng.IntN(3) == 0 {
		first = s.scaleToZero // and again from nothing
	}
	if err := first(ctx); err != nil {
		return err
	}
	for range 5 + s.rng.IntN(4) {
		if err := pause(ctx, time.Duration(s.rng.Int64N(int64(2*time.Second)))); err != nil {
			return err
		}
		n := s.rng.IntN(total)
		for _, d := range deeds {
			if n -= d.weight; n < 0 {
				if err := d.do(ctx); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// pause lets time pass: a storm has a rhythm, nothing is waited for.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *faultSchedule) note(format string, args ...any) {
	s.actions = append(s.actions, fmt.Sprintf(format, args...))
}

func (s *faultSchedule) scale(ctx context.Context) error {
	apps := chaosApps()
	app := apps[s.rng.IntN(len(apps))]
	n := s.rng.IntN(app.most + 1)
	s.note("%s=%d", app.name, n)
	s.want[app.name] = n
	return app.scale(s.w, ctx, app.name, int32(n))
}

func (s *faultSchedule) scaleToZero(ctx context.Context) error {
	s.note("all=0")
	for _, app := range chaosApps() {
		s.want[app.name] = 0
		if err := app.scale(s.w, ctx, app.name, 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *faultSchedule) killController(ctx context.Context) error {
	s.note("controller killed")
	if err := s.w.KillController(); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(s.rng.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	return s.w.LaunchController(ctx)
}

func (s *faultSchedule) crashAPIServer(ctx context.Context) error {
	s.note("API server crashed")
	s.apiServerCrashed = true
	if err := s.w.KillAPIServer(); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(s.rng.Int64N(int64(3*time.Second)))); err != nil {
		return err
	}
	return s.w.StartAPIServer(ctx)
}

func (s *faultSchedule) deletePod(ctx context.Context) error {
	var all corev1.PodList
	if err := s.w.Client.List(ctx, &all, client.InNamespace("default")); err != nil {
		return err
	}
	if len(all.Items) == 0 {
		return nil
	}
	pod := all.Items[s.rng.IntN(len(all.Items))]
	s.note("a pod deleted")
	return client.IgnoreNotFound(s.w.Client.Delete(ctx, &pod))
}

// deleteClaim deletes a NodeClaim whose pods may all be moved.
func (s *faultSchedule) deleteClaim(ctx context.Context) error {
	var claims karpv1.NodeClaimList
	var all corev1.PodList
	if err := errors.Join(s.w.Client.List(ctx, &claims), s.w.Client.List(ctx, &all)); err != nil {
		return err
	}
	free := slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool {
		return slices.ContainsFunc(all.Items, func(p corev1.Pod) bool {
			return mayNotMove(p) && (p.Spec.NodeName == "" || p.Spec.NodeName == c.Status.NodeName)
		})
	})
	if len(free) == 0 {
		return nil
	}
	s.note("a NodeClaim deleted")
	return client.IgnoreNotFound(s.w.Client.Delete(ctx, &free[s.rng.IntN(len(free))]))
}

// kept reports whether a pod may not be moved.
func mayNotMove(p corev1.Pod) bool {
	return p.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" && p.DeletionTimestamp == nil &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// rests waits until each workload has its pods, each pod runs, and instances and NodeClaims belong together.
func (s *faultSchedule) awaitSettled(ctx context.Context) error {
	for _, app := range chaosApps() {
		if err := awaitPodsRunning(ctx, s.w, app.name, s.want[app.name]); err != nil {
			return fmt.Errorf("%s: %w", app.name, err)
		}
	}
	return errors.Join(awaitPaired(ctx, s.w), noDoubleLaunch(s.w), volumesExist(ctx, s.w))
}
