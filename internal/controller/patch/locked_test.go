package patch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// bigClaim lists as many instance types as a NodeClaim does.
func bigClaim() *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID, claim.ResourceVersion = "a", "uid", "7"
	claim.Labels = map[string]string{"one": "1"}
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprintf("m%d.large", i))
	}
	claim.Spec.Requirements = []karpv1.Requirement{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: names}}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	return claim
}

// The patch is the one of the whole objects, whichever parts differ, and neither object is changed.
func TestLockedPatchIsThatOfTheWholeObjects(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	changes := []func(*karpv1.NodeClaim){
		func(c *karpv1.NodeClaim) { c.Labels["two"] = "2" },
		func(c *karpv1.NodeClaim) { delete(c.Labels, "one") },
		func(c *karpv1.NodeClaim) { c.Finalizers = append(c.Finalizers, "f") },
		func(c *karpv1.NodeClaim) { c.Spec.Requirements = nil },
		func(c *karpv1.NodeClaim) { c.Spec.Requirements[0].Values = []string{} },
		func(c *karpv1.NodeClaim) { c.Status.NodeName = "node" },
		func(c *karpv1.NodeClaim) { c.Status.Capacity = nil },
		func(c *karpv1.NodeClaim) { c.Status.Capacity[corev1.ResourceMemory] = resource.MustParse("1Gi") },
		func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionLaunched, time.Unix(0, 0)) },
		func(c *karpv1.NodeClaim) { c.ResourceVersion = "8" },
	}
	for range 200 {
		before := bigClaim()
		after := before.DeepCopy()
		for _, change := range changes {
			if rng.IntN(4) == 0 && len(after.Spec.Requirements) > 0 && after.Status.Capacity != nil {
				change(after)
			}
		}
		keptBefore, keptAfter := before.DeepCopy(), after.DeepCopy()
		want, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch.Locked(before).Data(after)
		if err != nil || !sameJSON(t, got, want) {
			t.Fatalf("patch %s (%v), want %s", got, err, want)
		}
		if !reflect.DeepEqual(before, keptBefore) || !reflect.DeepEqual(after, keptAfter) {
			t.Fatal("an object was changed")
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// BenchmarkLocked is a write of the status of a NodeClaim.
func BenchmarkLocked(b *testing.B) {
	before := bigClaim()
	after := before.DeepCopy()
	condition.SetTrue(after, karpv1.ConditionLaunched, time.Unix(0, 0))
	for name, p := range map[string]client.Patch{
		"whole": client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), "differing": patch.Locked(before),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Data(after); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
