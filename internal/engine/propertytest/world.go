package propertytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// world is a cluster without closed zones.
func (d random) world() *snapshot.Snapshot {
	s, _ := d.cluster()
	return s
}

// anyWorld is a cluster in which, now and then, no type is sold in some zone.
func (d random) anyWorld() *snapshot.Snapshot {
	s, types := d.cluster()
	if d.maybe(10) {
		closeZone(types, pick(d, Zones()...))
	}
	return s
}

// cluster is a snapshot, with the instance types that its pools choose from.
func (d random) cluster() (*snapshot.Snapshot, []*catalog.InstanceType) {
	s := World(nil)
	s.Labels = vocabulary()
	s.Namespaces = map[string]map[string]string{"default": {"tier": "front"}, "other": {"tier": "back"}}
	s.Settings = snapshot.Settings{
		PreferencePolicy: snapshot.PreferencePolicy(pick(d, "Respect", "Respect", "Ignore")),
		MinValuesPolicy:  snapshot.MinValuesPolicy(pick(d, "Strict", "BestEffort")),
	}
	if d.maybe(15) {
		s.Settings.NodeCost = 0.05
	}
	types := d.instanceTypes()
	for i := range d.from(1, 3) {
		own := types
		if d.maybe(20) {
			own = own[:d.from(1, len(own))]
		}
		s.Pools = append(s.Pools, d.pool(fmt.Sprintf("p%d", i), own))
	}
	for _, name := range []string{"a", "b", "c", "d"}[:d.from(1, 4)] {
		s.Pods = append(s.Pods, d.family(name, 5)...)
	}
	for i := range d.n(3) {
		s.DaemonSets = append(s.DaemonSets, d.daemon(fmt.Sprintf("agent-%d", i)))
	}
	if d.maybe(60) {
		for i := range d.from(1, 4) {
			s.Nodes = append(s.Nodes, d.node(s, fmt.Sprintf("n%d", i)))
		}
	}
	d.storage(s)
	for _, it := range types {
		if d.maybe(30) {
			d.unsold(it)
		}
	}
	return s, types
}

func (d random) daemon(name string) snapshot.DaemonSet {
	var edits []edit
	add := func(percent int, e edit) {
		if d.maybe(percent) {
			edits = append(edits, e)
		}
	}
	edits = append(edits, Requests("cpu", fmt.Sprintf("%dm", 50*d.from(1, 8)), "memory", "100Mi"))
	add(70, Tolerates("hard"))
	add(25, d.selector())
	add(20, d.nodeAffinity())
	add(25, HostPort("", int32(pick(d, 80, 81)), corev1.ProtocolTCP))
	add(12, d.daemonVolume())
	add(10, func(p *corev1.Pod) { // limits without defaulted requests
		r := &p.Spec.Containers[0].Resources
		r.Limits, r.Requests = r.Requests, nil
	})
	add(8, Selects(karpv1.LabelInitialized, "true"))
	return snapshot.DaemonSet{Namespace: "default", Name: name, Pod: Pod(name, edits...)}
}

// daemonVolume is an ephemeral volume, or a claim that all pods of the set share.
func (d random) daemonVolume() edit {
	class := pick(d, "wait", "wait", "wait-z2", "none")
	if d.maybe(30) {
		return Claims(pick(d, "disk-anywhere", "disk-z1", "disk-new"))
	}
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "cache", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
			}},
		}})
	}
}

// node is a managed one, initialized or in flight, or an unmanaged one.
func (d random) node(s *snapshot.Snapshot, name string) snapshot.Node {
	cpu := pick(d, 4, 2, 8, 16)
	n := Node(name, pick(d, "p0", "p1"), func(n *snapshot.Node) {
		zone := pick(d, Zones()...)
		n.Labels[Zone], n.Labels[zoneID], n.Labels[corev1.LabelTopologyRegion] = zone, zone+"-id", "r1"
		n.Labels[Arch] = pick(d, "amd64", "amd64", "arm64")
		n.Labels[Capacity] = pick(d, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot)
		n.Labels[corev1.LabelInstanceTypeStable], n.Labels[cores] = pick(d, "t0", "t1"), fmt.Sprint(cpu)
		n.Allocatable = Resources("cpu", fmt.Sprint(cpu), "memory", fmt.Sprintf("%dGi", 4*cpu), "pods", fmt.Sprint(pick(d, 110, 4)))
		n.Capacity = n.Allocatable
		for _, label := range [][2]string{{"rack", pick(d, "r1", "r2")}, {"team", pick(d, "x", "y", "other")}} {
			if d.maybe(40) {
				n.Labels[label[0]] = label[1]
			}
		}
		if d.maybe(8) {
			delete(n.Labels, Zone)
		}
		for key, earlier := range EarlierNames {
			if value, has := n.Labels[key]; has {
				n.Labels[earlier] = value
			}
		}
		if d.maybe(30) {
			n.Taints = []corev1.Taint{
				{
					Key:    pick(d, "hard", "soft"),
					Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
				},
			}
		}
		if d.maybe(25) {
			n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": int32(d.n(3))}
		}
	})
	d.stage(s, &n)
	for _, pod := range d.family(pick(d, "a", "b", "c", "d"), 3) {
		d.bind(s, &n, pod)
	}
	for i := range s.DaemonSets {
		if d.maybe(50) && n.Launched {
			pod := s.DaemonSets[i].Pod.DeepCopy()
			OwnedBy("apps/v1", "DaemonSet")(pod)
			pod.OwnerReferences[0].Name = s.DaemonSets[i].Name
			pod.Name, pod.UID = pod.Name+"-"+name, pod.UID+types.UID("-"+name)
			n.Pods = append(n.Pods, Bound(pod, name))
		}
	}
	return n
}

// stage sets the lifecycle stage of the node.
func (d random) stage(s *snapshot.Snapshot, n *snapshot.Node) {
	nominate := func() {
		for _, pod := range s.Pods[:d.n(min(3, len(s.Pods))+1)] {
			n.Nominated = append(n.Nominated, pod.UID)
		}
	}
	switch d.n(10) {
	case 0: // deleting
		n.Deleting = true
	case 1: // unmanaged
		n.Claim, n.ClaimUID, n.Pool = "", "", ""
		delete(n.Labels, karpv1.LabelNodePool)
	case 2: // registered
		n.Initialized = false
		nominate()
	case 3: // launched
		n.Registered, n.Initialized = false, false
		nominate()
	case 4: // not launched: only its requirements are known
		n.Launched, n.Registered, n.Initialized = false, false, false
		n.Name = n.Claim
		n.Labels = map[string]string{karpv1.LabelNodePool: n.Pool}
		n.Requirements = []karpv1.Requirement{{Key: Zone, Operator: in, Values: some(d, 2, "z1", "z2", "z3")}}
		nominate()
	case 5: // initialized, and still nominated
		nominate()
	}
}

// bind binds a pod to the node; pods of deleting nodes sometimes need another.
func (d random) bind(s *snapshot.Snapshot, n *snapshot.Node, pod *corev1.Pod) {
	if !n.Launched {
		return
	}
	pod.Name, pod.UID = pod.Name+"-"+n.Name, pod.UID+types.UID("-on-"+n.Name)
	Bound(pod, n.Name)
	n.Pods = append(n.Pods, pod)
	switch {
	case n.Deleting && d.maybe(60):
		s.Pods = append(s.Pods, pod)
	case d.maybe(8):
		pod.Status.Phase = corev1.PodSucceeded
	case d.maybe(8):
		pod.DeletionTimestamp = &metav1.Time{Time: Now()}
	}
}

// storage has a claim of each kind, in both namespaces, and those of ephemeral volumes.
func (d random) storage(s *snapshot.Snapshot) {
	s.Volumes = snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{},
	}
	class := func(name string, mode storagev1.VolumeBindingMode, zones ...string) {
		sc := &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name},
			Provisioner:       pick(d, "ebs.csi.aws.com", "kubernetes.io/aws-ebs"),
			VolumeBindingMode: &mode,
		}
		for _, z := range zones {
			sc.AllowedTopologies = append(
				sc.AllowedTopologies,
				corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: Zone, Values: []string{z}}}},
			)
		}
		s.Volumes.StorageClasses[name] = sc
	}
	class("wait", storagev1.VolumeBindingWaitForFirstConsumer)
	class("wait-z2", storagev1.VolumeBindingWaitForFirstConsumer, "z2", pick(d, "z2", "z3"))
	class("now", storagev1.VolumeBindingImmediate)
	bound := func(ns, name string, source corev1.PersistentVolumeSource, terms ...corev1.NodeSelectorTerm) {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name},
			Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}
		if len(terms) > 0 {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		}
		s.Volumes.Volumes[pv.Name] = pv
		s.Volumes.Claims[types.NamespacedName{Namespace: ns, Name: name}] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: pv.Name,
			}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
	}
	unbound := func(ns, name, class string) {
		s.Volumes.Claims[types.NamespacedName{Namespace: ns, Name: name}] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		}
	}
	term := func(exprs ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: exprs}
	}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}}
	host := Expr(Host, in, "gone")
	for _, ns := range []string{"default", "other"} {
		bound(ns, "disk-z1", csi, term(Expr("failure-domain.beta.kubernetes.io/zone", in, "z1")))
		bound(ns, "disk-z2", csi, term(Expr(Zone, in, "z2")))
		bound(ns, "disk-z1-or-z3", csi, term(Expr(Zone, in, "z1")), term(Expr(Zone, in, "z3")))
		bound(ns, "disk-anywhere", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}})
		bound(
			ns,
			"disk-local",
			corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}},
			term(host, Expr(Zone, in, "z1")),
			term(Expr(Zone, in, "z2")),
		)
		bound(ns, "disk-host", csi, term(host))
		bound(
			ns,
			"disk-intree",
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}},
			term(Expr(Zone, in, "z1", "z2")),
		)
		unbound(ns, "disk-new", "wait")
		unbound(ns, "disk-new-z2", "wait-z2")
		unbound(ns, "disk-soon", "now")
		bound(ns, "disk-once-z1", csi, term(Expr(Zone, in, "z1")))
		unbound(ns, "disk-once", "wait")
		for _, name := range []string{"disk-once", "disk-once-z1"} { // one pod each
			claim := s.Volumes.Claims[types.NamespacedName{Namespace: ns, Name: name}]
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}
		bound(ns, "disk-lost", csi)
		s.Volumes.Claims[types.NamespacedName{Namespace: ns, Name: "disk-lost"}].Status.Phase = corev1.ClaimLost
	}
	pods := s.Pods
	for i := range s.Nodes {
		pods = append(pods[:len(pods):len(pods)], s.Nodes[i].Pods...)
	}
	for _, pod := range pods {
		for _, v := range pod.Spec.Volumes {
			if v.Ephemeral != nil {
				unbound(pod.Namespace, pod.Name+"-"+v.Name, "wait")
				claim := s.Volumes.Claims[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name}]
				claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			}
		}
	}
}
