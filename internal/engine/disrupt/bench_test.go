package disrupt_test

import (
	"fmt"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// aged is a fleet at 35 % use with a PDB for every tenth application.
func fleetWithPDBs(tb testing.TB, nodes int) *snapshot.Snapshot {
	tb.Helper()
	list, err := workload.EC2Types("us-east-1", karpv1.CapacityTypeOnDemand)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := workload.RunningCluster(nodes, 0.35, 1, list)
	if err != nil {
		tb.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			app := p.Labels["app"]
			if app == "" || seen[app] {
				continue
			}
			if seen[app] = true; len(seen)%10 != 0 {
				continue
			}
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: app}}
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
			b.Status.DisruptionsAllowed = 1
			s.PDBs = append(s.PDBs, b)
		}
	}
	return s
}

// BenchmarkLook finds the candidates of a fleet: the first step of each pass.
func BenchmarkLook(b *testing.B) {
	for _, nodes := range []int{100, 500, 2_000, 10_000} {
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			s := fleetWithPDBs(b, nodes)
			b.ReportAllocs()
			for b.Loop() {
				if v := disrupt.NewView(s); len(v.Candidates) == 0 {
					b.Fatal("no candidates")
				}
			}
		})
	}
}

// BenchmarkFingerprint hashes the snapshot: the other step of a pass with nothing to do.
func BenchmarkFingerprint(b *testing.B) {
	for _, nodes := range []int{2_000, 10_000} {
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			s := fleetWithPDBs(b, nodes)
			v := disrupt.NewView(s)
			room := v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionUnderutilized))
			b.ReportAllocs()
			for b.Loop() {
				v.Fingerprint(room)
			}
		})
	}
}
