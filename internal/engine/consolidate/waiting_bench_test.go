package consolidate_test

import (
	"fmt"
	"testing"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// BenchmarkPassWithWaitingPods is a pass over a cluster with pods that no plan can schedule: they follow pods that do not
// exist, in classes of their own.
func BenchmarkPassWithWaitingPods(b *testing.B) {
	for _, waiting := range []int{0, 10} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s := fleet(b, 500, 0.35, 1)
			for i := range waiting {
				s.Pods = append(s.Pods, Pod(fmt.Sprintf("waiting-%d", i), Labeled("app", fmt.Sprint("w", i)), Near(Zone, fmt.Sprint("gone-", i))))
			}
			pass(b, s)
		})
	}
}
