package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// canaries is rollout with two zones, in a pool with the annotation.
func canaries(annotation string, fresh ...string) []client.Object {
	objects := rollout(fresh...)
	objects[0].SetAnnotations(map[string]string{karpv1.AnnotationRollout: annotation})
	for i, o := range objects[2:] {
		if strings.HasPrefix(o.GetName(), "old-") {
			o.SetLabels(map[string]string{karpv1.LabelNodePool: "general", corev1.LabelTopologyZone: fmt.Sprint("zone-", i%2)})
		}
	}
	return objects
}

// grow adds new nodes of the roll-out, initialized now.
func grow(f *controllertest.Fixture, names ...string) {
	for _, name := range names {
		f.Do(f.API.Create(f.Context(), replacement(name, controllertest.Initialized, func(c *karpv1.NodeClaim) {
			c.CreationTimestamp.Time = f.Clock
			for i := range c.Status.Conditions {
				c.Status.Conditions[i].LastTransitionTime = metav1.NewTime(f.Clock)
			}
		})))
		f.Do(f.API.Create(f.Context(), controllertest.ReadyNode(name)))
	}
}

func rolloutCondition(f *controllertest.Fixture) metav1.Condition {
	pool := controllertest.Pool("general")
	f.Get(pool)
	c, _ := condition.Get(pool, karpv1.ConditionRollout)
	return c
}

// starts returns how many replacements may start.
func starts(t *testing.T, b *Breaker) int {
	t.Helper()
	limit, limited := b.Limit(t.Context(), "general", drifted)
	if !limited {
		return 1000
	}
	return limit.Starts
}

// Each wave is twice as large as the one before, and begins when all nodes have survived; another process goes on where one has stopped.
func TestWavesDouble(t *testing.T) {
	f := controllertest.New(t, canaries(`{"mode":"Canary","soak":"5m"}`)...)
	r := reconciler(t, f, 2)
	next := 0
	for wave, want := range []int{2, 4, 8} {
		f.Reconcile(r, "general")
		b := New(f.API, Rules{Threshold: 2}, f.Now)
		if got := starts(t, b); got != want {
			t.Fatalf("%d may start in wave %d, want %d", got, wave+1, want)
		}
		if c := rolloutCondition(f); c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Message, fmt.Sprintf("wave %d of 4", wave+1)) {
			t.Errorf("condition: %+v", c)
		}
		for range want {
			grow(f, fmt.Sprint("new-", next))
			next++
		}
		f.Reconcile(r, "general")
		if got := starts(t, b); got != 0 {
			t.Errorf("%d may start while wave %d soaks", got, wave+1)
		}
		if c := rolloutCondition(f); !strings.Contains(c.Message, "must stay healthy, with their pods, until "+f.Clock.Add(5*time.Minute).UTC().Format(time.RFC3339)) {
			t.Errorf("condition: %+v", c)
		}
		f.Clock = f.Clock.Add(5*time.Minute - time.Second)
		if got := starts(t, b); got != 0 {
			t.Errorf("%d may start a second before wave %d is over", got, wave+1)
		}
		f.Clock = f.Clock.Add(time.Second)
	}
}

// The first failure of a canary pauses, names what the node is, and is on the object for the next process.
func TestACanaryThatFailsPauses(t *testing.T) {
	f := controllertest.New(t, canaries("Canary")...)
	r := reconciler(t, f, 2)
	f.Reconcile(r, "general")
	grow(f, "a", "b")
	f.Clock = f.Clock.Add(4 * time.Minute)
	fail(f, "a")
	f.Clock = f.Clock.Add(30 * time.Second)
	f.Reconcile(r, "general")
	reason, message := paused(f)
	for _, part := range []string{
		"paused in wave 1 of 4: 1 of the last 1 new nodes", "failed 4m0s later", "EC2NodeClass default at generation 0, image ami-bad", "NodeClaim a",
	} {
		if reason != "NewNodesFail" || !strings.Contains(message, part) {
			t.Errorf("%s: %s: want %q", reason, message, part)
		}
	}
	if c := rolloutCondition(f); c.Status != metav1.ConditionFalse || c.Reason != "Paused" || c.Message != message {
		t.Errorf("condition: %+v", c)
	}
	if n := starts(t, New(f.API, Rules{Threshold: 2}, f.Now)); n != 0 {
		t.Errorf("%d may start", n)
	}
}

// A pod that crashes on a new node, and not on old ones, fails the node.
func TestPodsOfANewNodeAreComparedWithTheirSiblings(t *testing.T) {
	yes := true
	crashing := func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{{
				RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			}},
		}
	}
	web := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "web", Controller: &yes}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	for name, siblings := range map[string][]func(*corev1.Pod){"healthy": {web}, "crashing": {web, crashing}} {
		objects := append(canaries("Canary"), controllertest.ReadyNode("old-1"),
			controllertest.Pod("web-1", "node-old-1", siblings...), controllertest.Pod("web-2", "node-a", web, crashing))
		f := controllertest.New(t, objects...)
		r := reconciler(t, f, 2)
		f.Reconcile(r, "general")
		grow(f, "a")
		f.Clock = f.Clock.Add(4 * time.Minute)
		f.Reconcile(r, "general")
		reason, message := paused(f)
		if failed := reason == "NewNodesFail"; failed != (name == "healthy") {
			t.Errorf("siblings are %s: %s %s", name, reason, message)
		}
		const evidence = "1 of 1 pods of ReplicaSet shop/web there crashes again and again (CrashLoopBackOff): web-2; elsewhere 0 of 1 (NodeClaim a)"
		if name != "healthy" {
			continue
		}
		if !strings.Contains(message, evidence) {
			t.Errorf("says %s", message)
		}
		// Its pods are gone, and the node is ready: that proves nothing.
		f.Do(f.API.Delete(f.Context(), controllertest.Pod("web-2", "node-a")))
		f.Clock = f.Clock.Add(14 * time.Minute)
		if f.Reconcile(r, "general"); rolloutCondition(f).Reason != "Paused" {
			t.Errorf("goes on: %+v", rolloutCondition(f))
		}
	}
}

// A node is in its soak for as long as the node that it replaces is there.
func TestTheSoakLastsUntilTheReplacedNodeIsGone(t *testing.T) {
	f := controllertest.New(t, canaries("Canary")...)
	r := reconciler(t, f, 2)
	f.Reconcile(r, "general")
	grow(f, "a", "b")
	a := f.Claim("a")
	a.Annotations[karpv1.AnnotationReplaces] = "old-3"
	f.Do(f.API.Update(f.Context(), a))
	f.Clock = f.Clock.Add(time.Hour)
	b := New(f.API, Rules{Threshold: 2}, f.Now)
	if got := starts(t, b); got != 0 {
		t.Errorf("%d may start while old-3 drains", got)
	}
	old := f.Claim("old-3")
	old.Finalizers = nil
	f.Do(f.API.Update(f.Context(), old))
	f.Do(f.API.Delete(f.Context(), old))
	if got := starts(t, b); got != 4 {
		t.Errorf("%d may start when it is gone", got)
	}
}

// What cannot be read has a condition that names the field, and means canaries.
func TestARolloutThatCannotBeRead(t *testing.T) {
	for annotation, part := range map[string]string{
		"canary":                           "metadata.annotations[dovetail.sh/rollout] of NodePool general",
		`{"mode":"Canary","soak":"-1s"}`:   "soak: -1s",
		`{"mode":"Canary","soak":"9000h"}`: "spec.template.spec.expireAfter",
	} {
		objects := canaries(annotation)
		objects[0].(*karpv1.NodePool).Spec.Template.Spec.ExpireAfter = karpv1.After(720 * time.Hour)
		f := controllertest.New(t, objects...)
		f.Reconcile(reconciler(t, f, 2), "general")
		if c := rolloutCondition(f); c.Status != metav1.ConditionFalse || c.Reason != "InvalidRollout" || !strings.Contains(c.Message, part) {
			t.Errorf("%s: condition %+v", annotation, c)
		}
		if got := starts(t, New(f.API, Rules{Threshold: 2}, f.Now)); got != 2 {
			t.Errorf("%s: %d may start", annotation, got)
		}
	}
}

// The annotation on the class covers its pools, and Off on a pool is today's behavior.
func TestTheClassCoversItsPools(t *testing.T) {
	for pool, want := range map[string]int{"": 1, "Off": 1000} { // two of the three nodes of the first two waves have survived
		objects := rollout("a", "b")
		objects[1].SetAnnotations(map[string]string{karpv1.AnnotationRollout: "Canary"})
		if pool != "" {
			objects[0].SetAnnotations(map[string]string{karpv1.AnnotationRollout: pool})
		}
		f := controllertest.New(t, objects...)
		f.Clock = f.Clock.Add(15 * time.Minute)
		f.Reconcile(reconciler(t, f, 2), "general")
		if got := starts(t, New(f.API, Rules{Threshold: 2}, f.Now)); got != want {
			t.Errorf("NodePool %q: %d may start, want %d", pool, got, want)
		}
		if _, set := condition.Get(controllertest.Class(), awsv1.ConditionRolledBack); set {
			t.Error("the class is rolled back")
		}
	}
}

// rolledOut is a class with an image that is known to be good, and a roll-out of another with a canary that has failed.
func rolledOut(t *testing.T) (*controllertest.Fixture, *Reconciler, *ClassReconciler) {
	t.Helper()
	objects := canaries("Canary")
	objects[0].GetAnnotations()[karpv1.AnnotationNodePoolHash] = "pool"
	objects[1].SetAnnotations(map[string]string{awsv1.AnnotationNodeClassHash: "class"})
	objects[1].(*awsv1.EC2NodeClass).Status.AMIs = []awsv1.AMI{{ID: "ami-old"}}
	for _, o := range objects[2:] {
		if claim, ok := o.(*karpv1.NodeClaim); ok {
			condition.Clear(claim, karpv1.ConditionDrifted, controllertest.Start)
			claim.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: "pool", awsv1.AnnotationNodeClassHash: "class"}
			objects = append(objects, controllertest.ReadyNode(claim.Name))
		}
	}
	f := controllertest.New(t, objects...)
	r, classes := reconciler(t, f, 2), &ClassReconciler{Client: f.API, Events: f.Events, Now: f.Now}
	f.Clock = f.Clock.Add(11 * time.Minute)
	f.Reconcile(r, "general")
	f.Reconcile(classes, "default")
	if good, known := nodeClass(f).KnownGood(); !known || good.AMIs[0].ID != "ami-old" || good.Hash != "class" || good.Pools["general"] != "pool" {
		t.Fatalf("known to be good: %v, %+v", known, good)
	}
	use(f, "ami-bad")
	f.Reconcile(r, "general")
	grow(f, "a", "b")
	f.Clock = f.Clock.Add(time.Minute)
	fail(f, "a", "b")
	f.Clock = f.Clock.Add(30 * time.Second)
	f.Reconcile(r, "general")
	return f, r, classes
}

func nodeClass(f *controllertest.Fixture) *awsv1.EC2NodeClass {
	class := controllertest.Class()
	f.Get(class)
	return class
}

// use has the class select an image.
func use(f *controllertest.Fixture, image string) {
	class := nodeClass(f)
	selected := []awsv1.AMI{{ID: image}}
	class.Status.AMIs = selected
	if good := class.RolledBack(selected); good != nil {
		class.Status.AMIs = good
	}
	f.Do(f.API.Status().Update(f.Context(), class))
}

func rolledBackCondition(f *controllertest.Fixture) metav1.Condition {
	c, _ := condition.Get(nodeClass(f), awsv1.ConditionRolledBack)
	return c
}

// New nodes get the image that is known to be good; nodes that failed are replaced without canaries; this holds for one generation.
func TestARollback(t *testing.T) {
	f, r, classes := rolledOut(t)
	f.Reconcile(classes, "default")
	decision, rolled := nodeClass(f).Rollback()
	if !rolled || decision.From[0] != "ami-bad" || decision.NodePool != "general" || !strings.Contains(decision.Why, "Ready is Unknown") {
		t.Fatalf("rolled back %v, %+v", rolled, decision)
	}
	if c := rolledBackCondition(f); c.Type != "" {
		t.Errorf("condition before the images have changed: %+v", c)
	}
	use(f, "ami-bad")
	f.Reconcile(classes, "default")
	if c := rolledBackCondition(f); c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Message, "Images [ami-old] are used in place of [ami-bad]") {
		t.Errorf("condition: %+v", c)
	}
	f.Reconcile(r, "general")
	if c := rolloutCondition(f); c.Status != metav1.ConditionFalse || c.Reason != "RolledBack" {
		t.Errorf("condition of the pool: %+v", c)
	}
	if reason, _ := paused(f); reason != "" {
		t.Errorf("nodes that failed are not replaced: %s", reason)
	}
	if got := starts(t, New(f.API, Rules{Threshold: 2}, f.Now)); got != 1000 {
		t.Errorf("%d may start: there is a wave", got)
	}
	class := nodeClass(f)
	class.Generation++
	f.Do(f.API.Update(f.Context(), class))
	if use(f, "ami-bad"); nodeClass(f).Status.AMIs[0].ID != "ami-bad" {
		t.Error("the images stay after an edit")
	}
	f.Reconcile(classes, "default")
	if _, set := nodeClass(f).Annotations[awsv1.AnnotationRollback]; set || rolledBackCondition(f).Type != "" {
		t.Errorf("after an edit: %v, %+v", nodeClass(f).Annotations, rolledBackCondition(f))
	}
}

// A rollback is void once another image is published.
func TestARollbackEndsWithAnotherImage(t *testing.T) {
	f, _, classes := rolledOut(t)
	f.Reconcile(classes, "default")
	use(f, "ami-bad")
	use(f, "ami-better")
	f.Reconcile(classes, "default")
	if class := nodeClass(f); class.Status.AMIs[0].ID != "ami-better" || class.Annotations[awsv1.AnnotationRollback] != "" {
		t.Errorf("%+v, %v", class.Status.AMIs, class.Annotations)
	}
}

// Where an exact rollback is not possible, the condition states why, and nothing is rolled back.
func TestARollbackThatIsNotPossible(t *testing.T) {
	for reason, change := range map[string]func(*controllertest.Fixture){
		"NothingKnownGood": func(f *controllertest.Fixture) {
			class := nodeClass(f)
			delete(class.Annotations, awsv1.AnnotationKnownGood)
			f.Do(f.API.Update(f.Context(), class))
		},
		"TemplateChanged": func(f *controllertest.Fixture) {
			class := nodeClass(f)
			class.Annotations[awsv1.AnnotationNodeClassHash] = "other"
			f.Do(f.API.Update(f.Context(), class))
		},
		"ImagesUnchanged": func(f *controllertest.Fixture) {
			class := nodeClass(f)
			_, err := class.Annotate(awsv1.AnnotationKnownGood, awsv1.KnownGood{AMIs: []awsv1.AMI{{ID: "ami-bad"}}, Hash: "class"})
			f.Do(err)
			f.Do(f.API.Update(f.Context(), class))
		},
		"ImagesNotAvailable": func(f *controllertest.Fixture) {
			f.Reconcile(&ClassReconciler{Client: f.API, Events: f.Events, Now: f.Now}, "default")
			f.Clock = f.Clock.Add(awsv1.RollbackPatience)
		},
	} {
		f, _, classes := rolledOut(t)
		change(f)
		f.Reconcile(classes, "default")
		if c := rolledBackCondition(f); c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, "The old nodes stay") {
			t.Errorf("%s: condition %+v", reason, c)
		}
		if _, rolled := nodeClass(f).Rollback(); rolled != (reason == "ImagesNotAvailable") {
			t.Errorf("%s: rolled back %v", reason, rolled)
		}
	}
}

// A pod that never becomes ready shows within the soak, however short that is: where AWS is simulated, soaks last for seconds.
func TestAPodThatIsNotReadyFailsInAShortSoak(t *testing.T) {
	yes := true
	web := func(ready corev1.ConditionStatus, since time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "web", Controller: &yes}}
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}}
		}
	}
	objects := append(canaries(`{"mode":"Canary","soak":"20s"}`), controllertest.ReadyNode("old-1"),
		controllertest.Pod("web-1", "node-old-1", web(corev1.ConditionTrue, controllertest.Start)))
	f := controllertest.New(t, objects...)
	r := reconciler(t, f, 2)
	f.Reconcile(r, "general")
	grow(f, "a", "b")
	f.Do(f.API.Create(f.Context(), controllertest.Pod("web-2", "node-a", web(corev1.ConditionFalse, f.Clock.Add(15*time.Second)))))
	for _, seconds := range []int{20, 24, 25} {
		want := ""
		if seconds == 25 {
			want = "NewNodesFail"
		}
		f.Clock = controllertest.Start.Add(time.Duration(seconds) * time.Second)
		f.Reconcile(r, "general")
		if reason, message := paused(f); reason != want {
			t.Errorf("after %d s: %s %s %+v", seconds, reason, message, rolloutCondition(f))
		}
	}
}
