package hostilepods_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dovetail-k8s/dovetail/internal/engine/hostilepods"
)

// samples sets how many pods of each kind the lab tries.
const samples = 150

// Equal bytes draw equal pods, so that a world that failed once can be drawn again. With DOVETAIL_HOSTILE_PODS=FILE, the pods and what they
// refer to are written there as JSON: the lab's test of crdtest has an API server admit them.
func TestEqualBytesDrawEqualPods(t *testing.T) {
	all := map[string][]runtime.Object{"classes": hostilepods.Classes()}
	for name, draw := range map[string]func(func() byte) []*corev1.Pod{
		"of any kind": hostilepods.Draw, "that prefer much": hostilepods.DrawPreferring, "that require much": hostilepods.DrawRequiring,
	} {
		for seed := range uint64(samples) {
			of := func() *corev1.Pod {
				random := rand.New(rand.NewPCG(seed, 3))
				return draw(func() byte { return byte(random.Uint32()) })[0]
			}
			pod := of()
			if !equality.Semantic.DeepEqual(pod, of()) {
				t.Errorf("pods %s, seed %d: another pod is drawn from the same bytes", name, seed)
			}
			pod.APIVersion, pod.Kind = "v1", "Pod"
			all[name] = append(all[name], pod)
		}
	}
	file := os.Getenv("DOVETAIL_HOSTILE_PODS")
	if file == "" {
		return
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
