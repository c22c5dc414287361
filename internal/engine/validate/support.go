package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// lacks returns what the pod needs of the kubelet or of CSI drivers and the host does not have, by the rules of kube-scheduler's plugins
// NodeDeclaredFeatures and NodeVolumeLimits; empty if nothing. A node that is not initialized has what new nodes of its pool have, too.
func (c *check) lacks(h *host, pod *corev1.Pod) string {
	if h.launch != nil {
		pool := c.pool(h.launch.Pool.Name)
		for _, need := range c.neededOf(pod) {
			if pool != nil && (c.newNodesLackOne(pool, need) || c.onlyInstalled(pool, need) && !c.installedOnAll(h, need)) {
				return need
			}
		}
		return ""
	}
	for _, need := range c.neededOf(pod) {
		if slices.Contains(h.node.DeclaredFeatures, need) || slices.Contains(h.node.CSIDrivers, need) {
			continue
		}
		if pool := c.pool(h.node.Pool); h.node.Initialized || pool != nil && c.newNodesLackOne(pool, need) {
			return need
		}
	}
	return ""
}

// neededOf are features and drivers that the pod needs. No driver has the name of a feature: names of drivers are domains.
func (c *check) neededOf(pod *corev1.Pod) (out []string) {
	restarts, options := false, false
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, rule := range container.RestartPolicyRules {
			restarts = restarts || rule.Action == "RestartAllContainers"
		}
		for _, m := range container.VolumeMounts {
			options = options || len(m.BindMountOptions) > 0
		}
	}
	if restarts {
		out = append(out, "RestartAllContainersOnContainerExits")
	}
	if users := pod.Spec.HostUsers; pod.Spec.HostNetwork && users != nil && !*users {
		out = append(out, "UserNamespacesHostNetworkSupport")
	}
	if options {
		out = append(out, "VolumeBindMountOptions")
	}
	for _, m := range c.mounts(pod) {
		if c.s.Volumes.MustBeInstalled[m.driver] {
			out = append(out, m.driver)
		}
	}
	return out
}

// newNodesLack is the first thing that the pod needs and new nodes of the pool will not have; empty if they have all.
func (c *check) newNodesLack(pool *snapshot.Pool, pod *corev1.Pod) string {
	for _, need := range c.neededOf(pod) {
		if pool != nil && c.newNodesLackOne(pool, need) {
			return need
		}
	}
	return ""
}

func (c *check) newNodesLackOne(pool *snapshot.Pool, need string) bool {
	var seen []*snapshot.Node
	for i := range c.s.Nodes {
		if n := &c.s.Nodes[i]; n.Initialized && n.Pool == pool.NodePool.Name {
			seen = append(seen, n)
		}
	}
	if !strings.Contains(need, ".") { // a feature: all that is seen declares it, or the image does
		if len(seen) == 0 {
			return !slices.Contains(pool.KubeletFeatures, need)
		}
		return slices.ContainsFunc(seen, func(n *snapshot.Node) bool { return !slices.Contains(n.DeclaredFeatures, need) })
	}
	if slices.ContainsFunc(seen, func(n *snapshot.Node) bool { return fromImage(n, need) }) {
		return false
	}
	installers := c.installers(need)
	return len(installers) > 0 && !slices.ContainsFunc(installers, func(d *corev1.Pod) bool { return c.comesWith(d, pool) }) ||
		len(installers) == 0 && len(seen) > 0
}

// installs reports whether the pod of a DaemonSet has the directory of the driver's socket.
func installs(pod *corev1.Pod, driver string) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.HasSuffix(strings.TrimSuffix(v.HostPath.Path, "/"), "/plugins/"+driver)
	})
}

// installers are the pods of DaemonSets that install the driver.
func (c *check) installers(driver string) (out []*corev1.Pod) {
	for i := range c.s.DaemonSets {
		if pod := c.s.DaemonSets[i].Pod; installs(pod, driver) {
			out = append(out, pod)
		}
	}
	return out
}

// fromImage reports whether the node has the driver though no pod there has installed it.
func fromImage(n *snapshot.Node, driver string) bool {
	return slices.Contains(n.CSIDrivers, driver) && !slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return installs(p, driver) })
}

// onlyInstalled reports whether new nodes of the pool get the need from DaemonSets alone: a driver that no node of the pool has from its
// image.
func (c *check) onlyInstalled(pool *snapshot.Pool, need string) bool {
	return len(c.installers(need)) > 0 && !slices.ContainsFunc(c.s.Nodes, func(n snapshot.Node) bool {
		return n.Pool == pool.NodePool.Name && n.Initialized && fromImage(&n, need)
	})
}

// installedOnAll reports whether the driver is installed whatever the launch becomes.
func (c *check) installedOnAll(h *host, driver string) bool {
	installers := c.installers(driver)
	return !slices.ContainsFunc(h.outcomes, func(out outcome) bool {
		return !slices.ContainsFunc(installers, func(d *corev1.Pod) bool { return tolerated(d, h.taints) && c.daemonOn(d, h, out) })
	})
}

// driversOn reports whether DaemonSets may install on nodes of the type all drivers that the pod needs from them.
func (f *freshNodeSearch) driversOn(it *catalog.InstanceType) bool {
	for _, need := range f.c.neededOf(f.pod) {
		if f.c.onlyInstalled(f.pool, need) && !slices.ContainsFunc(f.c.installers(need), func(d *corev1.Pod) bool { return f.mightRun(d, it) }) {
			return false
		}
	}
	return true
}

// comesWith reports whether the pods of a DaemonSet run on any new nodes of the pool.
func (c *check) comesWith(daemon *corev1.Pod, pool *snapshot.Pool) bool {
	f := freshNodeSearch{c: c, pool: pool, poolDemands: c.demandsOfNodes(pool)}
	if !tolerated(daemon, pool.NodePool.Spec.Template.Spec.Taints) {
		return false
	}
	for _, it := range pool.InstanceTypes {
		if f.mightRun(daemon, it) {
			return true
		}
	}
	return false
}
