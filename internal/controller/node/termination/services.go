package termination

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Directories of the host by which a daemon shows what it does for its node.
const (
	pluginDirectory = "/var/lib/kubelet/plugins/" // + the name of a CSI driver
	cniConfig       = "/etc/cni/net.d"
	cniBinaries     = "/opt/cni/bin"
)

// serves reports whether a pod is a daemon that others on its node need to end well: that of a CSI driver, without which no
// volume is unmounted, that of the network, or kube-proxy. What it tolerates tells nothing about it.
func serves(pod *corev1.Pod) bool {
	if !snapshot.DaemonOwned(pod) {
		return false
	}
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "kube-proxy" }) {
		return true
	}
	return csiDriver(pod) != "" || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		if v.HostPath == nil {
			return false
		}
		path := strings.TrimSuffix(v.HostPath.Path, "/")
		return path == cniConfig || path == cniBinaries
	})
}

// csiDriver is the CSI driver whose socket a pod provides; empty if it provides none.
func csiDriver(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(h.Path, "/"), pluginDirectory); ok && !strings.Contains(name, "/") {
				return name
			}
		}
	}
	return ""
}

// split parts the pods that may go first from those that the others need.
func split(pods []*corev1.Pod) (first, last []*corev1.Pod) {
	for _, p := range pods {
		if serves(p) {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	return first, last
}

// hasVolume reports whether a pod claims a volume, which takes time to leave the node.
func hasVolume(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return claimName(pod, &v) != "" })
}
