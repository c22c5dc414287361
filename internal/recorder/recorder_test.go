package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// replayed plans each recorded pass again.
func replayed(t *testing.T, path string) map[string]string {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	out := map[string]string{}
	err = rec.Passes(Range{}, func(p *PassRecord) error {
		plan := schedule.Solve(p.Excluded.Apply(cluster.BuildSnapshot(p.Objects, p.Facts)), schedule.DefaultBudget())
		out[p.ID] = planText(&plan)
		if len(p.Calls) != 1 || !bytes.Equal(p.Calls[0].Out, mustJSON(RecordPlan(&plan))) {
			t.Errorf("pass %s: the recorded result differs", p.ID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantReplayed reports passes that are not planned again as they were.
func wantReplayed(t *testing.T, seed uint64, path string, want map[string]string) {
	t.Helper()
	got := replayed(t, path)
	for id, plan := range want {
		if got[id] != plan {
			t.Errorf("seed %d, pass %s: planned %s, replayed %s", seed, id, plan, got[id])
		}
	}
}

func TestARecordedPassIsPlannedTheSame(t *testing.T) {
	for seed := range uint64(12) {
		cfg := testConfig(t, 64<<20)
		r, w := newTestRecorder(t, cfg), newTestWorld(seed, 12, 4)
		want := map[string]string{}
		for range 10 {
			id, plan := w.pass(r)
			want[id] = plan
			r.settle()
			w.change()
		}
		r.Close()
		wantReplayed(t, seed, cfg.Path, want)
	}
}

func groupsOf(w *testWorld) []*schedulingv1beta1.PodGroup {
	if w.objects.PodGroups == nil {
		return nil
	}
	return w.objects.PodGroups.Groups
}

// PodGroups are recorded, and that they are served: where they are not, pods that name one are planned one by one.
func TestPodGroupsAreRecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups *cluster.PodGroups
		want   int
	}{
		{"a gang that does not fit", &cluster.PodGroups{Groups: []*schedulingv1beta1.PodGroup{Gang("train", 9)}}, 0},
		{"a gang that fits", &cluster.PodGroups{Groups: []*schedulingv1beta1.PodGroup{Gang("train", 4)}}, 4},
		{"a group that does not exist", &cluster.PodGroups{}, 0},
		{"not served", nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t, 64<<20)
			r, w := newTestRecorder(t, cfg), newTestWorld(1, 0, 0)
			w.objects.Pods, w.objects.PodGroups = Pods(4, "train", InGroup("train"), Requests("cpu", "6")), c.groups
			for i, pod := range w.objects.Pods {
				pod.ResourceVersion = fmt.Sprint(i + 1)
			}
			for i, g := range groupsOf(w) {
				g.UID, g.ResourceVersion = "g", fmt.Sprint(i+1)
			}
			id, plan := w.pass(r)
			r.Close()
			wantReplayed(t, 1, cfg.Path, map[string]string{id: plan})
			if got := len(schedule.Solve(cluster.BuildSnapshot(w.objects, w.facts), schedule.DefaultBudget()).Launches); got != c.want {
				t.Errorf("%d launches, want %d", got, c.want)
			}
		})
	}
}

// What a pass sees may be recorded before it is planned, and without which pods it was planned after it. Passes with the same result, before
// and after it, have theirs.
func TestAPassThatIsRecordedBeforeItIsPlanned(t *testing.T) {
	for seed := range uint64(4) {
		cfg := testConfig(t, 64<<20)
		r, w := newTestRecorder(t, cfg), newTestWorld(seed, 12, 4)
		want := map[string]string{}
		for range 4 {
			for _, begun := range []func(*Pass, *snapshot.Snapshot) *snapshot.Snapshot{
				func(_ *Pass, s *snapshot.Snapshot) *snapshot.Snapshot { return s },
				func(p *Pass, s *snapshot.Snapshot) *snapshot.Snapshot { p.Prepare(); return s },
				func(p *Pass, s *snapshot.Snapshot) *snapshot.Snapshot {
					p.Prepare()
					first := s.Pods[0].UID
					fewer := s.Without(snapshot.Exclusion{
						Pod:       func(pod *corev1.Pod) bool { return pod.UID == first },
						DaemonSet: func(*snapshot.DaemonSet) bool { return false },
					})
					p.Exclude(s, fewer)
					return fewer
				},
				func(_ *Pass, s *snapshot.Snapshot) *snapshot.Snapshot { return s },
			} {
				id, plan := w.passAfter(r, begun)
				want[id] = plan
				r.settle()
			}
			w.change()
		}
		r.Close()
		wantReplayed(t, seed, cfg.Path, want)
	}
}

// While the writer takes nothing, what a pass sees is recorded after it has decided, with its decisions.
func TestAPassIsRecordedThoughItCouldNotBeBefore(t *testing.T) {
	cfg := testConfig(t, 64<<20)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 12, 4)
	pause := func(until time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.retryAt = until
	}
	id, plan := w.passAfter(r, func(p *Pass, s *snapshot.Snapshot) *snapshot.Snapshot {
		pause(r.cfg.Now().Add(time.Hour))
		p.Prepare()
		pause(time.Time{})
		return s
	})
	r.Close()
	if got := replayed(t, cfg.Path); got[id] != plan {
		t.Errorf("planned %s, replayed %q", plan, got[id])
	}
}

// A process that is killed between the parts of a pass leaves what the pass saw, and the passes before and after it are complete.
func TestAProcessThatIsKilledBetweenThePartsOfAPass(t *testing.T) {
	cfg := testConfig(t, 64<<20)
	w := newTestWorld(2, 12, 4)
	want := map[string]string{}
	var cut string
	for range 3 {
		r := newTestRecorder(t, cfg)
		id, plan := w.pass(r)
		want[id] = plan
		w.change()
		objects, facts := w.objects, w.facts
		s := cluster.BuildSnapshot(objects, facts)
		r.Saw(s, &objects, &facts)
		p := r.Begin(Provisioning, s, s)
		p.Prepare()
		cut = p.ID()
		r.Close()
		w.change()
	}
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	seen := 0
	if err := rec.Passes(Range{}, func(p *PassRecord) error {
		plan := schedule.Solve(cluster.BuildSnapshot(p.Objects, p.Facts), schedule.DefaultBudget())
		if complete := want[p.ID] != ""; complete != (len(p.Calls) > 0) || complete && want[p.ID] != planText(&plan) {
			t.Errorf("pass %s: planned %q, replayed %s, %d calls", p.ID, want[p.ID], planText(&plan), len(p.Calls))
		}
		seen++
		return nil
	}); err != nil || seen != 6 {
		t.Errorf("%d passes, want 6: %v", seen, err)
	}
	if err := rec.Passes(Range{Pass: cut}, func(p *PassRecord) error {
		seen--
		return nil
	}); err != nil || seen != 5 {
		t.Errorf("the last pass is not found: %v", err)
	}
}

func TestTheFileNeverExceedsItsSize(t *testing.T) {
	const size = 1 << 20
	cfg := testConfig(t, size)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 60, 3)
	var last string
	rounds := 0
	for before := int64(0); rounds < 10; {
		objects, facts := w.objects, w.facts
		s := cluster.BuildSnapshot(objects, facts)
		r.Saw(s, &objects, &facts)
		p := r.Begin(Provisioning, s, s)
		noise := make([]byte, 10_000) // which does not compress
		for i := range noise {
			noise[i] = byte(w.IntN(256))
		}
		p.Call("noise", nil, noise)
		p.Flush()
		last = p.ID()
		r.settle()
		w.change()
		r.mu.Lock()
		if r.writer.ring.next < before {
			rounds++
		}
		before = r.writer.ring.next
		r.mu.Unlock()
		info, err := os.Stat(cfg.Path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > size {
			t.Fatalf("the file has %d bytes, more than %d", info.Size(), size)
		}
	}
	r.Close()
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var ids []string
	err = rec.Passes(Range{}, func(p *PassRecord) error {
		ids = append(ids, p.ID)
		return nil
	})
	// Of a hundred frames, those of the oldest quarter may lack their keyframe.
	if err != nil || len(ids) < 40 || ids[len(ids)-1] != last {
		t.Errorf("%d passes, the last is not %s: %v", len(ids), last, err)
	}
}

func TestARestartContinuesTheFile(t *testing.T) {
	cfg := testConfig(t, 8<<20)
	w, want := newTestWorld(3, 10, 2), map[string]string{}
	for range 3 {
		r := newTestRecorder(t, cfg)
		for range 3 {
			id, plan := w.pass(r)
			want[id] = plan
			r.settle()
			w.change()
		}
		r.Close()
	}
	got := replayed(t, cfg.Path)
	for id, plan := range want {
		if got[id] != plan {
			t.Errorf("pass %s: %q, want %q", id, got[id], plan)
		}
	}
}

func TestDecisionsComeWithTheirSteps(t *testing.T) {
	cfg := testConfig(t, 8<<20)
	r, w := newTestRecorder(t, cfg), newTestWorld(5, 10, 0)
	id, _ := w.pass(r)
	at := w.facts.Now.Add(time.Minute)
	for _, s := range []Step{
		{Decision: id + "-0", At: at, What: StepRegistered, Object: "c"},
		{Decision: id + "-0", At: at.Add(-30 * time.Second), What: StepLaunched, Object: "c", Message: "m.large"},
		{Decision: id + "-0", At: at, What: StepRegistered, Object: "c"}, // after a restart
	} {
		r.Step(s)
	}
	r.settle()
	r.Close()
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	d, err := rec.Decision(id + "-0")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Steps) != 2 || d.Steps[0].What != StepLaunched || d.Steps[1].What != StepRegistered {
		t.Errorf("steps %+v", d.Steps)
	}
	if d.Kind != KindLaunch || d.NodePool != "general" || len(d.Alternatives) == 0 || !d.Alternatives[0].Chosen || d.Pass != id {
		t.Errorf("decision %+v", d)
	}
	p, err := rec.Pass(id + "-0")
	if err != nil || p.ID != id {
		t.Errorf("the pass of the decision: %v, %v", p, err)
	}
	objects, facts, err := rec.At(w.facts.Now.Add(time.Hour).Format(time.RFC3339))
	if err != nil || len(objects.Pods) != len(w.objects.Pods) || !facts.Now.Equal(w.facts.Now) {
		t.Errorf("%d pods at %v, %v", len(objects.Pods), facts.Now, err)
	}
}

// failing is storage that fails, or never returns.
type failing struct {
	memory
	fail    bool
	blocked chan struct{}
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if f.blocked != nil {
		<-f.blocked
	}
	if f.fail {
		return len(p) / 2, errors.New("no space left on device")
	}
	return f.memory.WriteAt(p, off)
}

func TestADiskThatHangsDelaysNoPass(t *testing.T) {
	r, w := newTestRecorder(t, Config{Size: MinSize, Log: quiet(), Now: clock()}), newTestWorld(1, 5, 1)
	disk := &failing{memory: memory{data: []byte(fileMagic)}, blocked: make(chan struct{})}
	r.writer.ring.file = disk
	for range 5 * maxQueue { // would never end if one waited for the disk
		w.pass(r)
		w.change()
	}
	close(disk.blocked)
	r.Close()
}

// A decision is carried out only when its record is written: anyone who kills the process afterwards finds it.
func TestADecisionIsWrittenBeforeItIsCarriedOut(t *testing.T) {
	cfg := testConfig(t, 8<<20)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 200, 20)
	defer r.Close()
	for n := range 10 {
		objects, facts := w.objects, w.facts
		s := cluster.BuildSnapshot(objects, facts)
		r.Saw(s, &objects, &facts)
		p := r.Begin(Provisioning, s, s)
		id := fmt.Sprintf("d-%d", n)
		p.Call(CallSolve, SolveInput{}, PlanRecord{})
		p.Decide(Decision{ID: id, Kind: KindLaunch})
		p.Commit()
		rec, err := Open(cfg.Path)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := rec.Decision(id); err != nil || d.Pass != p.ID() {
			t.Errorf("%+v, %v", d, err)
		}
		if pass, err := rec.Pass(id); err != nil || len(pass.Calls) != 1 {
			t.Errorf("%+v, %v", pass, err)
		}
		_ = rec.Close()
		w.change()
	}
}

func TestADiskThatHangsDelaysADecisionByABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newTestRecorder(t, Config{Size: MinSize, Log: quiet(), Now: time.Now}), newTestWorld(1, 5, 1)
		disk := &failing{memory: memory{data: []byte(fileMagic)}, blocked: make(chan struct{})}
		r.writer.ring.file = disk
		commit := func() time.Duration {
			began := time.Now()
			s := cluster.BuildSnapshot(w.objects, w.facts)
			r.Saw(s, &w.objects, &w.facts)
			p := r.Begin(Provisioning, s, s)
			p.Call(CallSolve, SolveInput{}, PlanRecord{})
			p.Decide(Decision{ID: p.ID(), Kind: KindLaunch})
			p.Commit()
			return time.Since(began)
		}
		if took := commit(); took != commitTimeout {
			t.Errorf("the first decision waited %v", took)
		}
		if took := commit(); took != 0 {
			t.Errorf("while the disk hangs, the next decision waited %v", took)
		}
		close(disk.blocked)
		synctest.Wait()
		disk.blocked = make(chan struct{})
		if took := commit(); took != commitTimeout {
			t.Errorf("after the disk has answered, a decision waited %v", took)
		}
		close(disk.blocked)
		r.Close()
	})
}

func TestAfterAFullDiskTheRecordingGoesOn(t *testing.T) {
	r, w := newTestRecorder(t, Config{Size: 8 << 20, Log: quiet(), Now: clock()}), newTestWorld(1, 5, 1)
	disk := &failing{memory: memory{data: []byte(fileMagic)}}
	r.writer.ring.file = disk
	w.pass(r)
	r.settle()
	disk.fail = true
	for range 3 {
		w.change()
		w.pass(r)
		r.settle()
	}
	disk.fail = false
	r.mu.Lock()
	r.retryAt = time.Time{}
	r.mu.Unlock()
	w.change()
	id, plan := w.pass(r)
	w.change()
	id2, plan2 := w.pass(r)
	r.settle()
	r.Close()
	path := filepath.Join(t.TempDir(), "x.rec")
	if err := os.WriteFile(path, disk.data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := replayed(t, path); got[id] != plan || got[id2] != plan2 {
		t.Errorf("%v", got)
	}
}

func TestAFileThatIsNoRecordingIsPutAside(t *testing.T) {
	cfg := testConfig(t, MinSize)
	if err := os.WriteFile(cfg.Path, []byte("something else entirely, and longer than the first line"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 5, 1)
	id, plan := w.pass(r)
	r.settle()
	r.Close()
	if got := replayed(t, cfg.Path); got[id] != plan {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(cfg.Path + ".damaged"); err != nil {
		t.Error(err)
	}
}

func TestNothingSecretIsRecorded(t *testing.T) {
	cfg := testConfig(t, MinSize)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 3, 1)
	pod := w.objects.Pods[0]
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = []string{"hunter2-command"}, []string{"hunter2-args"}
	c.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2-env"}}
	pod.Annotations = map[string]string{"example.com/token": "hunter2-annotation"}
	w.pass(r)
	r.settle()
	r.Close()
	rec, err := Open(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	lines := 0
	for i := range rec.frames {
		if !rec.frames[i].hasState() {
			continue
		}
		err := rec.lines(&rec.frames[i], func(l *line) error {
			lines++
			if text := string(mustJSON(l)); strings.Contains(text, "hunter2") {
				t.Errorf("recorded: %s", text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines == 0 {
		t.Error("nothing is recorded")
	}
	if c.Command == nil || pod.Annotations == nil {
		t.Error("recording has changed the object")
	}
}
