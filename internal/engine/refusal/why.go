package refusal

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Kind describes what is known of why a node does not suit a pod that it was launched for.
type Kind string

// The kinds of causes. They are the reasons of the condition, and values of the metric's label cause.
const (
	Tainted        Kind = "NodeTainted"
	LabelsDiffer   Kind = "NodeLabelsDiffer"
	TooSmall       Kind = "NodeTooSmall"
	LacksFeature   Kind = "NodeLacksFeature"
	LacksDriver    Kind = "NodeLacksDriver"
	OthersFirst    Kind = "OtherPodsFirst"
	GangShort      Kind = "PodGroupIncomplete"
	OnlySchedulers Kind = "SchedulerRefuses"
)

// maxQuoted bounds what is quoted of kube-scheduler, which lists a reason for each kind of node.
const maxQuoted = 300

// why returns what is known of a node that does not suit a pod, and what kube-scheduler reports.
func (x *Search) why(n *snapshot.Node, pod *corev1.Pod) (string, Kind) {
	if g := x.gangOf(pod); g.short() {
		return g.message(), GangShort
	}
	known, kind := x.cause(n, pod)
	said := schedulerMessage(pod)
	switch {
	case known == "":
		return "kube-scheduler reports: " + said, kind
	case said == "":
		return known, kind
	}
	return known + "; kube-scheduler reports: " + said, kind
}

func (x *Search) cause(n *snapshot.Node, pod *corev1.Pod) (string, Kind) {
	// The taint of a node that is being removed states nothing of why its pods did not come before, and a node that is not Ready for a
	// moment gets its pods later.
	taints := slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool {
		return karpv1.IsTaintDisrupted(t) || t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
	if taint, has := snapshot.UntoleratedHard(pod.Spec.Tolerations, taints); has {
		return taintMessage(n, taint), Tainted
	}
	if message := x.labelMessage(n, pod); message != "" {
		return message, LabelsDiffer
	}
	if message := x.roomMessage(n, pod); message != "" {
		return message, TooSmall
	}
	if message := featureMessage(n, pod); message != "" {
		return message, LacksFeature
	}
	if message := x.driverMessage(n, pod); message != "" {
		return message, LacksDriver
	}
	return "", OnlySchedulers
}

func taintMessage(n *snapshot.Node, taint *corev1.Taint) string {
	if strings.HasPrefix(taint.Key, karpv1.Group+"/") || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
		return fmt.Sprintf("node %s has taint %s", n.Name, taint.ToString())
	}
	owner := ""
	if name, known := snapshot.TaintOwner(taint); known {
		owner = ", which " + name + " removes,"
	}
	return fmt.Sprintf("node %s has taint %s%s that no startupTaint of NodePool %s declares; if something removes it from nodes that are "+
		"ready, add it to spec.template.spec.startupTaints, otherwise to spec.template.spec.taints", n.Name, taint.ToString(), owner, n.Pool)
}

// labelMessage names a label that the pod requires and that the node has not.
func (x *Search) labelMessage(n *snapshot.Node, pod *corev1.Pod) string {
	keys := make([]string, 0, len(pod.Spec.NodeSelector))
	for key := range pod.Spec.NodeSelector {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		want := pod.Spec.NodeSelector[key]
		switch have, has := n.Labels[key]; {
		case !has:
			return fmt.Sprintf("node %s lacks the label %s=%s, which the pod selects", n.Name, key, want)
		case have != want:
			return fmt.Sprintf("node %s has the label %s=%s, and the pod selects %s", n.Name, key, have, want)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && !match {
		return fmt.Sprintf("the labels of node %s do not match the pod's node affinity", n.Name)
	}
	added := x.Settings.AddedAffinity(&pod.Spec)
	if added == nil {
		return ""
	}
	enforced := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: added}}}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(enforced).Match(node); err == nil && !match {
		return fmt.Sprintf("the labels of node %s do not match the node affinity that scheduler %s adds", n.Name, x.Settings.ProfileName(&pod.Spec))
	}
	return ""
}

// roomMessage names a resource of which the node has too little for the pod, whatever other pods there are beside those of DaemonSets.
func (x *Search) roomMessage(n *snapshot.Node, pod *corev1.Pod) string {
	short, free, found := x.Settings.ShortAlone(n, pod)
	if !found {
		return ""
	}
	want, allocatable := snapshot.Requests(pod)[short], n.Allocatable[short]
	return fmt.Sprintf("node %s has %s of %s left for the pod, which requests %s: %s are allocatable, and pods of DaemonSets take the rest",
		n.Name, free.String(), short, want.String(), allocatable.String())
}

// featureMessage names a feature that the pod needs and that the node's kubelet does not declare.
func featureMessage(n *snapshot.Node, pod *corev1.Pod) string {
	for _, feature := range snapshot.RequiredFeatures(&pod.Spec) {
		if !slices.Contains(n.DeclaredFeatures, feature) {
			return fmt.Sprintf("the kubelet of node %s does not declare feature %q, which the pod needs", n.Name, feature)
		}
	}
	return ""
}

// driverMessage names a CSI driver of one of the pod's volumes that must be on the node and is not.
func (x *Search) driverMessage(n *snapshot.Node, pod *corev1.Pod) string {
	for _, driver := range volume.MustBeInstalled(x.Snapshot, volume.Of(x.Snapshot, pod)) {
		if !slices.Contains(n.CSIDrivers, driver) {
			return fmt.Sprintf("CSI driver %q is not installed on node %s: its CSINode does not list it, and the CSIDriver has "+
				"preventPodSchedulingIfMissing", driver, n.Name)
		}
	}
	return ""
}

// takenMessage names a pod that came first.
func takenMessage(n *snapshot.Node) string {
	first := slices.IndexFunc(n.Pods, ordinary)
	if first < 0 {
		return "pods that came first leave no room"
	}
	return fmt.Sprintf("pods that no node was launched for came first, like %s/%s, and leave no room",
		n.Pods[first].Namespace, n.Pods[first].Name)
}

// schedulerMessage returns what kube-scheduler last reported of the pod, shortened.
func schedulerMessage(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue {
			continue
		}
		message, _, _ := strings.Cut(c.Message, " preemption: ") // which states that no pod is in the way
		message = strings.TrimRight(strings.TrimSpace(message), ".")
		if len(message) > maxQuoted {
			message = strings.ToValidUTF8(message[:maxQuoted], "") + "..."
		}
		return message
	}
	return ""
}
