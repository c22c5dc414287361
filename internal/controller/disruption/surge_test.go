package disruption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
)

// singleton is a Deployment with one pod on a node, and its ReplicaSet.
func singleton(node string, modes string, change ...func(*appsv1.Deployment)) []client.Object {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "deployment", Generation: 1}}
	if modes != "" {
		d.Annotations = map[string]string{karpv1.AnnotationDrain: modes}
	}
	d.Spec.Replicas, d.Spec.Selector = new(int32(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	for _, c := range change {
		c(d)
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "set"}}
	set.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)},
	}
	return []client.Object{d, set, controllertest.Pod("web-1-a", node, requestsCPU("1500m"), ofDeployment("1"))}
}

// ofDeployment makes a pod one of the singleton, of its ReplicaSet with a hash.
func ofDeployment(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-" + hash, UID: "set", Controller: new(true)},
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// driftedSingleton is a drifted node with the only pod of a Deployment.
func driftedSingleton(modes string, change ...func(*appsv1.Deployment)) []client.Object {
	return append([]client.Object{
		controllertest.Class(), controllertest.Pool("general", budget("100%")), controllertest.Claim("a", drifted),
		controllertest.ReadyNode("a", asInstance("m.small")),
	}, singleton("node-a", modes, change...)...)
}

// surging returns a Loop that restarts Deployments.
func surging(f *controllertest.Fixture) *Loop {
	l := newLoopWithTypes(f)
	l.Queue.SurgeTimeout = 10 * time.Minute
	return l
}

func deployment(t *testing.T, api client.Reader) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// observe does what API server and Deployment controller do about a template that has changed.
func observe(t *testing.T, api client.Client, conditions ...appsv1.DeploymentCondition) {
	t.Helper()
	d := deployment(t, api)
	d.Generation++
	if err := api.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Status.ObservedGeneration, d.Status.Conditions = d.Generation, conditions
	if err := api.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// rollOut does what the Deployment controller and the kubelet do about a template that has changed: observe, add a pod on another node, and
// delete the old one.
func rollOut(t *testing.T, api client.Client) {
	t.Helper()
	observe(t, api)
	next := controllertest.Pod("web-2-a", "node-b", requestsCPU("1500m"), ofDeployment("2"))
	if err := api.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	old := controllertest.Pod("web-1-a", "node-a")
	if err := api.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// replaced brings up the replacement of a drifted node.
func replaced(t *testing.T, f *controllertest.Fixture, l *Loop) {
	t.Helper()
	passes(t, l)
	created := replacements(f)
	if len(created) != 1 {
		t.Fatalf("%d replacements", len(created))
	}
	f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
}

func TestOnlyPodIsRestartedBeforeItsNodeGoes(t *testing.T) {
	f := controllertest.New(t, driftedSingleton("Surge")...)
	l := surging(f)
	passes(t, l)
	runDue(t, l)
	if at := deployment(t, f.API).Spec.Template.Annotations[annotationRestartedAt]; at != "" {
		t.Fatalf("restarted at %s, before the replacement is up", at)
	}
	created := replacements(f)
	f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
	for range 3 { // the wait begins, the restart is recorded, and made
		if again := runDue(t, l); again != surgePollInterval {
			t.Errorf("looks again after %v", again)
		}
	}
	if at, want := deployment(t, f.API).Spec.Template.Annotations[annotationRestartedAt], f.Now().UTC().Format(time.RFC3339); at != want {
		t.Fatalf("restarted at %q, want %s", at, want)
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "SurgeRestarted Restarted to move its pod to another node") {
		t.Errorf("events\n%s", said)
	}
	if len(deletingClaims(f)) > 0 {
		t.Fatal("the node goes before the next pod is up")
	}
	rollOut(t, f.API)
	runDue(t, l)
	if got := deletingClaims(f); len(got) != 1 || got[0] != "a" {
		t.Errorf("deleted %v", got)
	}
}

// A node that goes without a replacement waits for the restart, too, since its pods move to nodes that exist.
func TestOnlyPodIsRestartedWhereNoReplacementIsNeeded(t *testing.T) {
	objects := []client.Object{
		controllertest.Class(), controllertest.Pool("general", consolidates, func(p *karpv1.NodePool) {
			p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse("1")}
			p.Annotations = map[string]string{karpv1.AnnotationDrain: "SurgeSingletons"}
		}),
		controllertest.Claim("a", old), controllertest.ReadyNode("a", asInstance("m.large")),
		controllertest.Claim("b", old), controllertest.ReadyNode("b", asInstance("m.large")),
		controllertest.Pod("api", "node-b", requestsCPU("5")),
	}
	f := controllertest.New(t, append(objects, singleton("node-a", "")...)...)
	l := surging(f)
	passes(t, l)
	if len(deletingClaims(f)) > 0 || !isTainted(f, "node-a") {
		t.Fatalf("deleted %v, tainted %v", deletingClaims(f), isTainted(f, "node-a"))
	}
	for range 3 {
		runDue(t, l)
	}
	if deployment(t, f.API).Spec.Template.Annotations[annotationRestartedAt] == "" || len(deletingClaims(f)) > 0 {
		t.Fatalf("not restarted, or deleted before: %v", deletingClaims(f))
	}
	rollOut(t, f.API)
	runDue(t, l)
	if got := deletingClaims(f); len(got) != 1 || got[0] != "a" {
		t.Errorf("deleted %v", got)
	}
}

// Without an opt-in, and with one that cannot be kept, the node goes at once, as with Karpenter.
func TestPodsThatAreEvictedWithoutARestart(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		objects []client.Object
		event   string
	}{
		{name: "nobody has opted in", timeout: 10 * time.Minute, objects: driftedSingleton("")},
		{name: "the setting is off", objects: driftedSingleton("Surge")},
		{name: "another mode", timeout: 10 * time.Minute, objects: driftedSingleton("Ordered")},
		{
			name: "a word that is no mode", timeout: 10 * time.Minute, objects: driftedSingleton("Surge,Now"),
			event: `InvalidAnnotation Pods are evicted without a restart first: annotation dovetail.sh/drain: "Now" is none of`,
		},
		{
			name: "two replicas, one elsewhere", timeout: 10 * time.Minute, objects: append(
				driftedSingleton("Surge", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) }),
				controllertest.Pod("web-1-b", "node-c", ofDeployment("1")),
			),
		},
		{
			name: "it cannot be restarted without a gap", timeout: 10 * time.Minute,
			objects: driftedSingleton("Surge", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }),
			event:   "SurgeImpossible Pods are evicted without a restart first: spec.strategy.type is Recreate",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.objects...)
			l := newLoopWithTypes(f)
			l.Queue.SurgeTimeout = tt.timeout
			replaced(t, f, l)
			runDue(t, l)
			runDue(t, l)
			if got := deletingClaims(f); len(got) != 1 || deployment(t, f.API).Spec.Template.Annotations[annotationRestartedAt] != "" {
				t.Errorf("deleted %v, template %+v", got, deployment(t, f.API).Spec.Template.Annotations)
			}
			if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, tt.event) {
				t.Errorf("events\n%s", said)
			}
		})
	}
}

func TestRestartThatIsNotAllowed(t *testing.T) {
	f := controllertest.New(t, driftedSingleton("Surge")...)
	l := surging(f)
	l.Queue.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, is := o.(*appsv1.Deployment); is {
				return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, o.GetName(), nil)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	replaced(t, f, l)
	for range 4 {
		runDue(t, l)
	}
	if len(deletingClaims(f)) != 1 {
		t.Error("the node stays")
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	if !strings.Contains(said, "SurgeImpossible") || !strings.Contains(said, "settings.surgeDrain") {
		t.Errorf("events\n%s", said)
	}
}

// A next pod that does not become Ready keeps the old one: the command is rolled back, and the pool waits.
func TestRestartFails(t *testing.T) {
	f := controllertest.New(t, driftedSingleton("Surge")...)
	l := surging(f)
	replaced(t, f, l)
	for range 3 {
		runDue(t, l)
	}
	observe(t, f.API, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse})
	runDue(t, l)
	wantRestored(t, f, "a")
	if len(replacements(f)) > 0 {
		t.Error("the replacement stays")
	}
	passes(t, l)
	if len(replacements(f)) > 0 {
		t.Error("the pool does not wait")
	}
}

// A volume of one node cannot be used by two pods.
func TestVolumeOfOneNode(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	shared := pvc.DeepCopy()
	shared.Name, shared.Spec.AccessModes = "shared", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for name, want := range map[string]string{"data": "data", "shared": "", "missing": ""} {
		f := controllertest.New(t, pvc.DeepCopy(), shared.DeepCopy())
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		d.Spec.Template.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}},
		}
		if got, err := surging(f).Queue.exclusive(t.Context(), d); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Killed at any write, the Deployment is restarted once, its next pod is up before the node goes, and the command is carried through.
func TestSurgeKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return driftedSingleton("Surge") },
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			l := newLoop(controllertest.New(t), c, newStateWithTypes(c, w.Now), w.Now)
			l.Queue.SurgeTimeout = 10 * time.Minute
			return actors(l)
		},
		Others: func(t *testing.T, w *kill.World) {
			bootReplacements("a")(t, w)
			d := deployment(t, w.API)
			at := d.Spec.Template.Annotations[annotationRestartedAt]
			switch next := (&corev1.Pod{}); {
			case at == "":
				if claim := (&karpv1.NodeClaim{}); w.API.Get(t.Context(), client.ObjectKey{Name: "a"}, claim) == nil && claim.DeletionTimestamp != nil {
					t.Fatalf("round %d: the node goes before the restart", w.Round)
				}
			case w.API.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-2-a"}, next) != nil:
				d.Annotations["test/restarted"] = at
				if err := w.API.Update(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				rollOut(t, w.API)
			case d.Annotations["test/restarted"] != at:
				t.Fatalf("round %d: restarted twice: %s and %s", w.Round, d.Annotations["test/restarted"], at)
			}
		},
		Check: wantOneNode,
	})
}

// The record of a restart is on the claim as JSON that the next version can read.
func TestRecordOfARestart(t *testing.T) {
	f := controllertest.New(t, driftedSingleton("Surge")...)
	l := surging(f)
	replaced(t, f, l)
	for range 3 {
		runDue(t, l)
	}
	e, _, err := f.Claim("a").DisruptionCommand()
	if err != nil || len(e.Surges) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	got := e.Surges[0]
	if fmt.Sprintf("%s/%s %s", got.Namespace, got.Name, got.UID) != "shop/web deployment" || got.Began == nil || got.Restarted == nil ||
		got.Generation != 1 || got.GaveUp {
		t.Errorf("%+v", got)
	}
	c, err := l.Queue.read(t.Context(), e.ID)
	if err != nil || len(c.Surges) != 1 || c.Surges[0].Claim != "a" || inflight.Next(c, f.Now()).Action != inflight.Restart {
		t.Errorf("%+v, %v", c, err)
	}
}
