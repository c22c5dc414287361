package poolreport_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
)

// Without a plan, only what becomes of the nodes that are up is missing.
func TestWhatIsKnownOfANodePoolWithoutAPlan(t *testing.T) {
	s := fleet(9)
	s.Nodes[0].Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()}
	s.Nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse
	condition.SetTrueWithReason(s.NodeClaims[2], karpv1.ConditionDrifted, condition.Because(disrupt.NodePoolDrifted, ""), now.Add(-time.Hour))
	whole := report(t, s)
	known, err := poolreport.Known(viewOf(t, s), "general")
	if err != nil {
		t.Fatal(err)
	}
	if !known.Computing || whole.Computing {
		t.Errorf("computing is %t without a plan, %t with one", known.Computing, whole.Computing)
	}
	if len(known.Going)+len(known.Stays) > 0 || len(whole.Going)+len(whole.Stays) == 0 {
		t.Errorf("%d nodes go or stay without a plan, %d with one", len(known.Going)+len(known.Stays), len(whole.Going)+len(whole.Stays))
	}
	whole.Computing, whole.Going, whole.Stays, whole.Stopped, whole.Verdict = true, known.Going, known.Stays, known.Stopped, known.Verdict
	if diff := cmp.Diff(whole, known); diff != "" {
		t.Errorf("with a plan, it is reported otherwise:\n%s", diff)
	}
}

func TestAPoolWithoutNodesThatAreUpIsKnownWithoutAPlan(t *testing.T) {
	s := fleet(1)
	s.Nodes[0].Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()}
	known, err := poolreport.Known(viewOf(t, s), "general")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report(t, s), known); diff != "" {
		t.Errorf("with a plan, it is reported otherwise:\n%s", diff)
	}
}
