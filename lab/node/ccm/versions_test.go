package ccm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestVersions(t *testing.T) {
	at := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
	}
	var v versions
	if v.newerThan(at("9")) {
		t.Error("a node that was never written counts as written")
	}
	v.remember(at("10"))
	for version, want := range map[string]bool{"9": true, "10": false, "11": false} {
		if got := v.newerThan(at(version)); got != want {
			t.Errorf("after a write of version 10, version %s is stale: %v, want %v", version, got, want)
		}
	}
	v.forget(cache.DeletedFinalStateUnknown{Key: "n", Obj: at("10")})
	if v.newerThan(at("9")) {
		t.Error("a write is remembered after the deletion of its node")
	}
}
