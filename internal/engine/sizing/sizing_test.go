package sizing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

// pods are n pods of an app with these requests.
func pods(n int, app, cpu, memory string, edit ...func(*corev1.Pod)) []*corev1.Pod {
	return enginetest.Pods(n, app, append(edit, enginetest.Labeled("app", app), enginetest.Requests("cpu", cpu, "memory", memory))...)
}

// sized is the type that a new bin gets, with what it is filled with: "4 x web".
func (f *fixture) sized(o *Opening, z Size) string {
	content := f.Fill(o, z)
	if z.None() {
		return ""
	}
	var out []string
	for _, c := range content {
		out = append(out, fmt.Sprintf("%d x %s", c.Pods, c.Class.First().Pod().Labels["app"]))
	}
	slices.Sort(out)
	return o.Bin.Template().TypeOf(o.Bin.Target()).Name + ": " + strings.Join(out, ", ")
}

// planned is the sizes of all bins, if what each is filled with is placed there.
func (f *fixture) planned(fresh bool) (out []string) {
	for i := range f.queue {
		for first := f.queue[i]; first.Left() > 0; {
			o := f.opening(first)
			if fresh {
				f.last.run = 0
			}
			z := f.Choose(o)
			content := f.Fill(o, z)
			first.Place()
			name := fmt.Sprint(z.index, z.pattern)
			for _, c := range content {
				name += fmt.Sprintf(" %d %s", c.Pods, c.Class.First().Pod().Name)
				for range c.Pods {
					c.Class.First().Place()
				}
			}
			out = append(out, name)
		}
	}
	return out
}

func smallAndLarge() []*catalog.InstanceType {
	return []*catalog.InstanceType{
		enginetest.Type("small", 0.10, "cpu", "1", "memory", "4Gi", "pods", "50"),
		enginetest.Type("large", 0.36, "cpu", "4", "memory", "16Gi", "pods", "50"),
	}
}

func TestANodeIsSizedForWhatWaits(t *testing.T) {
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()), pods(4, "web", "1", "1Gi")...)
	o := f.opening(f.queue[0])
	z := f.Choose(o)
	if got, want := f.sized(o, z), "large: 3 x web"; got != want {
		t.Errorf("for four pods: %s, want %s", got, want)
	}
	f = newFixture(t, enginetest.Pool("general", smallAndLarge()), pods(1, "web", "1", "1Gi")...)
	o = f.opening(f.queue[0])
	if got, want := f.sized(o, f.Choose(o)), "small: "; got != want {
		t.Errorf("for one pod: %s, want %s", got, want)
	}
}

func TestContentKeepsTheRulesOfHosts(t *testing.T) {
	apart := pods(4, "apart", "500m", "1Gi", enginetest.Apart(enginetest.Host, "apart"))
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()[1:]), append(apart, pods(9, "web", "1", "1Gi")...)...)
	o := f.opening(f.queue[0])
	if got, want := f.sized(o, f.Choose(o)), "large: 3 x web"; got != want {
		t.Errorf("beside a pod that keeps apart: %s, want %s", got, want)
	}
	o = f.opening(f.queue[1])
	if got, want := f.sized(o, f.Choose(o)), "large: 1 x apart, 2 x web"; got != want {
		t.Errorf("beside another pod: %s, want %s", got, want)
	}
}

func TestPodsThatTheSearchLeavesOutAreNotPlannedFor(t *testing.T) {
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()), append(pods(1, "web", "1", "1Gi"), pods(3, "batch", "1", "2Gi")...)...)
	f.c.Level = func(p *Pods) *podclass.Level {
		if p.Pod().Labels["app"] == "batch" {
			return nil
		}
		return p.Levels()[0]
	}
	o := f.opening(f.queue[0])
	if got, want := f.sized(o, f.Choose(o)), "small: "; got != want {
		t.Errorf("without the pods that cannot come: %s, want %s", got, want)
	}
}

func TestANodeForOnePodAloneIsNotFilled(t *testing.T) {
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()), pods(40, "web", "1", "1Gi")...)
	o := f.opening(f.queue[0])
	z := f.Alone(o)
	if got := f.sized(o, z); !strings.HasSuffix(got, ": ") || z.None() {
		t.Errorf("the node has content: %s", got)
	}
}

// A preview states what Fill then does, and changes nothing.
func TestAPreviewIsWhatTheNodeHolds(t *testing.T) {
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()), append(pods(2, "web", "1", "1Gi"), pods(3, "batch", "500m", "2Gi")...)...)
	o := f.opening(f.queue[0])
	z := f.Choose(o)
	previewed := map[string]int{}
	price, value := f.Preview(o, z, func(p *Pods, n int) { previewed[p.Pod().Labels["app"]] += n })
	filled, worth := map[string]int{}, f.queue[0].Value()
	for _, c := range f.Fill(o, z) {
		filled[c.Class.First().Pod().Labels["app"]] += c.Pods
		worth += float64(c.Pods) * c.Class.First().Value()
	}
	if diff := cmp.Diff(filled, previewed); diff != "" {
		t.Errorf("the preview differs from the content (-content +preview): %s", diff)
	}
	if price != o.Bin.Target().Price || value < worth*(1-1e-9) || value > worth*(1+1e-9) {
		t.Errorf("the preview costs %v and holds %v $/h, the bin costs %v and holds %v $/h", price, value, o.Bin.Target().Price, worth)
	}
}

func TestEqualPodsShareAPackingClass(t *testing.T) {
	list := append(pods(1, "a", "1", "1Gi"), pods(1, "b", "1", "1Gi")...)
	list = append(list, pods(1, "other", "2", "1Gi")...)
	list = append(list, pods(1, "port", "1", "1Gi", enginetest.HostPort("", 80, corev1.ProtocolTCP))...)
	list = append(list, pods(1, "zonal", "1", "1Gi", enginetest.Selects(enginetest.Zone, "z1"))...)
	f := newFixture(t, enginetest.Pool("general", smallAndLarge()), list...)
	classes := map[*PackingClass]bool{}
	for _, p := range f.queue {
		classes[p.Packing()] = true
	}
	if len(classes) != 4 || f.queue[0].Packing() != f.queue[1].Packing() {
		t.Errorf("%d packing classes, want 4: one for two pods that differ in labels only", len(classes))
	}
	if len(f.Waiting()) != 5 {
		t.Errorf("%d classes wait, want 5", len(f.Waiting()))
	}
	f.queue[0].Place()
	if first := f.queue[0].Packing().First(); first != f.queue[1] {
		t.Errorf("after the first pod comes %v", first)
	}
}

func TestEqualBinsAreSizedOnce(t *testing.T) {
	f := newFixture(t, enginetest.Pool("general", enginetest.Types()),
		append(pods(50, "large", "1500m", "1Gi"), pods(50, "small", "100m", "1Gi")...)...)
	first := f.queue[0]
	o := f.opening(first)
	content := f.Fill(o, f.Choose(o))
	if len(content) == 0 {
		t.Fatal("the bin is sized for its first pod only")
	}
	next := f.opening(first)
	steps := f.steps
	again := f.Fill(next, f.Choose(next))
	if f.steps != steps {
		t.Error("the next bin is sized again, although nothing has changed")
	}
	if !slices.Equal(content, again) || o.Bin.Target() != next.Bin.Target() {
		t.Errorf("the next bin is sized as %v with %v, the first as %v with %v", next.Bin.Target(), again, o.Bin.Target(), content)
	}
	content[0].Class.left = content[0].Pods // the bin took as many as before, but these are all
	next = f.opening(first)
	if f.holds(f.lookAhead(next), next) {
		t.Error("the next bin is sized as before, although a class that it took from is nearly used up")
	}
}

// A decision that was reused must be the one that would have been made.
func TestReusedDecisionsChangeNoSize(t *testing.T) {
	saved := 0
	for _, n := range []int{60, 300} {
		queue := func() []*corev1.Pod {
			var out []*corev1.Pod
			for i := range n {
				size := enginetest.Requests("cpu", fmt.Sprintf("%dm", 100+350*(i%4)), "memory", fmt.Sprintf("%dMi", 256<<(i%3)))
				edit := []func(*corev1.Pod){enginetest.Labeled("app", fmt.Sprint("app-", i%5)), size}
				if i%5 == 0 {
					edit = append(edit, enginetest.Apart(enginetest.Host, "app-0"))
				}
				out = append(out, enginetest.Pod(fmt.Sprintf("pod-%03d", i), edit...))
			}
			return out
		}
		fresh := newFixture(t, enginetest.Pool("general", enginetest.Types()), queue()...)
		reusing := newFixture(t, enginetest.Pool("general", enginetest.Types()), queue()...)
		if diff := cmp.Diff(fresh.planned(true), reusing.planned(false)); diff != "" {
			t.Errorf("%d pods: %s", n, diff)
		}
		saved += fresh.steps - reusing.steps
	}
	if saved <= 0 {
		t.Error("no decision was reused")
	}
}
