package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func nodeAt(uid types.UID, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: uid, ResourceVersion: version}}
}

// The watch and the responses to writes come in either order: the latest version counts.
func TestOwnNodeIsTheLatest(t *testing.T) {
	var o ownNode
	if o.get() != nil {
		t.Error("there is a node from the start")
	}
	for _, tt := range []struct {
		what string
		do   func()
		want *corev1.Node
	}{
		{"the first", func() { o.see(nodeAt("a", "10")) }, nodeAt("a", "10")},
		{"an older one", func() { o.see(nodeAt("a", "9")) }, nodeAt("a", "10")},
		{"a newer one", func() { o.see(nodeAt("a", "11")) }, nodeAt("a", "11")},
		{"another that took its name", func() { o.see(nodeAt("b", "12")) }, nodeAt("b", "12")},
		{"the deletion of the former", func() { o.gone(nodeAt("a", "11")) }, nodeAt("b", "12")},
		{"the deletion of the latter", func() { o.gone(nodeAt("b", "13")) }, nil},
	} {
		tt.do()
		got := o.get()
		if (got == nil) != (tt.want == nil) || got != nil && (got.UID != tt.want.UID || got.ResourceVersion != tt.want.ResourceVersion) {
			t.Errorf("after %s: %+v, want %+v", tt.what, got, tt.want)
		}
	}
}

// A kubelet that is up reads nothing of its node: it watches it.
func TestKubeletWatchesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, client, log := node(t)
		k := New(cfg)
		go k.Run(t.Context())
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, a := range client.Actions() {
			if a.Matches("get", "nodes") {
				t.Fatalf("reads its node: %v", a)
			}
		}
		if err := client.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if k.own.get() != nil || log.count("Error updating node status") != 1 {
			t.Errorf("after the deletion of its node: %+v, log %q", k.own.get(), log.lines)
		}
	})
}
