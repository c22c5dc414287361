package kill_test

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/initialization"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/launch"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

const (
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	agentNotReady = "agent.example.com/not-ready"
)

// newClaim is a claim as the provisioner leaves it.
func newClaim() *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "general-a", UID: "claim", Labels: map[string]string{karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: "default"},
		Annotations: map[string]string{karpv1.AnnotationNominatedPods: "pod", "note": "kept"},
	}}
	c.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	c.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	c.Spec.StartupTaints = []corev1.Taint{{Key: agentNotReady, Effect: corev1.TaintEffectNoExecute}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 1000 * time.Hour}
	return c
}

func newClass() *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class"}}
	for _, typ := range c.ConditionTypes().Dependents {
		condition.SetTrue(c, typ, kill.Start)
	}
	return c
}

// process starts everything that leads a claim through its life.
func process(t *testing.T) func(w *kill.World, c client.Client, ec2 *kill.Cloud) []kill.Actor {
	return func(w *kill.World, c client.Client, ec2 *kill.Cloud) []kill.Actor {
		metrics, err := metrics.New(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		events := event.NewRecorder(&record.FakeRecorder{}, w.Now)
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		evictor := &termination.Evictor{Client: c, Guard: destroytest.Guard(c, w.Now), Events: events, Metrics: metrics, Log: log, Now: w.Now}
		return []kill.Actor{
			{
				Kind:       &karpv1.NodeClaimList{},
				Reconciler: &launch.Reconciler{Client: c, Guard: destroytest.Guard(c, w.Now), Cloud: ec2, Events: events, Metrics: metrics, Log: log, Now: w.Now},
			},
			{
				Kind: &karpv1.NodeClaimList{},
				Reconciler: &registration.Reconciler{
					Client:  c,
					Live:    c,
					Health:  health.NewTracker(c, w.Now),
					Events:  events,
					Metrics: metrics,
					Log:     log,
					Now:     w.Now,
				},
			},
			{Kind: &karpv1.NodeClaimList{}, Reconciler: &initialization.Reconciler{Client: c, Events: events, Log: log, Now: w.Now}},
			{
				Kind:       &karpv1.NodeClaimList{},
				Reconciler: &termination.ClaimReconciler{Client: c, Guard: destroytest.Guard(c, w.Now), Cloud: ec2, Events: events, Metrics: metrics, Log: log, Now: w.Now},
			},
			{
				Kind: &corev1.NodeList{},
				Reconciler: &termination.NodeReconciler{
					Client: c, Guard: destroytest.Guard(c, w.Now),
					Cloud:   ec2,
					Evictor: evictor,
					Events:  events,
					Metrics: metrics,
					Log:     log,
					Now:     w.Now,
				},
			},
		}
	}
}

// boot lets running instances join as nodes, and takes the taints of their start-up away, once.
func boot(t *testing.T, w *kill.World) {
	t.Helper()
	for i, m := range w.Cloud.All {
		node := &corev1.Node{}
		err := w.API.Get(t.Context(), client.ObjectKey{Name: nodeName(i)}, node)
		switch {
		case err != nil && m.State == cloudprovider.Running:
			must(t, w.API.Create(t.Context(), joining(i, m)))
		case err != nil:
		case m.State != cloudprovider.Running:
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			must(t, w.API.Status().Update(t.Context(), node))
		case node.Labels[karpv1.LabelRegistered] == "true" && node.Annotations["started"] == "":
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "started", "yes")
			node.Spec.Taints = slices.DeleteFunc(
				node.Spec.Taints,
				func(t corev1.Taint) bool { return t.Key == uninitialized || t.Key == agentNotReady },
			)
			must(t, w.API.Update(t.Context(), node))
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func joining(i int, m *kill.Instance) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(nodeName(i))}}
	n.Spec.ProviderID = m.ProviderID
	n.Spec.Taints = []corev1.Taint{karpv1.TaintUnregistered(), {Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func launches(t *testing.T, w *kill.World, want int) {
	t.Helper()
	if got := len(w.Cloud.All); got != want {
		t.Errorf("%d instances were launched, want %d", got, want)
	}
}

func TestFromClaimToNode(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return []client.Object{newClaim(), newClass()} },
		Process: process(t),
		Others:  boot,
		Check: func(t *testing.T, w *kill.World) {
			launches(t, w, 1)
			claim, node := &karpv1.NodeClaim{}, &corev1.Node{}
			must(t, w.API.Get(t.Context(), client.ObjectKey{Name: "general-a"}, claim))
			must(t, w.API.Get(t.Context(), client.ObjectKey{Name: "node-0"}, node))
			if !condition.IsTrue(claim, condition.Ready) || claim.Status.NodeName != node.Name {
				t.Errorf("claim is not ready: %+v", claim.Status)
			}
			if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "dedicated" {
				t.Errorf("taints %v, want only the claim's own: a taint that was removed has come back", node.Spec.Taints)
			}
		},
	})
}

// up is a claim with a node that is ready for use.
func up() []client.Object {
	claim := newClaim()
	node := joining(0, &kill.Instance{ProviderID: "aws:///us-east-1a/i-1"})
	node.Labels = map[string]string{
		karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: "default", karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true",
	}
	node.Spec.Taints = claim.Spec.Taints
	claim.Status.ProviderID, claim.Status.NodeName = node.Spec.ProviderID, node.Name
	for _, o := range []client.Object{claim, node} {
		o.SetFinalizers([]string{karpv1.FinalizerTermination})
	}
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
		condition.SetTrue(claim, typ, kill.Start)
	}
	return []client.Object{claim, node, newClass()}
}

// terminationScenario lets a pod run on a node that is ready, wants the node gone once it does, and lets the pod leave
// when it is requested to.
type terminationScenario struct {
	// gone deletes what sets the end in motion.
	gone func(t *testing.T, w *kill.World)
}

func (l terminationScenario) others(t *testing.T, w *kill.World) {
	t.Helper()
	if w.Round == 0 {
		w.Cloud.Add(newClaim())
	}
	boot(t, w)
	claim, node, pod := &karpv1.NodeClaim{}, &corev1.Node{}, &corev1.Pod{}
	if w.API.Get(t.Context(), client.ObjectKey{Name: "general-a"}, claim) != nil ||
		w.API.Get(t.Context(), client.ObjectKey{Name: "node-0"}, node) != nil {
		return
	}
	running := w.API.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, pod) == nil
	closed := false
	for _, taint := range node.Spec.Taints {
		closed = closed || taint.Key == karpv1.TaintKeyDisrupted
	}
	switch {
	case running && closed:
		must(t, w.API.Delete(t.Context(), pod))
	case running && claim.DeletionTimestamp == nil && node.DeletionTimestamp == nil:
		l.gone(t, w)
	case !running && !closed && condition.IsTrue(claim, karpv1.ConditionInitialized) && claim.DeletionTimestamp == nil:
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		pod.Spec.NodeName = node.Name
		must(t, w.API.Create(t.Context(), pod))
	}
	w.Cloud.MayTerminate = func(*kill.Instance) error {
		if err := w.API.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &corev1.Pod{}); err == nil {
			return fmt.Errorf("pod web still runs on it")
		}
		return nil
	}
}

func wantNothingLeft(t *testing.T, w *kill.World) {
	t.Helper()
	if len(w.Cloud.All) > 1 {
		t.Errorf("%d instances were launched for one claim", len(w.Cloud.All))
	}
	for _, list := range []client.ObjectList{&karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}} {
		must(t, w.API.List(t.Context(), list))
		switch l := list.(type) {
		case *karpv1.NodeClaimList:
			if len(l.Items) > 0 {
				t.Errorf("claims are left: %+v", l.Items)
			}
		case *corev1.NodeList:
			if len(l.Items) > 0 {
				t.Errorf("nodes are left: %+v", l.Items)
			}
		case *corev1.PodList:
			if len(l.Items) > 0 {
				t.Errorf("pods are left: %+v", l.Items)
			}
		}
	}
	for _, m := range w.Cloud.All {
		if m.State != cloudprovider.Terminated {
			t.Errorf("instance %s is %s", m.ProviderID, m.State)
		}
	}
}

func TestFromNodeToNothing(t *testing.T) {
	tests := []struct {
		name string
		gone func(t *testing.T, w *kill.World)
	}{
		{"the claim is deleted", func(t *testing.T, w *kill.World) {
			must(t, w.API.Delete(t.Context(), &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-a"}}))
		}},
		{"the Node is deleted", func(t *testing.T, w *kill.World) {
			must(t, w.API.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kill.Run(t, kill.Scenario{
				Objects: up,
				Process: process(t),
				Others:  terminationScenario{tt.gone}.others,
				Check:   wantNothingLeft,
			})
		})
	}
}

// A claim may be deleted at any moment of its start.
func TestDeletedWhileStarting(t *testing.T) {
	for round := range 4 {
		t.Run(fmt.Sprintf("in round %d", round), func(t *testing.T) {
			kill.Run(t, kill.Scenario{
				Objects: func() []client.Object { return []client.Object{newClaim(), newClass()} },
				Process: process(t),
				Others: func(t *testing.T, w *kill.World) {
					boot(t, w)
					if w.Round == round {
						must(t, client.IgnoreNotFound(w.API.Delete(t.Context(), &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "general-a"}})))
					}
					// The cloud controller manager deletes the Nodes of instances that are gone.
					for i, m := range w.Cloud.All {
						if m.State == cloudprovider.Terminated {
							must(t, client.IgnoreNotFound(w.API.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}})))
						}
					}
				},
				Check: func(t *testing.T, w *kill.World) {
					wantNothingLeft(t, w)
					w.Cloud.All = nil // whether there was one depends on when the claim went
				},
			})
		})
	}
}
