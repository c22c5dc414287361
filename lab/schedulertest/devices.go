package schedulertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	ours "github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// DevicesWorld is a propertytest.DevicesWorld with the devices that Dovetail reads from its objects.
func DevicesWorld(next func() byte) *snapshot.Snapshot {
	s, objects := propertytest.DevicesWorld(next)
	w := &deviceWorld{DeviceObjects: objects, types: map[string][]*catalog.InstanceType{}}
	for i := range s.Pools {
		w.types[s.Pools[i].NodePool.Name] = s.Pools[i].InstanceTypes
	}
	w.addTo(s, objects.Claims, objects.Slices)
	return s
}

// deviceWorld is what the API server has of dynamic resource allocation before a plan.
type deviceWorld struct {
	*propertytest.DeviceObjects
	// types are the instance types by pool, as the catalog has them.
	types map[string][]*catalog.InstanceType
}

// knownDevices are the devices of a Snapshot, with the objects that they are made from.
type knownDevices struct {
	snapshot.Devices
	world *deviceWorld
}

// addTo adds the devices to a snapshot that has none.
func (w *deviceWorld) addTo(s *snapshot.Snapshot, claims []*resourcev1.ResourceClaim, published []*resourcev1.ResourceSlice) {
	cluster.AddDevices(s, &cluster.Devices{
		Claims: claims, Slices: published, Classes: w.Classes, TaintRules: w.Rules, Expressions: ours.NewExpressions(),
	})
	s.Devices = &knownDevices{s.Devices, w}
}

// worldOf is the world of a snapshot; nil if it has no devices.
func worldOf(s *snapshot.Snapshot) *deviceWorld {
	if known, has := s.Devices.(*knownDevices); has {
		return known.world
	}
	return nil
}

// Devices are those that the pods of the snapshot have at first.
func (s *Scheduler) Devices(of *snapshot.Snapshot) propertytest.Devices {
	w := worldOf(of)
	if w == nil {
		return nil
	}
	return &allocated{scheduler: s, world: w, claims: map[types.UID]*resourcev1.ResourceClaim{}}
}

// allocated are the claims that have devices, or others than in the world.
type allocated struct {
	scheduler *Scheduler
	world     *deviceWorld
	// claims are the claims that pods took devices for, by their UID. A claim is not changed.
	claims map[types.UID]*resourcev1.ResourceClaim
}

// Copy implements propertytest.Devices.
func (a *allocated) Copy() propertytest.Devices {
	out := *a
	out.claims = maps.Clone(a.claims)
	return &out
}

// Take implements propertytest.Devices: it is Filter and Reserve, and what PreBind writes.
func (a *allocated) Take(c *propertytest.Cluster, pod *corev1.Pod, node *propertytest.ClusterNode) {
	claimed := a.withClaims(pod)
	if len(claimed.Spec.ResourceClaims) == 0 && !requestsExtended(claimed) {
		return
	}
	reserved, err := a.scheduler.reserve(c, claimed, node)
	if err != nil {
		panic(fmt.Sprintf("pod %s on %s: %v", pod.Name, node.Name, err)) // the filter has accepted it
	}
	for _, claim := range a.withMade(c) {
		if usedBy(claim, claimed) && reserved[claim.UID] == nil {
			reserved[claim.UID] = claim.DeepCopy()
		}
	}
	for uid, claim := range reserved {
		if claim.Name == "<extended-resources>" {
			claim.Name, claim.UID = pod.Name+"-extended-resources", "extended-"+pod.UID
			uid = claim.UID
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
		a.claims[uid] = claim
	}
}

// requestsExtended reports whether the pod may request extended resources.
func requestsExtended(pod *corev1.Pod) bool {
	for name := range snapshot.Requests(pod) {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods {
			return true
		}
	}
	return false
}

// usedBy reports whether the pod refers to the claim.
func usedBy(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	if claim.Namespace != pod.Namespace {
		return false
	}
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(ref corev1.PodResourceClaim) bool {
		return ref.ResourceClaimName != nil && *ref.ResourceClaimName == claim.Name
	}) || slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(st corev1.PodResourceClaimStatus) bool {
		return st.ResourceClaimName != nil && *st.ResourceClaimName == claim.Name
	})
}

// withClaims is the pod with the claims that are made of its templates: those of a DaemonSet's pod, or of one that is made again.
func (a *allocated) withClaims(pod *corev1.Pod) *corev1.Pod {
	out, _ := a.made(pod)
	return out
}

// made is the pod with claims of its templates, and those that are made now.
func (a *allocated) made(pod *corev1.Pod) (*corev1.Pod, []*resourcev1.ResourceClaim) {
	out := pod
	var made []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		if ref.ResourceClaimTemplateName == nil || slices.ContainsFunc(pod.Status.ResourceClaimStatuses,
			func(st corev1.PodResourceClaimStatus) bool { return st.Name == ref.Name }) {
			continue
		}
		if out == pod {
			own := *pod
			out = &own
		}
		if claim := propertytest.MadeClaim(out, ref, a.world.Templates); claim != nil {
			made = append(made, claim)
		}
	}
	return out, made
}

// now are the claims in the cluster: without users that are gone, and without devices once all are.
func (a *allocated) now(c *propertytest.Cluster) (out []*resourcev1.ResourceClaim) {
	running := map[types.UID]bool{}
	for _, n := range c.Nodes {
		for _, p := range n.Pods {
			running[p.UID] = !n.Gone
		}
	}
	seen := map[types.UID]bool{}
	add := func(claim *resourcev1.ResourceClaim) {
		if seen[claim.UID] {
			return
		}
		seen[claim.UID] = true
		if known := a.claims[claim.UID]; known != nil {
			claim = known
		}
		gone := func(r resourcev1.ResourceClaimConsumerReference) bool { return !running[r.UID] }
		if slices.ContainsFunc(claim.Status.ReservedFor, gone) {
			claim = claim.DeepCopy()
			claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor, gone)
		}
		if len(claim.Status.ReservedFor) == 0 && claim.Status.Allocation != nil {
			claim = claim.DeepCopy()
			claim.Status.Allocation = nil
		}
		if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "" && claim.Status.Allocation == nil {
			return // it is deleted with its pod
		}
		out = append(out, claim)
	}
	for _, claim := range a.world.Claims {
		add(claim)
	}
	for _, uid := range slices.Sorted(maps.Keys(a.claims)) {
		add(a.claims[uid])
	}
	return out
}

// withMade are the claims in the cluster, with those that are made for DaemonSets' pods.
func (a *allocated) withMade(c *propertytest.Cluster) []*resourcev1.ResourceClaim {
	out := a.now(c)
	for _, n := range c.Nodes {
		for i := range c.World.DaemonSets {
			_, made := a.made(propertytest.DaemonPod(&c.World.DaemonSets[i], n.Name))
			for _, claim := range made {
				if !slices.ContainsFunc(out, func(o *resourcev1.ResourceClaim) bool { return o.UID == claim.UID }) {
					out = append(out, claim)
				}
			}
		}
	}
	return out
}

// published are the slices of the nodes of the cluster, and of no node.
func (a *allocated) published(c *propertytest.Cluster) (out []*resourcev1.ResourceSlice) {
	here := map[string]*propertytest.ClusterNode{}
	for _, n := range c.Nodes {
		if !n.Gone {
			here[n.Name] = n
		}
	}
	for _, s := range a.world.Slices {
		if node := ours.NodeOf(s); node == "" || here[node] != nil {
			out = append(out, s)
		}
	}
	for _, n := range c.Nodes {
		switch {
		case n.Existing == nil:
			out = append(out, propertytest.PublishedSlices(n.Name, n.Type.DeviceSlices)...)
		case n.Existing.Claim != "" && !n.Existing.Initialized:
			out = append(out, propertytest.PublishedSlices(n.Name, inFlight(c.World, n.Existing))...)
		}
	}
	return out
}

// inFlight are the devices that a node in flight comes with: those of its type, of the drivers that its claim waits for.
func inFlight(s *snapshot.Snapshot, n *snapshot.Node) []resourcev1.ResourceSliceSpec {
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			if s.Pools[i].NodePool.Name == n.Pool && it.Name == n.Labels[corev1.LabelInstanceTypeStable] {
				return it.WithDevicesOf(n.DRADrivers).DeviceSlices
			}
		}
	}
	return nil
}

// Next implements propertytest.Devices.
func (a *allocated) Next(c *propertytest.Cluster, s *snapshot.Snapshot) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, was := range c.Nodes {
			if was.Name == n.Name {
				n.Allocatable, n.DRAResources = plain(was, n.Allocatable), nil
			}
		}
	}
	for i := range s.Pools {
		kept := s.Pools[i].InstanceTypes
		s.Pools[i].InstanceTypes = slices.DeleteFunc(slices.Clone(a.world.types[s.Pools[i].NodePool.Name]), func(it *catalog.InstanceType) bool {
			return !slices.ContainsFunc(kept, func(k *catalog.InstanceType) bool { return k.Name == it.Name })
		})
	}
	next := *a.world
	objects := *a.world.DeviceObjects
	objects.Claims, objects.Slices = a.now(c), a.published(c)
	for _, pod := range s.Pods {
		_, made := a.made(pod)
		objects.Claims = append(objects.Claims, made...)
	}
	next.DeviceObjects = &objects
	next.addTo(s, objects.Claims, objects.Slices)
}

// plain is what the kubelet of a node reports: without the extended resources that devices serve.
func plain(n *propertytest.ClusterNode, allocatable corev1.ResourceList) corev1.ResourceList {
	served := n.Existing != nil && len(n.Existing.DRAResources) > 0 || n.Existing == nil && n.Type != nil && len(n.Type.DRAResources) > 0
	if !served {
		return allocatable
	}
	out := maps.Clone(allocatable)
	if n.Existing != nil {
		for _, name := range n.Existing.DRAResources {
			delete(out, name)
		}
		return out
	}
	for _, name := range n.Type.DRAResources {
		delete(out, name)
	}
	return out
}

// manager is the scheduler's view of devices, of the moment.
type manager struct {
	fwk.SharedDRAManager
	signaled *signals
	stop     func()
}

func (m *manager) ResourceClaims() fwk.ResourceClaimTracker { return m.signaled }

func (m *manager) ResourceSlices() fwk.ResourceSliceLister {
	return inOrder{m.SharedDRAManager.ResourceSlices()}
}

// inOrder lists slices by name: kube-scheduler has them in any order.
type inOrder struct{ fwk.ResourceSliceLister }

func (l inOrder) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	out, err := l.ResourceSliceLister.ListWithDeviceTaintRules()
	slices.SortFunc(out, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// signals are the claims that Reserve has allocated.
type signals struct {
	fwk.ResourceClaimTracker
	reserved map[types.UID]*resourcev1.ResourceClaim
}

// SignalClaimPendingAllocation notes the claim.
func (s *signals) SignalClaimPendingAllocation(uid types.UID, claim *resourcev1.ResourceClaim) error {
	s.reserved[uid] = claim
	return nil
}

// show has the manager see these objects.
func (m *manager) show(ctx context.Context, claims []*resourcev1.ResourceClaim, slices []*resourcev1.ResourceSlice, w *deviceWorld) error {
	m.stop()
	factory := informers.NewSharedInformerFactory(nil, 0)
	var rules []*resourcev1.DeviceTaintRule
	var classes []*resourcev1.DeviceClass
	if w != nil {
		rules, classes = w.Rules, w.Classes
	}
	var err error
	add := func(example runtime.Object, list *objects, failed error) {
		err = cmp.Or(err, failed)
		factory.InformerFor(example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return list })
	}
	claimList, failed := listOf(claims)
	add(&resourcev1.ResourceClaim{}, claimList, failed)
	sliceList, failed := listOf(slices)
	add(&resourcev1.ResourceSlice{}, sliceList, failed)
	ruleList, failed := listOf(rules)
	add(&resourcev1.DeviceTaintRule{}, ruleList, failed)
	classList, failed := listOf(classes)
	add(&resourcev1.DeviceClass{}, classList, failed)
	if err != nil {
		return err
	}
	tracked, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true, EnableConsumableCapacity: true,
		SliceInformer: factory.Resource().V1().ResourceSlices(), TaintInformer: factory.Resource().V1().DeviceTaintRules(),
	})
	if err != nil {
		return err
	}
	known := assumecache.NewAssumeCache(klog.FromContext(ctx), claimList, "ResourceClaim", "", nil)
	real := dynamicresources.NewDRAManager(ctx, known, tracked, factory)
	classNames, _ := real.DeviceClassResolver().(cache.ResourceEventHandler)
	for _, class := range classes {
		classNames.OnAdd(class, true)
	}
	m.SharedDRAManager, m.signaled = real, &signals{real.ResourceClaims(), map[types.UID]*resourcev1.ResourceClaim{}}
	m.stop = tracked.Stop
	return nil
}

func listOf[T runtime.Object](list []T) (*objects, error) {
	var out []runtime.Object
	for _, o := range list {
		out = append(out, o)
	}
	return newObjects(out...)
}

// reserve returns the claims that get devices when the pod, which the scheduler accepts on the node, is to run there, by their UIDs.
func (s *Scheduler) reserve(
	c *propertytest.Cluster, pod *corev1.Pod, node *propertytest.ClusterNode,
) (map[types.UID]*resourcev1.ResourceClaim, error) {
	if err := s.see(c, node); err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	_, status, _ := s.framework.RunPreFilterPlugins(s.ctx, state, pod)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	info, err := s.snapshot.NodeInfos().Get(node.Name)
	if err != nil {
		return nil, err
	}
	if status := s.framework.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, info); !status.IsSuccess() {
		return nil, status.AsError()
	}
	s.devices.signaled.reserved = map[types.UID]*resourcev1.ResourceClaim{}
	if status := s.framework.RunReservePluginsReserve(s.ctx, state, pod, node.Name); !status.IsSuccess() {
		return nil, status.AsError()
	}
	return s.devices.signaled.reserved, nil
}

// DeviceObjects prints the devices of a world, for people.
func DeviceObjects(s *snapshot.Snapshot) string {
	w := worldOf(s)
	if w == nil {
		return ""
	}
	out := ""
	for _, c := range w.Classes {
		out += fmt.Sprintf("class %s %v\n", c.Name, c.Spec)
	}
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			out += fmt.Sprintf("pool %s type %s %v serves %v\n", s.Pools[i].NodePool.Name, it.Name, it.DeviceSlices, it.DRAResources)
		}
	}
	for i := range s.Nodes {
		out += fmt.Sprintf("node %s serves %v\n", s.Nodes[i].Name, s.Nodes[i].DRAResources)
	}
	for _, sl := range w.Slices {
		out += fmt.Sprintf("slice %s %v\n", sl.Name, sl.Spec.String())
	}
	for _, r := range w.Rules {
		out += fmt.Sprintf("rule %s %v\n", r.Name, r.Spec.String())
	}
	used := func(c *resourcev1.ResourceClaim) bool {
		if c.Status.Allocation != nil {
			return true
		}
		return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return usedBy(c, p) })
	}
	for _, c := range w.Claims {
		if used(c) {
			out += fmt.Sprintf("claim %s/%s %s\n   %s\n", c.Namespace, c.Name, c.Spec.String(), c.Status.String())
		}
	}
	return out
}
