package podreport

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestUnknownPodsAreAnsweredWithTheNearestOnes(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range []string{"shop/web-7c9-abcde", "shop/web-7c9-fghij", "shop/api-0", "bank/ledger-0"} {
		namespace, name, _ := strings.Cut(name, "/")
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for name, want := range map[string]string{
		"shop/ledger-0": "there is bank/ledger-0",
		"shop/web-7c9":  "there is shop/web-7c9-abcde, shop/web-7c9-fghij",
		"shop/apj-0":    "did you mean shop/api-0?",
		"shpo/web":      "namespace shpo has no pods",
		"shop/ledger":   "it may have been deleted",
	} {
		namespace, name, _ := strings.Cut(name, "/")
		_, err := find(pods, types.NamespacedName{Namespace: namespace, Name: name})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s/%s: %v, want %q", namespace, name, err, want)
		}
	}
	if _, err := find(nil, types.NamespacedName{Namespace: "a", Name: "b"}); err == nil || !strings.Contains(err.Error(), "no pods at all") {
		t.Errorf("an empty cluster: %v", err)
	}
}
