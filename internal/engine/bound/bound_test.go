package bound

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The bound of a NodePool is that of the pods on its nodes, at its own prices; that of the cluster is at the lowest prices of any.
func TestABoundIsOfThePodsAtThePricesOfTheirPool(t *testing.T) {
	types := func(price float64) []*catalog.InstanceType {
		return []*catalog.InstanceType{Type("m", price, "cpu", "4", "memory", "16Gi")}
	}
	pod := func(name string) *corev1.Pod { return Pod(name, Requests("cpu", "2", "memory", "1Gi")) }
	s := World([]snapshot.Pool{Pool("cheap", types(1)), Pool("dear", types(3))})
	s.Nodes = []snapshot.Node{
		Node("a", "cheap", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{pod("p")} }),
		Node("b", "dear", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{pod("q")} }),
		Node("c", "dear"),
	}
	goOn := func() bool { return false }
	cheap, _ := OfPool(s, "cheap", goOn)
	dear, ok := OfPool(s, "dear", goOn)
	if !ok || cheap <= 0 || cheap > 1 || math.Abs(dear-3*cheap) > 1e-6 {
		t.Errorf("one pod of the same size each: $%f/h in one pool, $%f/h in a pool with three times its prices", cheap, dear)
	}
	if all := Of(s); all <= 0 || all > 2*cheap+1e-6 {
		t.Errorf("both pods cost at least $%f/h, although both fit the cheap pool for %f each", all, cheap)
	}
	if none, _ := OfPool(s, "gone", goOn); none != 0 {
		t.Errorf("a NodePool without nodes costs at least $%f/h", none)
	}
}
