package live

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever is added, updated, deleted and read anew, the list has each pod once, in order.
func TestPodsAreInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := newStore(kind{resource: "pods"}, func() {})
	want := map[string]bool{}
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("ns-", random.IntN(4)), Name: fmt.Sprint("pod-", random.IntN(60)),
		}}
	}
	for step := range 5000 {
		p := pod()
		switch action := random.IntN(100); {
		case action < 1:
			clear(want)
			var list []any
			for range random.IntN(50) {
				p := pod()
				want[p.Namespace+"/"+p.Name] = true
				list = append(list, p)
			}
			check(t, s.Replace(list, "1"))
		case action < 40:
			delete(want, p.Namespace+"/"+p.Name)
			check(t, s.Delete(p))
		case action < 70:
			want[p.Namespace+"/"+p.Name] = true
			check(t, s.Add(p))
		default:
			want[p.Namespace+"/"+p.Name] = true
			check(t, s.Update(p))
		}
		var got []string
		for _, p := range s.podList() {
			got = append(got, p.Namespace+"/"+p.Name)
		}
		if len(got) != len(want) || !slices.IsSortedFunc(got, strings.Compare) {
			t.Fatalf("step %d: %d pods, want %d: %v", step, len(got), len(want), got)
		}
		for _, key := range got {
			if !want[key] {
				t.Fatalf("step %d: %s is in the list", step, key)
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLargeClustersAreDrawnLessOften(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond:       500 * time.Millisecond,
		20 * time.Millisecond:  2 * time.Second,
		300 * time.Millisecond: 5 * time.Second,
	} {
		if got := refreshPause(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
