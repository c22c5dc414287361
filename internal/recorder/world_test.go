package recorder

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// testWorld is a cluster that changes from pass to pass, by a seed.
type testWorld struct {
	*rand.Rand
	objects cluster.Objects
	facts   cluster.Facts
	types   []*catalog.InstanceType
	changes int
}

func newTestWorld(seed uint64, pods, nodes int) *testWorld {
	w := &testWorld{Rand: rand.New(rand.NewPCG(seed, 1)), types: Types()}
	w.facts = cluster.Facts{
		Now: Now(), Labels: requirement.CoreLabels(), NominationWindow: time.Minute, MarkedForDeletion: map[types.UID]bool{},
		Settings: snapshot.Settings{PreferencePolicy: snapshot.PreferencesRespect, NodeCost: 0.01, Profiles: map[string]snapshot.SchedulerProfile{
			"batch": {IgnoredResources: []string{"example.com/license"}},
		}},
	}
	pool := Pool("general", w.types).NodePool
	pool.UID, pool.ResourceVersion = "pool", "1"
	pool.Spec.Disruption.Budgets = []karpv1.Budget{} // no bound: differs from none
	w.objects.Pools = []cluster.Pool{{NodePool: pool, NodeClassLabel: [2]string{"example.com/nodeclass", "default"}, InstanceTypes: w.types}}
	w.objects.Namespaces = []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "ns", ResourceVersion: "1"}}}
	for range nodes {
		w.addNode()
	}
	for range pods {
		w.addPod()
	}
	return w
}

func (w *testWorld) version() string {
	w.changes++
	return fmt.Sprint(w.changes)
}

func (w *testWorld) addPod() {
	app := string(rune('a' + w.IntN(4)))
	edits := []func(*corev1.Pod){
		Requests("cpu", fmt.Sprintf("%dm", 100+100*w.IntN(12)), "memory", fmt.Sprintf("%dMi", 128*(1+w.IntN(16)))), Labeled("app", app),
	}
	if app == "a" {
		edits = append(edits, Spread(Zone, 1, app))
	}
	if app == "b" {
		edits = append(edits, Apart(corev1.LabelHostname, app))
	}
	p := Pod(fmt.Sprintf("%s-%d", app, w.changes), edits...)
	p.ResourceVersion = w.version()
	if len(w.objects.Nodes) > 0 && app > "b" && w.IntN(3) == 0 {
		Bound(p, w.objects.Nodes[w.IntN(len(w.objects.Nodes))].Name)
	}
	w.objects.Pods = append(w.objects.Pods, p)
}

// addNode adds an initialized node of the pool.
func (w *testWorld) addNode() {
	t, zone := w.types[w.IntN(len(w.types))], Zones()[w.IntN(3)]
	name := fmt.Sprintf("node-%d", w.changes)
	labels := map[string]string{
		karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: t.Name, corev1.LabelTopologyZone: zone,
		karpv1.LabelCapacityType: "on-demand", corev1.LabelHostname: name, karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: w.version(), Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///" + name},
		Status: corev1.NodeStatus{
			Capacity: t.Capacity, Allocatable: t.Allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "claim-" + name, UID: types.UID("claim-" + name), ResourceVersion: w.version(), Labels: labels,
		CreationTimestamp: metav1.NewTime(Now().Add(-time.Hour)),
	}}
	claim.Status.ProviderID, claim.Status.NodeName = node.Spec.ProviderID, name
	for _, c := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized, karpv1.ConditionConsolidatable} {
		condition.SetTrue(claim, c, Now().Add(-time.Hour))
	}
	w.objects.Nodes, w.objects.NodeClaims = append(w.objects.Nodes, node), append(w.objects.NodeClaims, claim)
}

// change changes a few objects, never in place: others may still read them.
func (w *testWorld) change() {
	w.facts.Now = w.facts.Now.Add(10*time.Second + time.Duration(w.IntN(1000))*time.Microsecond)
	for range 1 + w.IntN(4) {
		w.addPod()
	}
	if len(w.objects.Pods) > 8 {
		w.objects.Pods = append([]*corev1.Pod{}, w.objects.Pods[w.IntN(4):]...)
	}
	at := w.IntN(len(w.objects.Pods))
	p := w.objects.Pods[at].DeepCopy()
	p.Labels["changed"], p.ResourceVersion = fmt.Sprint(w.changes), w.version()
	w.objects.Pods = append([]*corev1.Pod{}, w.objects.Pods...)
	w.objects.Pods[at] = p
	if w.IntN(5) == 0 {
		w.types = append([]*catalog.InstanceType{Type(fmt.Sprintf("new.%d", w.changes), 0.01*float64(1+w.IntN(9)), "cpu", "2", "memory", "4Gi")}, w.types...)
		w.objects.Pools = append([]cluster.Pool{}, w.objects.Pools...)
		w.objects.Pools[0].InstanceTypes = w.types
	}
	if w.IntN(6) == 0 {
		w.addNode()
	}
}

// pass has the engine plan, and records it. It returns the plan as text.
func (w *testWorld) pass(r *Recorder) (id, plan string) {
	return w.passAfter(r, func(_ *Pass, s *snapshot.Snapshot) *snapshot.Snapshot { return s })
}

// passAfter is a pass that does something after its beginning, which gives the snapshot that it plans.
func (w *testWorld) passAfter(r *Recorder, begun func(*Pass, *snapshot.Snapshot) *snapshot.Snapshot) (id, plan string) {
	objects, facts := w.objects, w.facts
	all := cluster.BuildSnapshot(objects, facts)
	r.Saw(all, &objects, &facts)
	p := r.Begin(Provisioning, all, all)
	s := begun(p, all)
	solved := schedule.Solve(s, schedule.DefaultBudget())
	for i := range solved.Launches {
		solved.Launches[i].ID = fmt.Sprintf("%s-%d", p.ID(), i)
	}
	p.Call(CallSolve, SolveInput{}, RecordPlan(&solved))
	for i := range solved.Launches {
		p.Decide(LaunchDecision(s, &solved.Launches[i]))
	}
	p.Flush()
	return p.ID(), planText(&solved)
}

// planText is a plan with everything that decides.
func planText(p *schedule.Plan) string {
	return fmt.Sprintf("%s %v", hashOf(mustJSON(RecordPlan(p))), p.Stats)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// clock is one that goes on with each reading.
func clock() func() time.Time {
	var mu sync.Mutex
	now := Now()
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

func testConfig(t testing.TB, size int64) Config {
	return Config{Path: filepath.Join(t.TempDir(), "decisions.rec"), Size: size, Version: "test", Log: quiet(), Now: clock()}
}

func newTestRecorder(t testing.TB, cfg Config) *Recorder {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settle waits until the writer has written what is queued, or lost it.
func (r *Recorder) settle() {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last != nil {
		<-last
	}
}

// What tests outside of the package use.
type TestWorld = testWorld

// NewTestWorld makes a cluster by a seed.
func NewTestWorld(seed uint64, pods, nodes int) *TestWorld { return newTestWorld(seed, pods, nodes) }

// State is what a pass sees now.
func (w *testWorld) State() (cluster.Objects, cluster.Facts) { return w.objects, w.facts }

// Quiet is a log that nobody reads.
func Quiet() *slog.Logger { return quiet() }
