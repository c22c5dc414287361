package propertytest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	ebsDriver = "ebs.csi.aws.com"
	// restarts is a feature that kubelets declare.
	restarts = "RestartAllContainersOnContainerExits"
)

// storageWorld is a schedulerWorld with pods that have volumes and host ports, need features of kubelets, and are nominated to nodes. Its
// nodes have attach limits, volumes that are left over, and CSI drivers from a DaemonSet or from their image.
func (d random) storageWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Nodes { // volumes state the zone by this name
		s.Nodes[i].Labels[corev1.LabelFailureDomainBetaZone] = s.Nodes[i].Labels[Zone]
	}
	d.storage(s)
	for name, pv := range s.Volumes.Volumes {
		if pv.Spec.CSI != nil {
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: "vol-" + name}
		}
	}
	for _, class := range s.Volumes.StorageClasses {
		class.Provisioner = ebsDriver
	}
	d.attachLimits(s)
	d.drivers(s)
	d.kubelets(s)
	d.nominate(s)
	for _, family := range []string{"a", "b", "c"} {
		edit := d.familyEdit(s)
		for _, p := range s.Pods {
			if strings.HasPrefix(p.Name, family+"-") {
				edit(p)
			}
		}
		for i := range s.Nodes {
			for _, p := range s.Nodes[i].Pods {
				if strings.HasPrefix(p.Name, family+"-") {
					edit(p)
				}
			}
		}
	}
	return s
}

// familyEdit returns what the pods of an app have of volumes, ports and needs.
func (d random) familyEdit(s *snapshot.Snapshot) edit {
	var edits []edit
	add := func(percent int, e edit) {
		if d.maybe(percent) {
			edits = append(edits, e)
		}
	}
	add(25, Claims(pick(d, "disk-z1", "disk-z2", "disk-z1-or-z3", "disk-once-z1")))
	class := pick(d, "wait", "wait", "wait-z2")
	add(40, func(p *corev1.Pod) { ownClaim(s, p, class) })
	add(10, func(p *corev1.Pod) { ownClaim(s, p, "wait") })
	add(15, HostPort(pick(d, "", "127.0.0.1", "10.0.0.1", "::"), 81, pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP)))
	add(12, func(p *corev1.Pod) {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	})
	return all(edits...)
}

// ownClaim gives the pod a claim that no other pod has, and that has no volume yet.
func ownClaim(s *snapshot.Snapshot, p *corev1.Pod, class string) {
	name := fmt.Sprintf("own-%d-%s", len(p.Spec.Volumes), p.Name)
	Claims(name)(p)
	s.Volumes.Claims[types.NamespacedName{Namespace: p.Namespace, Name: name}] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
}

func (d random) attachLimits(s *snapshot.Snapshot) {
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			if it.VolumeLimits == nil && d.maybe(50) {
				it.VolumeLimits = map[string]int{ebsDriver: d.n(4)}
			}
		}
	}
	for i := range s.Nodes {
		if d.maybe(50) {
			s.Nodes[i].VolumeLimits = map[string]int32{ebsDriver: int32(d.n(5))}
		}
		if d.maybe(20) {
			s.Nodes[i].LeftoverVolumes = map[string]int32{ebsDriver: int32(d.from(1, 2))}
		}
	}
}

// drivers has kube-scheduler want the driver, which a DaemonSet installs where it runs, or which all images have.
func (d random) drivers(s *snapshot.Snapshot) {
	byDaemon := d.maybe(50)
	if d.maybe(50) {
		s.Volumes.MustBeInstalled = map[string]bool{ebsDriver: true}
	}
	if byDaemon {
		edits := []edit{func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "plugin", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/" + ebsDriver},
			}}}
		}}
		if d.maybe(50) {
			edits = append(edits, Tolerates("dedicated"))
		}
		if d.maybe(25) {
			edits = append(edits, Selects(Arch, pick(d, "amd64", "arm64")))
		}
		s.DaemonSets = append(s.DaemonSets, snapshot.DaemonSet{Namespace: "default", Name: "installer", Pod: Pod("installer", edits...)})
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := &ClusterNode{Name: n.Name, Labels: n.Labels, Taints: n.Taints}
		c := Cluster{Nodes: []*ClusterNode{at}}
		if !byDaemon {
			n.CSIDrivers = []string{ebsDriver}
			continue
		}
		if p := DaemonPod(&s.DaemonSets[len(s.DaemonSets)-1], n.Name); c.nodeAffinity(p, at) == "" && c.taints(p, at) == "" {
			n.CSIDrivers, n.Pods = []string{ebsDriver}, append(n.Pods, Bound(p, n.Name))
		}
	}
}

// kubelets gives each pool kubelets that declare the feature, or not.
func (d random) kubelets(s *snapshot.Snapshot) {
	declaring := map[string]bool{"p0": d.maybe(50), "p1": d.maybe(50), "p2": d.maybe(50)}
	for i := range s.Pools {
		if declaring[s.Pools[i].NodePool.Name] {
			s.Pools[i].KubeletFeatures = []string{restarts}
		}
	}
	for i := range s.Nodes {
		if declaring[s.Nodes[i].Labels[karpv1.LabelNodePool]] {
			s.Nodes[i].DeclaredFeatures = []string{restarts}
		}
	}
}

// nominate has kube-scheduler nominate a pod to a node that has room for it.
func (d random) nominate(s *snapshot.Snapshot) {
	for i := range s.Nodes {
		if !d.maybe(20) {
			continue
		}
		n := &s.Nodes[i]
		p := Pod("nominated-"+n.Name, Requests("cpu", fmt.Sprintf("%dm", 250*d.from(1, 6))), Tolerates("dedicated"), Tolerates("broken"))
		p.Status.NominatedNodeName = n.Name
		at := &ClusterNode{Name: n.Name, Labels: n.Labels, Taints: n.Taints, Allocatable: n.Allocatable, Pods: n.Pods}
		if c := (Cluster{Nodes: []*ClusterNode{at}}); c.resources(p, at) == "" {
			n.Pods = append(n.Pods, p)
		}
	}
}
