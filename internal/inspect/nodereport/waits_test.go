package nodereport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/rollout"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
)

// drift has the node of the world drift to image ami-new.
func (w *world) drift() {
	condition.SetTrueWithReason(w.claim(), karpv1.ConditionDrifted, condition.Because("AMIDrift", "AMIDrift"), now.Add(-time.Hour))
	w.NodeClasses["default"].Status.AMIs = []awsv1.AMI{{ID: "ami-new"}}
}

// addReplacements adds two nodes with that image, initialized so long ago, which replaced others.
func (w *world) addReplacements(ago time.Duration) {
	for _, name := range []string{"new-1", "new-2"} {
		w.addNode(name, "m.large", "4", "16Gi")
		claim, node := w.NodeClaims[len(w.NodeClaims)-1], w.Nodes[len(w.Nodes)-1]
		claim.CreationTimestamp, node.CreationTimestamp = metav1.NewTime(now.Add(-ago)), metav1.NewTime(now.Add(-ago))
		claim.Annotations = map[string]string{karpv1.AnnotationLaunchReason: string(karpv1.DisruptionDrifted)}
		claim.Status.ImageID = "ami-new"
		claim.SetConditions(nil)
		for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
			condition.SetTrue(claim, typ, now.Add(-ago))
		}
		w.addPod("on-"+name, name, "3500m")
	}
}

// newNodesFail records on the pool that two new nodes have failed.
func (w *world) newNodesFail(t *testing.T) {
	t.Helper()
	var verdicts []breaker.Verdict
	for i := range 2 {
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("bad-", i), UID: types.UID(fmt.Sprint("bad-", i)), CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
		}}
		claim.Status.ImageID = "ami-new"
		condition.SetTrue(claim, karpv1.ConditionInitialized, now.Add(-4*time.Minute))
		fault := breaker.Health{Fault: "Ready is Unknown (NodeStatusUnknown)", Since: now.Add(-3 * time.Minute)}
		verdicts = append(verdicts, breaker.Windows{}.Judge(claim, fault, now))
	}
	b := &breaker.History{}
	b.AddVerdicts(verdicts, 2)
	if _, err := b.Write(w.pool(), false); err != nil {
		t.Fatal(err)
	}
}

// rollOut has the pool roll out with two canaries.
func (w *world) rollOut(t *testing.T) {
	t.Helper()
	metav1.SetMetaDataAnnotation(&w.pool().ObjectMeta, karpv1.AnnotationRollout, "Canary")
	b := &breaker.History{Rollout: &rollout.State{
		Images: []string{"ami-new"}, Canaries: 2, Nodes: 20, Soak: metav1.Duration{Duration: karpv1.DefaultRolloutSoak},
	}}
	if _, err := b.Write(w.pool(), false); err != nil {
		t.Fatal(err)
	}
}

// crowd adds as many pending pods as put searches off, which have waited so long and fit nowhere.
func (w *world) crowd(ago time.Duration) {
	for i := range disrupt.ManyPending {
		w.addPod(fmt.Sprint("pending-", i), "", "100m")
		pod := w.Pods[len(w.Pods)-1]
		pod.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		}}
		pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z9"}
	}
}

// A node that would go states what its removal waits for, although nothing of the node itself keeps it.
func TestWhatTheRemovalOfANodeWaitsFor(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, w *world)
		state nodereport.State
		says  string
	}{
		{
			"the first new nodes are in their soak", func(_ *testing.T, w *world) { w.drift(); w.addReplacements(time.Minute) }, nodereport.Stays,
			"stays for now: the first nodes with what NodePool and EC2NodeClass are now must stay ready for 3m0s before others are replaced: " +
				"NodeClaims general-new-1, general-new-2. It should go: it drifted (AMIDrift",
		},
		{
			"they have survived it", func(_ *testing.T, w *world) { w.drift(); w.addReplacements(4 * time.Minute) }, nodereport.Goes,
			"is replaced in one of the next passes: it drifted (AMIDrift",
		},
		{
			"canaries are in their soak", func(t *testing.T, w *world) { w.drift(); w.addReplacements(4 * time.Minute); w.rollOut(t) }, nodereport.Stays,
			"stays for now: wave 1 of 4 of the roll-out, with 0 of 20 nodes replaced: NodeClaims general-new-1, general-new-2 must stay healthy, " +
				"with their pods, until 2026-11-23T03:18:00Z at least, for a soak of 10m0s. It should go: it drifted (AMIDrift",
		},
		{
			"canaries have survived", func(t *testing.T, w *world) { w.drift(); w.addReplacements(10 * time.Minute); w.rollOut(t) }, nodereport.Goes,
			"is replaced in one of the next passes: it drifted (AMIDrift",
		},
		{
			"new nodes fail", func(t *testing.T, w *world) { w.drift(); w.newNodesFail(t) }, nodereport.Stays,
			"stays for now: 2 of the last 2 new nodes of NodePool general, EC2NodeClass default and image ami-new became ready and failed 1m0s later",
		},
		{
			"expired, and new nodes fail", func(t *testing.T, w *world) {
				w.newNodesFail(t)
				w.claim().CreationTimestamp = metav1.NewTime(now.Add(-1000 * time.Hour))
			}, nodereport.Stays, "has reached its expireAfter of 720h, and stays for now: 2 of the last 2 new nodes",
		},
		{
			"many pods have come", func(_ *testing.T, w *world) { w.crowd(time.Minute) }, nodereport.Stays,
			"stays for now: 500 pods wait for nodes. While 500 or more do, no search looks for cheaper nodes, until 2026-11-23T03:16:00Z at the latest. " +
				"It should go: without it, its pods cost $0.15/h less",
		},
		{
			"empty, and many pods have come", func(_ *testing.T, w *world) { w.Pods = nil; w.crowd(time.Minute) }, nodereport.Stays,
			"stays for now: 500 pods wait for nodes. While 500 or more do, no pass removes nodes, until 2026-11-23T03:14:00Z at the latest. It should go: it is empty",
		},
		{
			"drifted, and many pods have come", func(_ *testing.T, w *world) { w.drift(); w.crowd(4 * time.Minute) }, nodereport.Goes,
			"is replaced in one of the next passes",
		},
		{
			"many pods have waited for long", func(_ *testing.T, w *world) { w.crowd(5 * time.Minute) }, nodereport.Goes, "goes in the next pass",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := lone()
			tt.plant(t, w)
			if r := explained(t, w); r.Verdict.State != tt.state || !strings.Contains(r.Verdict.Text, tt.says) {
				t.Errorf("%s: %s\nwant %s: %s", r.Verdict.State, r.Verdict.Text, tt.state, tt.says)
			}
		})
	}
}
