package requirement_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Intersect returns the requirement that both allow.
func ExampleRequirement_Intersect() {
	zones := requirement.In("topology.kubernetes.io/zone", "a", "b")
	fmt.Println(zones.Intersect(requirement.NotIn("topology.kubernetes.io/zone", "a")))
	fmt.Println(requirement.AtLeast("cpu", 4).Intersect(requirement.AtMost("cpu", 16)))
	fmt.Println(zones.Intersect(requirement.In("topology.kubernetes.io/zone", "c")).Impossible())
	// Output:
	// topology.kubernetes.io/zone In [b]
	// cpu Exists >=4 <=16
	// true
}

// Overlaps ignores keys that only one set defines; Compatible requires that the node has them or can get them.
func ExampleSet_Compatible() {
	node := requirement.NewSet(requirement.In("kubernetes.io/arch", "arm64"))
	pod := requirement.NewSet(requirement.In("kubernetes.io/arch", "arm64"), requirement.In("team", "data"))
	fmt.Println(node.Overlaps(pod))
	fmt.Println(node.Compatible(pod, nil))
	fmt.Println(node.Compatible(pod, map[string]bool{"team": true}))
	conflict, _ := node.Conflict(pod, nil)
	fmt.Println(conflict.Incoming, conflict.Undefined)
	// Output:
	// true
	// false
	// true
	// team In [data] true
}

// FromPod parses the node selector and the node affinity of a pod. The terms of required affinity are alternatives.
func ExampleLabels_FromPod() {
	term := func(zone string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
		}}
	}
	pod, err := requirement.CoreLabels().FromPod(&corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelArchStable: "arm64"},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term("a"), term("b")}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, alternative := range pod.Required {
		fmt.Println(pod.Selector.Intersect(alternative))
	}
	// Output:
	// kubernetes.io/arch In [arm64], topology.kubernetes.io/zone In [a]
	// kubernetes.io/arch In [arm64], topology.kubernetes.io/zone In [b]
}
