package incumbent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// waiting are pods with these CPU requests, for which kube-scheduler has found no node.
func waiting(cpus ...string) (out []*corev1.Pod) {
	for _, cpu := range cpus {
		out = append(out, &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
			}},
		})
	}
	return out
}

func TestLaunches(t *testing.T) {
	half := emptyNode()
	half.milliCPU /= 2
	for _, tt := range []struct {
		name string
		free []room
		cpus []string
		want []string // CPU that the pods of each new node request
	}{
		{"no pods", nil, nil, nil},
		{"three pods fill a node", nil, []string{"1", "1", "1", "1"}, []string{"3", "1"}},
		{"a node on its way has room", []room{emptyNode()}, []string{"1", "1", "1"}, nil},
		{"a node with pods has less room", []room{half}, []string{"1", "1"}, []string{"1"}},
		{"no node fits the pod", nil, []string{"8"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, left := range launches(tt.free, waiting(tt.cpus...)) {
				got = append(got, cpuOf(left))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestServes(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"bound":         func(p *corev1.Pod) { p.Spec.NodeName = "node" },
		"deleted":       func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"node selector": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} },
		"affinity":      func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} },
		"not looked at": func(p *corev1.Pod) { p.Status.Conditions = nil },
		"runs":          func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
	} {
		t.Run(name, func(t *testing.T) {
			pod := waiting("1")[0]
			if !serves(pod) {
				t.Fatal("a waiting pod gets no node")
			}
			change(pod)
			if serves(pod) {
				t.Error("the pod gets a node")
			}
		})
	}
}

func TestRequestedReadsTheRequirements(t *testing.T) {
	claim := newObject(coreGroup, "NodeClaim")
	claim.SetName("ab")
	claim.SetLabels(map[string]string{nodePoolLabel: "general"})
	claim.Object["spec"] = map[string]any{"requirements": []any{
		requirement("node.kubernetes.io/instance-type", "c5.large"), requirement("karpenter.sh/capacity-type", "spot"),
		map[string]any{"key": "team", "operator": "Exists"},
	}}
	want := Node{Pool: "general", InstanceType: "c5.large", CapacityType: "spot", Subnet: 'a' + 'b'}
	if diff := cmp.Diff(want, requested(claim)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
