// Package support compares what pods need of the kubelet and of the CSI drivers of a node with what nodes have: kube-scheduler's plugins
// NodeDeclaredFeatures and NodeVolumeLimits refuse a node that lacks any of it.
//
// Of an initialized node the Node and its CSINode decide. A node that is in flight or planned has what its pool's nodes are expected to
// have: what all initialized nodes of the pool declare, else what the image's kubelet declares; and the CSI drivers that some initialized
// node of the pool has from its image, or that a DaemonSet installs with pods that run on nodes of the pool. A driver that no DaemonSet of
// the cluster installs is taken for part of the image, until a node of the pool is initialized without it.
package support

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Needs describes what a pod needs of a node beside labels, taints and room.
type Needs struct {
	// Features are the features that the kubelet must declare, Drivers the CSI drivers that must be on the node; both sorted.
	Features, Drivers []string
}

// None reports whether any node does.
func (n Needs) None() bool { return len(n.Features)+len(n.Drivers) == 0 }

// Index answers for the nodes and pools of a snapshot, which must not change. It reads on first use, and is for one goroutine.
type Index struct {
	s     *snapshot.Snapshot
	pools map[string]*pool
}

// pool describes what new nodes of a pool have.
type pool struct {
	features []string
	// drivers are the drivers that nodes of the pool have from their image, and those that DaemonSets install.
	drivers map[string]bool
	// seen is true if some node of the pool is initialized.
	seen bool
	// elsewhere are the DaemonSets that install a driver on other nodes, by driver.
	elsewhere map[string]installer
}

// installer is a DaemonSet, NAMESPACE/NAME, with why its pods do not run on nodes of a pool.
type installer struct{ daemonSet, why string }

// NewIndex is the index of the snapshot.
func NewIndex(s *snapshot.Snapshot) *Index { return &Index{s: s, pools: map[string]*pool{}} }

// OnNode returns what an existing node lacks of the needs, in words; empty if nothing.
func (x *Index) OnNode(n *snapshot.Node, needs Needs) string {
	if needs.None() {
		return ""
	}
	p := &pool{}
	if !n.Initialized {
		if p = x.pool(n.Pool); p == nil {
			return "" // nothing is known of the pool
		}
	}
	for _, f := range needs.Features {
		if !slices.Contains(n.DeclaredFeatures, f) && !slices.Contains(p.features, f) {
			return fmt.Sprintf("its kubelet does not declare feature %q", f)
		}
	}
	for _, d := range needs.Drivers {
		if !slices.Contains(n.CSIDrivers, d) && (n.Initialized || p.lacks(d)) {
			return fmt.Sprintf("CSI driver %q is not installed", d)
		}
	}
	return ""
}

// OnNew returns what new nodes of the pool lack of the needs; nil if nothing.
func (x *Index) OnNew(name string, needs Needs) *rejection.Missing {
	if needs.None() {
		return nil
	}
	p := x.pool(name)
	if p == nil {
		return nil
	}
	for _, f := range needs.Features {
		if !slices.Contains(p.features, f) {
			return &rejection.Missing{Feature: f}
		}
	}
	for _, d := range needs.Drivers {
		if !p.lacks(d) {
			continue
		}
		return &rejection.Missing{Driver: d, DaemonSet: p.elsewhere[d].daemonSet, Why: p.elsewhere[d].why}
	}
	return nil
}

func (p *pool) lacks(driver string) bool {
	return !p.drivers[driver] && (p.seen || p.elsewhere[driver].daemonSet != "")
}

// pool returns what is known of the pool's new nodes; nil if the snapshot has no such pool.
func (x *Index) pool(name string) *pool {
	if p, known := x.pools[name]; known {
		return p
	}
	var out *pool
	if i := slices.IndexFunc(x.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == name }); i >= 0 {
		out = &pool{features: x.s.Pools[i].KubeletFeatures, drivers: map[string]bool{}, elsewhere: map[string]installer{}}
		x.learn(out, name)
		x.readDaemonSets(out, &x.s.Pools[i])
	}
	x.pools[name] = out
	return out
}

// learn reads the initialized nodes of the pool.
func (x *Index) learn(p *pool, name string) {
	for i := range x.s.Nodes {
		n := &x.s.Nodes[i]
		if n.Pool != name || !n.Initialized {
			continue
		}
		if !p.seen {
			p.features = n.DeclaredFeatures
		}
		p.features = slices.DeleteFunc(slices.Clone(p.features), func(f string) bool { return !slices.Contains(n.DeclaredFeatures, f) })
		p.seen = true
		for _, d := range n.CSIDrivers {
			p.drivers[d] = p.drivers[d] || !installed(n, d)
		}
	}
}

// installed reports whether a pod on the node has installed the driver there. Whether one will on new nodes is for its DaemonSet to state:
// the pool may have other taints now.
func installed(n *snapshot.Node, driver string) bool {
	return slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return slices.Contains(InstalledBy(&p.Spec), driver) })
}

// readDaemonSets finds the drivers that DaemonSets install on nodes of the pool, and those that they install elsewhere.
func (x *Index) readDaemonSets(p *pool, of *snapshot.Pool) {
	for i := range x.s.DaemonSets {
		set := &x.s.DaemonSets[i]
		if set.Pod == nil {
			continue
		}
		for _, driver := range InstalledBy(&set.Pod.Spec) {
			switch why := x.excludes(set.Pod, of); why {
			case "":
				p.drivers[driver] = true
			default:
				p.elsewhere[driver] = installer{set.Namespace + "/" + set.Name, why}
			}
		}
	}
}

// Where are the label requirements, one of which must hold, of nodes on which a DaemonSet installs the driver, as far as instance types
// decide them; nil if the labels do not matter, since the driver is not known to come from DaemonSets alone.
func (x *Index) Where(driver string) []requirement.Set {
	for i := range x.s.Nodes {
		if n := &x.s.Nodes[i]; slices.Contains(n.CSIDrivers, driver) && !installed(n, driver) {
			return nil // some images have it
		}
	}
	var out []requirement.Set
	for i := range x.s.DaemonSets {
		pod := x.s.DaemonSets[i].Pod
		if pod == nil || !slices.Contains(InstalledBy(&pod.Spec), driver) {
			continue
		}
		node, err := x.s.NodeSelection(&pod.Spec)
		if err != nil {
			continue
		}
		terms := node.Required
		if terms == nil {
			terms = []requirement.Set{{}}
		}
		for _, term := range terms {
			set := node.Selector.Intersect(term)
			var others []string
			for _, key := range set.Keys() {
				if !x.s.Labels.WellKnown[key] {
					others = append(others, key) // which pools decide: see OnNew
				}
			}
			if set = set.Without(others...); set.Len() == 0 {
				return nil
			}
			out = append(out, set)
		}
	}
	return out
}

// excludes returns why the daemon's pods do not run on nodes of the pool, in words; empty if they do.
func (x *Index) excludes(daemon *corev1.Pod, of *snapshot.Pool) string {
	if taint, blocked := snapshot.UntoleratedHard(daemon.Spec.Tolerations, of.NodePool.Spec.Template.Spec.Taints); blocked {
		return "does not tolerate taint " + taint.ToString() + " of the pool"
	}
	const elsewhere = "does not run on nodes of the pool: its node selection excludes them"
	own, err := x.s.Labels.FromPool(of.NodePool, of.NodeClassLabel)
	if err != nil {
		return ""
	}
	node, err := x.s.NodeSelection(&daemon.Spec)
	if err != nil {
		return elsewhere
	}
	newNode := x.s.Labels.OfNewNode(x.s.JoinValues())
	own = newNode.Join(own)
	terms := node.Required
	if terms == nil {
		terms = []requirement.Set{{}}
	}
	for _, term := range terms {
		if own.Compatible(newNode.Possible(node.Selector.Intersect(term), own), x.s.Labels.WellKnown) {
			return ""
		}
	}
	return elsewhere
}

// InstalledBy are the CSI drivers that the pods of a DaemonSet install on their nodes: each has a directory of the host with its socket,
// <kubelet>/plugins/<driver>.
func InstalledBy(spec *corev1.PodSpec) (drivers []string) {
	for i := range spec.Volumes {
		host := spec.Volumes[i].HostPath
		if host == nil {
			continue
		}
		if dir, driver := path.Split(path.Clean(host.Path)); strings.HasSuffix(dir, "/plugins/") {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}
