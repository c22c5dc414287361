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

// Seeds is the range of seeds of the scenario chaos.
type Seeds struct {
	First uint64
	Count int
}

// split divides the seeds evenly among the worlds. It returns at most one range per seed.
func (s Seeds) split(worlds int) []Seeds {
	var out []Seeds
	first, rest := s.First, s.Count
	for left := min(worlds, s.Count); left > 0; left-- {
		part := Seeds{First: first, Count: (rest + left - 1) / left}
		out = append(out, part)
		first, rest = first+uint64(part.Count), rest-part.Count
	}
	return out
}

// Chaos returns the scenario chaos for several worlds, each with its share of the seeds.
func Chaos(seeds Seeds, worlds int) []Scenario {
	var out []Scenario
	for _, part := range seeds.split(worlds) {
		s := chaos(part)
		if worlds > 1 {
			s.Name = fmt.Sprintf("%s-%d-%d", s.Name, part.First, part.First+uint64(part.Count)-1)
		}
		out = append(out, s)
	}
	return out
}

// DefaultSeeds are few, so that chaos takes no longer than the other long scenarios when all of them run.
var DefaultSeeds = Seeds{First: 1, Count: 3}

// chaosTimeout bounds one seed. The slow part is after the faults: a launch with an unknown outcome blocks for two
// minutes.
const chaosTimeout = 5 * time.Minute

// chaosBudget is the disruption budget of the NodePool in manifests.Chaos, in nodes.
const chaosBudget = 3

// chaosApp is a workload of chaos.
type chaosApp struct {
	name  string
	most  int // replicas
	scale func(w *World, ctx context.Context, name string, replicas int32) error
}

// chaosApps are the workloads of chaos.
func chaosApps() []chaosApp {
	deployment := func(w *World, ctx context.Context, name string, n int32) error { return w.Scale(ctx, name, n) }
	return []chaosApp{
		{"web", 60, deployment},
		{"batch", 10, deployment},
		{"keep", 4, deployment},
		{"ledger", 5, func(w *World, ctx context.Context, name string, n int32) error { return w.ScaleStateful(ctx, name, n) }},
	}
}

// chaos injects a random mix of faults around the controller, one seed after another in one world. After each seed the
// cluster must reach the desired state again, and the invariants must have held at every moment.
func chaos(seeds Seeds) Scenario {
	v := newInvariants(nodeBudget(chaosBudget))
	want := map[string]int{} // replicas by app, as the last seed left them
	steps := []Step{
		startController(),
		installPool(manifests.Chaos, nil),
		installStorage("without a toleration for karpenter.sh/disrupted", toleratesNone),
		{Name: "create workloads without pods", Timeout: 10 * time.Second, Run: func(ctx context.Context, w *World) error {
			v.watch(w)
			w.RestartControllerOnExit()
			w.RestartClientsOnExit()
			return apply(ctx, w, manifests.ChaosWorkload, nil)
		}},
	}
	for seed := seeds.First; seed < seeds.First+uint64(seeds.Count); seed++ {
		steps = append(steps, Step{
			Name: fmt.Sprintf("seed %d: inject faults, then wait until the cluster is in its desired state", seed), Timeout: chaosTimeout,
			Run: func(ctx context.Context, w *World) error {
				err := newFaultSchedule(w, seed, want).inject(ctx)
				return errors.Join(err, v.check(w))
			},
		})
	}
	steps = append(steps, Step{
		Name: "delete the workloads: all nodes, instances and volumes are deleted", Timeout: 4 * time.Minute,
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
			w.Note("%d NodeClaims, %d instances, %d controller starts", len(w.History.Claims()), len(w.Instances()), w.ControllerStarts())
			return v.check(w)
		},
	}, removeStorage(), removePool(manifests.Chaos, nil))
	return Scenario{
		Name:    "chaos",
		Summary: "seeded faults (throttling, lost responses, no capacity, crashes of controller and API server): no pod gets two nodes, nothing leaks, no volume is lost",
		Long:    true,
		Steps:   steps,
	}
}

// faultSchedule is the mix of faults and cluster changes of one seed.
type faultSchedule struct {
	w       *World
	rng     *rand.Rand
	seed    uint64
	want    map[string]int // pods by app
	actions []string
	// apiServerCrashed is true once the schedule crashed the API server.
	apiServerCrashed bool
}

func newFaultSchedule(w *World, seed uint64, want map[string]int) *faultSchedule {
	return &faultSchedule{w: w, rng: rand.New(rand.NewPCG(seed, 0xc4a05)), seed: seed, want: want}
}

// inject runs the schedule, stops all faults, and waits until the cluster is in its desired state again.
func (s *faultSchedule) inject(ctx context.Context) error {
	begin := time.Now()
	s.startAWSFaults()
	err := s.disturbCluster(ctx)
	s.stopAWSFaults()
	if err != nil {
		return err
	}
	if s.apiServerCrashed {
		// If a crash loses the response of a pod's creation, the ReplicaSet controller waits for that pod for five minutes,
		// and then for the next change of the workload. Restart it, since this is not what chaos tests.
		if err := s.w.RestartControllerManager(ctx); err != nil {
			return err
		}
	}
	if err := s.w.AwaitController(ctx); err != nil {
		return err
	}
	stopped := time.Now()
	s.w.Note("%.0f s of faults: %s", stopped.Sub(begin).Seconds(), strings.Join(s.actions, ", "))
	if err := s.awaitSettled(ctx); err != nil {
		return err
	}
	s.w.Note("desired state after %.0f s: %d nodes", time.Since(stopped).Seconds(), len(s.w.Running()))
	return nil
}

// startAWSFaults sets the faults that last as long as the schedule.
func (s *faultSchedule) startAWSFaults() {
	aws := s.w.AWS
	// The shares are upper bounds far above a bad day in a real region, so that 20 seconds see many faults.
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

// stopAWSFaults removes them again.
func (s *faultSchedule) stopAWSFaults() {
	aws := s.w.AWS
	aws.ClearFaults()
	aws.SetTiming(awsim.DefaultTiming())
	aws.ClearCapacity()
}

// disturbCluster scales and deletes workloads and NodeClaims, and kills controller and API server, at random moments.
func (s *faultSchedule) disturbCluster(ctx context.Context) error {
	kinds := []struct {
		weight int
		do     func(context.Context) error
	}{{6, s.scale}, {3, s.killController}, {1, s.crashAPIServer}, {2, s.deletePod}, {1, s.deleteClaim}}
	total := 0
	for _, d := range kinds {
		total += d.weight
	}
	first := s.scale
	if s.rng.IntN(3) == 0 {
		first = s.scaleToZero // the rest of the schedule then scales up from zero
	}
	if err := first(ctx); err != nil {
		return err
	}
	for range 5 + s.rng.IntN(4) {
		if err := pause(ctx, time.Duration(s.rng.Int64N(int64(2*time.Second)))); err != nil {
			return err
		}
		n := s.rng.IntN(total)
		for _, d := range kinds {
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

// pause sleeps for d, or until ctx is done.
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

// deleteClaim deletes a random NodeClaim that has no pod with do-not-disrupt.
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

// mayNotMove reports whether a pod has karpenter.sh/do-not-disrupt and has not finished.
func mayNotMove(p corev1.Pod) bool {
	return p.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" && p.DeletionTimestamp == nil &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// awaitSettled waits until each workload has its replicas, each pod runs, and instances and NodeClaims match.
func (s *faultSchedule) awaitSettled(ctx context.Context) error {
	for _, app := range chaosApps() {
		if err := awaitPodsRunning(ctx, s.w, app.name, s.want[app.name]); err != nil {
			return fmt.Errorf("%s: %w", app.name, err)
		}
	}
	return errors.Join(awaitPaired(ctx, s.w), noDoubleLaunch(s.w), volumesExist(ctx, s.w))
}
