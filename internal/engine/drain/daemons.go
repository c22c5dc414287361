package drain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Host directories that identify the service which a daemon provides to its node.
const (
	pluginDirectory = "/var/lib/kubelet/plugins/" // + the name of a CSI driver
	cniConfig       = "/etc/cni/net.d"
	cniBinaries     = "/opt/cni/bin"
)

// servesNode reports whether a pod is a daemon that other pods on its node need for their shutdown: a CSI driver, which
// unmounts volumes, the network, or kube-proxy. Its tolerations are no evidence.
func servesNode(pod *corev1.Pod) bool {
	if !snapshot.DaemonOwned(pod) {
		return false
	}
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "kube-proxy" }) {
		return true
	}
	return CSIDriver(pod) != "" || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		if v.HostPath == nil {
			return false
		}
		path := strings.TrimSuffix(v.HostPath.Path, "/")
		return path == cniConfig || path == cniBinaries
	})
}

// CSIDriver returns the CSI driver that has its socket in the pod's host path; empty if there is none.
func CSIDriver(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			if name, ok := strings.CutPrefix(strings.TrimSuffix(h.Path, "/"), pluginDirectory); ok && !strings.Contains(name, "/") {
				return name
			}
		}
	}
	return ""
}

// splitDaemons separates the daemons that others need from the pods that are evicted before them.
func splitDaemons(pods []*corev1.Pod) (first, daemons []*corev1.Pod) {
	for _, p := range pods {
		if servesNode(p) {
			daemons = append(daemons, p)
		} else {
			first = append(first, p)
		}
	}
	return first, daemons
}

// hasVolume reports whether a pod has a PersistentVolumeClaim, which takes time to detach.
func hasVolume(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, _ := snapshot.ClaimName(pod, &v)
		return name != ""
	})
}
