package kubelet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// Anyone who watches the pods of many nodes does not wait for one with API calls that hang, and nothing that it reports is
// lost.
func TestObserveDoesNotWaitForThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := pod(version("10")), pod(version("10"), named("later"))
		cfg, client, _ := node(t, first, second)
		answered := make(chan struct{})
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-answered
			return false, nil, nil
		})
		p := NewPods(cfg)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		p.Observe(first, false)
		synctest.Wait() // its first call hangs
		p.Observe(second, false)
		p.Observe(pod(version("9")), false) // an old state, seen late
		close(answered)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, name := range []string{first.Name, second.Name} {
			got, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Phase != corev1.PodRunning {
				t.Errorf("pod %s is %s", name, got.Status.Phase)
			}
		}
		stop()
		<-done
	})
}

func named(name string) edit {
	return func(p *corev1.Pod) { p.Name, p.UID = name, p.UID+"-2" }
}
