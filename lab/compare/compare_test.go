package compare

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestQuantile(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, tt := range []struct {
		name  string
		of    []time.Duration
		share float64
		want  time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", []time.Duration{second(3)}, 0.95, second(3)},
		{"median of four is the second", []time.Duration{second(4), second(1), second(3), second(2)}, 0.5, second(2)},
		{"95 % of four is the fourth", []time.Duration{second(4), second(1), second(3), second(2)}, 0.95, second(4)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := quantile(tt.of, tt.share); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A pod counts once, and only if the API server has marked it as evicted.
func TestEvictionsAreCountedByPod(t *testing.T) {
	r := &run{evicted: map[types.UID]bool{}}
	pod := &corev1.Pod{}
	pod.UID = "1"
	r.see(pod, false)
	r.see(&corev1.Node{}, false)
	if len(r.evicted) != 0 {
		t.Fatal("a pod that nobody evicts is counted")
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Reason: "EvictionByEvictionAPI"}}
	r.see(pod, false)
	r.see(pod, true)
	other := pod.DeepCopy()
	other.UID, other.Status.Conditions[0].Reason = "2", "DeletionByTaintManager"
	r.see(other, false)
	if len(r.evicted) != 1 {
		t.Errorf("%d evictions, want 1", len(r.evicted))
	}
}

func TestPrint(t *testing.T) {
	r := Report{Machine: "linux/amd64, 2 CPUs", Results: []Result{
		{Workload: "launch", Controller: Dovetail, HourlyCost: 1.2345, Nodes: 3, PendingP50: 5, PendingP95: 6.25, CPUSeconds: 2, PeakMiB: 99.6, TookSeconds: 20},
		{Workload: "launch", Controller: "other", HourlyCost: 2, Nodes: 4, Evictions: 1, Failed: "38 pods run, want 40"},
	}}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `WORKLOAD  CONTROLLER  $/h    NODES  EVICTIONS  PENDING P50  P95    CPU    PEAK MEMORY  TOOK
launch    dovetail    1.234  3      0          5.0 s        6.2 s  2.0 s  100 MiB      20 s
          other       2.000  4      1          0.0 s        0.0 s  0.0 s  0 MiB        0 s
failed: launch with other: 38 pods run, want 40
Machine: linux/amd64, 2 CPUs. Instances, prices and joining are of the lab's AWS simulator.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Manifests are valid JSON with every constraint that a workload has.
func TestAppIsJSON(t *testing.T) {
	text, err := files.ReadFile("app.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, constraint := range []string{"", zoneSpread, nodeEach} {
		filled := strings.NewReplacer("${REPLICAS}", "1", "${CONSTRAINT}", constraint).Replace(string(text))
		if !json.Valid([]byte(filled)) {
			t.Errorf("not JSON:\n%s", filled)
		}
	}
}
