package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// The scenario hand-back fails for a controller that leaves a finalizer and a taint of its own, a change of an image and a label,
// and an instance without a NodeClaim.
func TestNaiveHandBackIsFound(t *testing.T) {
	t.Parallel()
	h := &handBackRun{}
	s := handBack()
	s.Steps = []Step{
		startController(),
		{Name: "launch nodes", Timeout: time.Minute, Run: h.launch},
		{Name: "the controller goes, and leaves a mess", Timeout: 30 * time.Second, Run: leaveMess},
		{Name: theScenarioFails, Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) (err error) {
			if h.other, err = newIncumbent(ctx, w); err != nil {
				return err
			}
			return h.clean(ctx, w, handedBack-1)
		}},
	}
	message := runNaive(t, s)
	for _, want := range []string{
		"would be terminated: it has the tags of cluster lab, and no NodeClaim", "has finalizer naive.example.com/mine, which nothing would remove",
		"has taint karpenter.sh/disrupted", `status.imageID is "ami-naive"`, "does not satisfy In [c m r]",
	} {
		if strings.Count(message, want) != 1 {
			t.Errorf("%q is not once in: %s", want, message)
		}
	}
	if n := strings.Count(message, "\n"); n != 4 {
		t.Errorf("%d lines more than expected: %s", n-4, message)
	}
}

// leaveMess kills the controller, and does to each NodeClaim what a naive controller might.
func leaveMess(ctx context.Context, w *World) error {
	if err := w.KillController(); err != nil {
		return err
	}
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	patch := func(o client.Object, text string) error {
		return w.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	node := func(i int) *corev1.Node {
		n := &corev1.Node{}
		n.Name = claims.Items[i].Status.NodeName
		return n
	}
	const category = `{"metadata":{"labels":{"karpenter.k8s.aws/instance-category":"t"}}}`
	err := errors.Join(
		patch(&claims.Items[0], `{"metadata":{"finalizers":null}}`), w.Client.Delete(ctx, &claims.Items[0]),
		patch(node(1), `{"metadata":{"finalizers":["karpenter.sh/termination","naive.example.com/mine"]}}`),
		patch(node(2), `{"spec":{"taints":[{"key":"karpenter.sh/disrupted","effect":"NoSchedule"}]}}`),
		w.Client.Status().Patch(ctx, &claims.Items[3], client.RawPatch(types.MergePatchType, []byte(`{"status":{"imageID":"ami-naive"}}`))),
		patch(&claims.Items[4], category),
	)
	if err != nil {
		return fmt.Errorf("leave a mess: %w", err)
	}
	return nil
}
