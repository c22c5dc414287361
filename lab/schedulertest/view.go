package schedulertest

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
)

// view is the cluster of the moment, as plugins see it. Most clusters differ from the one before in one pod or one node: nodes and pods
// that are the same stay as they are.
type view struct {
	*cache.Snapshot           // what plugins see of PodGroups
	nodes           *nodeList // nil for those of Snapshot
	csi             []*storagev1.CSINode
	// last is what was shown of a node, by name; pods are those that were shown on some node.
	last map[string]*shownNode
	pods map[placedPod]*framework.PodInfo
}

func newView() *view {
	return &view{Snapshot: cache.NewEmptySnapshot(), last: map[string]*shownNode{}, pods: map[placedPod]*framework.PodInfo{}}
}

// placedPod is a pod on a node.
type placedPod struct {
	pod  *corev1.Pod
	node string
}

// shownNode is a node as plugins see it.
type shownNode struct {
	of   propertytest.ClusterNode
	info *framework.NodeInfo
	csi  *storagev1.CSINode
	// nominated are the pods that are nominated to the node.
	nominated []*corev1.Pod
}

// show has plugins see the nodes of the cluster, and one more without room that is like a node, if that is not nil. It returns the pods
// that are nominated, by node.
func (v *view) show(c *propertytest.Cluster, like *propertytest.ClusterNode) (map[string][]*corev1.Pod, error) {
	nominated := map[string][]*corev1.Pod{}
	v.nodes, v.csi = &nodeList{}, v.csi[:0]
	for _, n := range c.Nodes {
		if n.Gone {
			continue
		}
		at := v.last[n.Name]
		if at == nil || !at.shows(n) {
			var err error
			if at, err = v.shown(c, n); err != nil {
				return nil, err
			}
			v.last[n.Name] = at
		}
		v.nodes.add(at.info)
		v.csi = append(v.csi, at.csi)
		if len(at.nominated) > 0 {
			nominated[n.Name] = at.nominated
		}
	}
	if like != nil {
		empty := framework.NewNodeInfo()
		empty.SetNode(nodeObject(like, emptyHost, corev1.ResourceList{corev1.ResourcePods: resource.Quantity{}}))
		v.nodes.add(empty)
	}
	return nominated, nil
}

// shows reports whether the node has not changed.
func (s *shownNode) shows(n *propertytest.ClusterNode) bool {
	return s.of.Existing == n.Existing && s.of.Type == n.Type && s.of.Pool == n.Pool && slices.Equal(s.of.Pods, n.Pods) &&
		reflect.ValueOf(s.of.Labels).Pointer() == reflect.ValueOf(n.Labels).Pointer()
}

// shown is the node as plugins see it.
func (v *view) shown(c *propertytest.Cluster, n *propertytest.ClusterNode) (*shownNode, error) {
	out := &shownNode{of: *n, info: framework.NewNodeInfo(), csi: csiNode(c.World, n)}
	out.of.Pods = slices.Clone(n.Pods)
	for _, p := range n.Pods {
		if p.Status.NominatedNodeName != "" {
			out.nominated = append(out.nominated, p)
			continue
		}
		key := placedPod{p, n.Name}
		info := v.pods[key]
		if info == nil {
			bound := *p
			bound.Spec.NodeName = n.Name
			var err error
			if info, err = framework.NewPodInfo(&bound); err != nil {
				return nil, err
			}
			v.pods[key] = info
		}
		out.info.AddPodInfo(info)
	}
	out.info.SetNode(nodeObject(n, n.Name, plain(n, n.Allocatable)))
	return out, nil
}

// NodeInfos lists the nodes.
func (v *view) NodeInfos() fwk.NodeInfoLister {
	if v.nodes == nil {
		return v.Snapshot.NodeInfos()
	}
	return v.nodes
}

// StorageInfos knows which claims pods on nodes use.
func (v *view) StorageInfos() fwk.StorageInfoLister {
	if v.nodes == nil {
		return v.Snapshot.StorageInfos()
	}
	return v.nodes
}

// nodeList are nodes, and which of them have pods with rules about other pods.
type nodeList struct{ all, affinity, antiAffinity, beyondHosts []fwk.NodeInfo }

func (l *nodeList) add(n *framework.NodeInfo) {
	l.all = append(l.all, n)
	if len(n.PodsWithAffinity) > 0 {
		l.affinity = append(l.affinity, n)
	}
	if len(n.PodsWithRequiredAntiAffinity) > 0 {
		l.antiAffinity = append(l.antiAffinity, n)
	}
	if len(n.PodsWithRequiredNonHostScopedAntiAffinity) > 0 {
		l.beyondHosts = append(l.beyondHosts, n)
	}
}

// List lists the nodes.
func (l *nodeList) List() ([]fwk.NodeInfo, error) { return l.all, nil }

// HavePodsWithAffinityList lists the nodes that have pods with affinity or anti-affinity.
func (l *nodeList) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return l.affinity, nil }

// HavePodsWithRequiredAntiAffinityList lists the nodes that have pods with required anti-affinity.
func (l *nodeList) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return l.antiAffinity, nil
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList lists the nodes that have pods with required anti-affinity over more than hosts.
func (l *nodeList) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return l.beyondHosts, nil
}

// Get finds the node by name. The error is a node that does not exist.
func (l *nodeList) Get(name string) (fwk.NodeInfo, error) {
	i := slices.IndexFunc(l.all, func(n fwk.NodeInfo) bool { return n.Node().Name == name })
	if i < 0 {
		return nil, fmt.Errorf("node %q does not exist", name)
	}
	return l.all[i], nil
}

// IsPVCUsedByPods reports whether a pod on a node uses the claim, as "namespace/name".
func (l *nodeList) IsPVCUsedByPods(key string) bool {
	return slices.ContainsFunc(l.all, func(n fwk.NodeInfo) bool { return n.GetPVCRefCounts()[key] > 0 })
}

// CSINodes lists the CSINodes.
func (v *view) CSINodes() fwk.CSINodeLister { return csiNodes(v.csi) }

type csiNodes []*storagev1.CSINode

// List lists the CSINodes.
func (l csiNodes) List() ([]*storagev1.CSINode, error) { return l, nil }

// Get returns the CSINode of the node. The error is NotFound.
func (l csiNodes) Get(name string) (*storagev1.CSINode, error) {
	i := slices.IndexFunc(l, func(n *storagev1.CSINode) bool { return n.Name == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(storagev1.Resource("csinodes"), name)
	}
	return l[i], nil
}
