package savings

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/claimevents"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// world is a tracker with prices by instance type, and a clock.
type world struct {
	*Tracker
	now time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	w.Tracker = &Tracker{Now: func() time.Time { return w.now }, Since: w.now, Prices: prices{"large": 1, "small": 0.25}}
	return w
}

type prices map[string]float64

func (p prices) Of(labels map[string]string) (hourly float64, known bool) {
	hourly, known = p[labels[corev1.LabelInstanceTypeStable]]
	return hourly, known
}

// claim is one that is launched now; edits change it.
func (w *world) claim(name, instanceType string, edits ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{},
		Labels: map[string]string{karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: instanceType},
	}}
	condition.SetTrue(c, karpv1.ConditionLaunched, w.now)
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func by(t *testing.T, command *karpv1.DisruptionCommand) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		if err := c.SetDisruptionCommand(command); err != nil {
			t.Fatal(err)
		}
	}
}

func replaces(names string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationReplaces] = names }
}

func (w *world) want(t *testing.T, hourly, dollars float64) {
	t.Helper()
	var gotHourly, gotDollars float64
	for _, p := range w.Pools() {
		if p.NodePool != "general" {
			t.Errorf("savings in %q", p.NodePool)
		}
		gotHourly, gotDollars = gotHourly+p.Hourly, gotDollars+p.Dollars
	}
	if math.Abs(gotHourly-hourly) > 1e-9 || math.Abs(gotDollars-dollars) > 1e-9 {
		t.Errorf("it saves $%f/h, and has saved $%f; want %f and %f", gotHourly, gotDollars, hourly, dollars)
	}
}

func TestACommandSavesFromTheEndOfItsLastNodeOn(t *testing.T) {
	w, command := newWorld(t), &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a", "b"}, Replacements: []string{"c"}}
	h := claimevents.Handler(w.Observe, w.Gone)
	h.OnAdd(w.claim("a", "large"), true)
	h.OnAdd(w.claim("c", "small", replaces("a,b")), false)
	h.OnDelete(w.claim("a", "large", by(t, command)))
	w.want(t, 0, 0)
	h.OnDelete(w.claim("b", "large", by(t, command)))
	w.now = w.now.Add(2 * time.Hour)
	w.want(t, 1.75, 3.5)
	more := w.claim("d", "small")
	h.OnAdd(more, false)
	h.OnUpdate(more, more) // which counts once
	w.now = w.now.Add(time.Hour)
	w.want(t, 1.5, 5)
}

func TestWhatIsNoFinishedCommandSavesNothing(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, w *world){
		"a node that no command removes": func(_ *testing.T, w *world) { w.Gone(w.claim("a", "large")) },
		"a node without a known price": func(t *testing.T, w *world) {
			w.Gone(w.claim("a", "unknown", by(t, &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a"}})))
		},
		"a replacement that this process has not seen": func(t *testing.T, w *world) {
			w.Gone(w.claim("a", "large", by(t, &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a"}, Replacements: []string{"b"}})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			happens(t, w)
			w.now = w.now.Add(time.Hour)
			w.want(t, 0, 0)
		})
	}
}

// The nodes that a process finds at its start were not launched after its savings.
func TestNodesOfBeforeTheStartEndNoSavings(t *testing.T) {
	w := newWorld(t)
	before := w.claim("old", "large", func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, w.now) })
	w.now, w.Since = w.now.Add(time.Hour), w.now.Add(time.Hour)
	w.Gone(w.claim("a", "large", by(t, &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a"}})))
	w.Observe(before)
	w.now = w.now.Add(time.Hour)
	w.want(t, 1, 1)
}

func TestPricesAreThoseOfTheNodePoolFirst(t *testing.T) {
	var p Prices
	labels := map[string]string{
		karpv1.LabelNodePool: "b", corev1.LabelInstanceTypeStable: "m",
		corev1.LabelTopologyZone: Zones()[0], karpv1.LabelCapacityType: "on-demand",
	}
	if _, known := p.Of(labels); known {
		t.Error("no pool has a price")
	}
	pools := []cluster.Pool{
		{NodePool: Pool("a", nil).NodePool, InstanceTypes: []*catalog.InstanceType{Type("m", 1, "cpu", "2", "memory", "4Gi")}},
		{NodePool: Pool("b", nil).NodePool, InstanceTypes: []*catalog.InstanceType{Type("m", 2, "cpu", "2", "memory", "4Gi")}},
	}
	p.Saw(pools)
	p.Saw([]cluster.Pool{{NodePool: Pool("b", nil).NodePool}}) // of a class that is not ready
	if hourly, known := p.Of(labels); !known || hourly != 2 {
		t.Errorf("it costs $%f/h (%v), want 2", hourly, known)
	}
	labels[karpv1.LabelNodePool] = "gone"
	if hourly, known := p.Of(labels); !known || hourly != 1 {
		t.Errorf("of a NodePool that is gone, it costs $%f/h (%v), want 1", hourly, known)
	}
}

// recordedOf is the recording of a decision and a launch for pods: with the prices, the steps and the outcome that the controller records.
const recordedOf = `[{
  "id": "d", "at": "2026-11-29T12:00:00Z", "type": "underutilized", "outcome": "done", "ended": "2026-11-29T13:00:00Z",
  "removes": [{"name": "a", "nodeClaim": "a", "nodePool": "general", "hourlyCost": 1}, {"name": "b", "nodeClaim": "b", "nodePool": "general", "hourlyCost": 1}],
  "launches": [{"nodeClaim": "c", "nodePool": "general"}],
  "steps": [
    {"at": "2026-11-29T12:00:00Z", "what": "launched", "object": "c", "instance": {"nodePool": "general", "instanceType": "small", "hourlyCost": 0.25}},
    {"at": "2026-11-29T12:00:00Z", "what": "terminated", "object": "a"}, {"at": "2026-11-29T13:00:00Z", "what": "terminated", "object": "b"}
  ],
  "realized": {"launched": [{"nodePool": "general", "instanceType": "small", "hourlyCost": 0.25}], "hourlyCost": 0.25, "hourlySavings": 1.75}
}, {
  "id": "l", "at": "2026-11-29T15:00:00Z", "type": "launch", "outcome": "done", "ended": "2026-11-29T15:00:00Z", "launches": [{"nodeClaim": "d", "nodePool": "general"}],
  "steps": [{"at": "2026-11-29T15:00:00Z", "what": "launched", "object": "d", "instance": {"nodePool": "general", "instanceType": "small", "hourlyCost": 0.25}}],
  "realized": {"launched": [{"nodePool": "general", "instanceType": "small", "hourlyCost": 0.25}], "hourlyCost": 0.25}
}]`

// The metric and a recording of the same hours state the same savings: now and in all.
func TestTheMetricAndARecordingHaveTheSameSavings(t *testing.T) {
	w, command := newWorld(t), &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a", "b"}, Replacements: []string{"c"}}
	w.Observe(w.claim("c", "small", replaces("a,b")))
	w.Gone(w.claim("a", "large", by(t, command)))
	w.now = w.now.Add(time.Hour)
	w.Gone(w.claim("b", "large", by(t, command)))
	w.now = w.now.Add(2 * time.Hour)
	w.Observe(w.claim("d", "small"))
	w.now = w.now.Add(time.Hour)
	var decisions []recorder.Decision
	if err := json.Unmarshal([]byte(recordedOf), &decisions); err != nil {
		t.Fatal(err)
	}
	recorded := recorder.Account(decisions, w.now)
	if len(recorded.NodePools) != 1 || recorded.HourlySavings != 1.5 {
		t.Fatalf("the recording has %+v", recorded)
	}
	w.want(t, float64(recorded.HourlySavings), float64(recorded.Dollars))
}

type calm struct{ burst bool }

func (c calm) AwaitBurstEnd(context.Context, time.Duration) bool { return true }
func (c calm) InBurst() bool                                     { return c.burst }

func TestTheScrapeHasBoundsAndSavings(t *testing.T) {
	w := newWorld(t)
	w.Gone(w.claim("a", "large", by(t, &karpv1.DisruptionCommand{ID: "d", Candidates: []string{"a"}})))
	w.now = w.now.Add(time.Hour)
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{Type("m", 0.5, "cpu", "2", "memory", "4Gi")})})
	node := Node("n", "general")
	node.Pods = []*corev1.Pod{Pod("p", Requests("cpu", "1", "memory", "1Gi"))}
	s.Nodes = []snapshot.Node{node}
	loop := &Loop{
		Look:         func(context.Context) (*snapshot.Snapshot, error) { return s, nil },
		Provisioning: calm{}, Log: slog.New(slog.DiscardHandler), Now: w.Now,
	}
	if err := loop.compute(context.Background()); err != nil {
		t.Fatal(err)
	}
	loop.Provisioning = calm{burst: true}
	if err := loop.compute(context.Background()); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := NewCollector(w.Tracker, loop, func(string) bool { return true }).Always().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`dovetail_nodepools_lower_bound_cost{nodepool="general"} 0.`, `dovetail_nodepools_hourly_savings{nodepool="general"} 1`,
		`dovetail_nodepools_saved_dollars{nodepool="general"} 1`,
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the scrape lacks %q:\n%s", line, text.String())
		}
	}
	text.Reset()
	gone := NewCollector(w.Tracker, loop, func(string) bool { return false })
	if err := gone.Always().WriteText(&text); err != nil || strings.Contains(text.String(), "general") {
		t.Errorf("%v; the NodePool is gone, and has series:\n%s", err, text.String())
	}
}
