package provisioning

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// tenantPods are pods of a namespace that follow each other by many labels, and get no node.
func tenantPods(n int) []client.Object {
	keys := []string{engine.Zone, engine.Host, engine.Arch, engine.Capacity, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion}
	var out []client.Object
	for i := range n {
		out = append(out, pending(fmt.Sprint("hostile-", i), func(p *corev1.Pod) {
			p.Namespace = "tenant"
			p.Labels = map[string]string{"app": fmt.Sprint("h", i)}
			for j := range 30 {
				key := keys[j%len(keys)]
				engine.PreferNear(int32(1+j), key, fmt.Sprint("h", (i+j)%n))(p)
				engine.PreferApart(int32(1+j), key, fmt.Sprint("h", (i+2*j)%n))(p)
				engine.Near(key, fmt.Sprint("h", (i+j+1)%n))(p)
			}
		}))
	}
	return out
}

// stepsOfPasses has the provisioner count the steps and the pods of each plan.
func stepsOfPasses(p *Provisioner) (steps *int, pods *int) {
	steps, pods = new(int), new(int)
	p.Solve = func(s *snapshot.Snapshot, b schedule.Budget) schedule.Plan {
		plan := schedule.Solve(s, b)
		*steps, *pods = *steps+plan.Stats.Steps, len(s.Pods)
		return plan
	}
	return steps, pods
}

// Pods of one tenant that cost much and get no node take less than a twentieth of a core while nothing changes, and the pods of others
// are planned as fast as without them.
func TestCostlyPodsOfOneTenantDoNotSlowDownOthers(t *testing.T) {
	const atRest = 30 * time.Minute
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	f := controllertest.New(t, append(tenantPods(40), namespace, controllertest.Class(), controllertest.Pool("general"))...)
	p := provisioner(f)
	p.Costly = &CostlyPods{}
	steps, pods := stepsOfPasses(p)
	run(t, p)
	first := *steps
	if first < costlySteps {
		t.Fatalf("the pods take %d steps, and are not costly", first)
	}
	for waited := time.Duration(0); waited < atRest; waited += retriggerInterval {
		f.Clock = f.Clock.Add(retriggerInterval)
		run(t, p)
		f.RecordedEvents()
	}
	rest := time.Duration(*steps-first) * timePerStep
	t.Logf("a plan with the pods takes %d steps; at rest they take %.4f of a core", first, rest.Seconds()/atRest.Seconds())
	if rest.Seconds()/atRest.Seconds() > 0.05 {
		t.Errorf("at rest the pods take %v in %v", rest, atRest)
	}
	if err := f.API.Create(t.Context(), pending("ordinary")); err != nil {
		t.Fatal(err)
	}
	*steps = 0
	run(t, p)
	if *pods != 1 || *steps > 10_000 || len(claims(t, f.API)) != 1 {
		t.Errorf("%d pods are planned in %d steps, and %d claims created, want one for the ordinary pod alone", *pods, *steps, len(claims(t, f.API)))
	}
}

// A change of a node pool has the pods planned again, long before their pause is over.
func TestCostlyPodsArePlannedAgainWhenTheClusterChanges(t *testing.T) {
	pool := controllertest.Pool("general")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	f := controllertest.New(t, append(tenantPods(40), namespace, controllertest.Class(), pool)...)
	p := provisioner(f)
	p.Costly = &CostlyPods{}
	_, pods := stepsOfPasses(p)
	for range 60 {
		run(t, p)
		f.RecordedEvents()
		f.Clock = f.Clock.Add(time.Minute)
	}
	run(t, p)
	if *pods != 0 {
		t.Fatalf("%d pods are planned, though nothing has changed for an hour", *pods)
	}
	if !f.Get(pool) {
		t.Fatal("the pool is gone")
	}
	pool.Generation++
	if err := f.API.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	run(t, p)
	if *pods != 40 {
		t.Errorf("%d pods are planned after a change of the pool, want 40", *pods)
	}
}
