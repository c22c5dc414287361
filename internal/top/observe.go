package top

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Objects are the API objects that a Fleet is made of. They are shared and not changed.
type Objects struct {
	Now    time.Time
	Nodes  []*corev1.Node
	Claims []*karpv1.NodeClaim
	Pods   []Pod
	// PodsUnknown is true if pods may not be read.
	PodsUnknown bool
	// Used holds what the containers of each node use, by node name. Nil if metrics-server does not answer.
	Used map[string]Used
	// Prices holds what nodes cost; nil while they are not read.
	Prices *fleet.Prices
}

// Used describes what the containers of a node use.
type Used struct {
	// CPU is in millicores, Memory in bytes.
	CPU, Memory int64
}

// Pod is a pod, with what the screen needs at every refresh.
type Pod struct {
	*corev1.Pod
	// CPU is the request in millicores, Memory in bytes.
	CPU, Memory int64
	// Hash identifies the pod with what is drawn of it.
	Hash uint64
	// Scheduler states why kube-scheduler has found no node, in its words.
	Scheduler string
}

// PodOf reads a pod. It costs a few microseconds, so that callers do it once per change of the pod.
func PodOf(p *corev1.Pod) Pod {
	requests := snapshot.Requests(p)
	out := Pod{Pod: p, CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
	out.Hash = out.hash()
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			out.Scheduler = c.Message
		}
	}
	return out
}

// hash is FNV-1a over the UID and the requests.
func (p *Pod) hash() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, b := range []byte(p.UID) {
		h = (h ^ uint64(b)) * prime
	}
	for _, v := range [...]int64{p.CPU, p.Memory} {
		h = (h ^ uint64(v)) * prime
		h = (h ^ uint64(v)>>32) * prime // a product carries nothing down
	}
	return h
}

// PodsOf reads pods.
func PodsOf(pods []*corev1.Pod) []Pod {
	out := make([]Pod, 0, len(pods))
	for _, p := range pods {
		out = append(out, PodOf(p))
	}
	return out
}

// Use states how much of a resource a node or several have: millicores or bytes.
type Use struct {
	Allocatable int64 `json:"allocatable"`
	// Requested holds what pods request; null if pods may not be read.
	Requested *int64 `json:"requested"`
	// Used holds what containers use; null if metrics-server does not report it.
	Used *int64 `json:"used"`
}

// Share is the requested share of allocatable; 0 for nothing allocatable, and if it is not known.
func (u Use) Share() float64 { return share(deref(u.Requested), u.Allocatable) }

// UsedShare is the used share of allocatable; negative if it is not known.
func (u Use) UsedShare() float64 {
	if u.Used == nil {
		return -1
	}
	return share(*u.Used, u.Allocatable)
}

// percent is the requested share in words; "?" for nothing allocatable, and if it is not known.
func (u Use) percent() string {
	if u.Allocatable <= 0 || u.Requested == nil {
		return "?"
	}
	return report.Share(u.Share())
}

func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (u *Use) add(other Use) {
	u.Allocatable += other.Allocatable
	u.Requested, u.Used = plus(u.Requested, other.Requested), plus(u.Used, other.Used)
}

// plus adds amounts of which some may not be known; those count as nothing beside known ones.
func plus(a, b *int64) *int64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := *a + *b
	return &sum
}

func deref(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

// Node is a node, a NodeClaim, or both.
type Node struct {
	// Name is that of the Node, or of the NodeClaim while no Node has registered.
	Name         string `json:"name"`
	Claim        string `json:"nodeClaim"`
	Pool         string `json:"nodePool"`
	InstanceType string `json:"instanceType"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone"`
	State        State  `json:"state"`
	// Why explains the state, or why the node stays; empty if nothing is to be stated.
	Why string `json:"why"`
	// HourlyCost in $/h; null if it is not known.
	HourlyCost *float64  `json:"hourlyCost"`
	Created    time.Time `json:"created"`
	// CPU is in millicores, Memory in bytes.
	CPU    Use `json:"cpuMillicores"`
	Memory Use `json:"memoryBytes"`
	// Pods run here; MaxPods is how many the node can run, 0 if unknown.
	Pods    int `json:"pods"`
	MaxPods int `json:"maxPods"`

	node  *corev1.Node
	claim *karpv1.NodeClaim
	pods  []int // of the Fleet's pods
}

// UID identifies the node from its launch to its end: that of the NodeClaim, or of a Node that no NodeClaim stands for.
func (n *Node) UID() types.UID {
	if n.claim != nil {
		return n.claim.UID
	}
	return n.node.UID
}

// Same reports whether everything that JSON has of two nodes is equal.
func (n *Node) Same(other *Node) bool {
	return n.Name == other.Name && n.Claim == other.Claim && n.Pool == other.Pool && n.InstanceType == other.InstanceType &&
		n.CapacityType == other.CapacityType && n.Zone == other.Zone && n.State == other.State && n.Why == other.Why &&
		equal(n.HourlyCost, other.HourlyCost) && n.Created.Equal(other.Created) && n.CPU.same(other.CPU) && n.Memory.same(other.Memory) &&
		n.Pods == other.Pods && n.MaxPods == other.MaxPods
}

func (u Use) same(other Use) bool {
	return u.Allocatable == other.Allocatable && equal(u.Requested, other.Requested) && equal(u.Used, other.Used)
}

// equal reports whether two values that may not be known are equal.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// podCount returns how many pods run on the node, in words.
func (n *Node) podCount() string {
	if n.CPU.Requested == nil {
		return "?"
	}
	return strconv.Itoa(n.Pods)
}

// priceBy returns what the node costs; nil if that is not known.
func (n *Node) priceBy(prices *fleet.Prices) *float64 {
	k := catalog.OfferingKey{InstanceType: n.InstanceType, Zone: n.Zone, CapacityType: n.CapacityType}
	price, known := prices.Offering(n.Pool, k)
	if !known {
		return nil
	}
	return &price
}

// price is the price in $/h, 0 if unknown.
func (n *Node) price() float64 {
	if n.HourlyCost == nil {
		return 0
	}
	return *n.HourlyCost
}

// use is the larger requested share.
func (n *Node) use() float64 { return max(n.CPU.Share(), n.Memory.Share()) }

// Fleet is the nodes and pods at one instant. Readers share it and do not change it.
type Fleet struct {
	At time.Time
	// Nodes are sorted by name.
	Nodes []*Node
	// Pods are sorted by namespace and name; pods that have completed are left out.
	Pods []Pod
	// PodsUnknown is true if pods may not be read.
	PodsUnknown bool
	// Pending are the indices of pods without a node; Running is how many pods run.
	Pending []int
	Running int

	byName map[string]*Node
}

// Observe makes a Fleet of objects. It costs O(nodes + pods), with a logarithm for sorting pods that are not in order.
func Observe(o Objects) *Fleet {
	f := &Fleet{At: o.Now, PodsUnknown: o.PodsUnknown, byName: make(map[string]*Node, len(o.Nodes))}
	f.addPods(o.Pods)
	f.addNodes(o)
	f.placePods()
	for _, n := range f.Nodes {
		n.State, n.Why = n.observedState()
		n.HourlyCost = n.priceBy(o.Prices)
	}
	return f
}

// placePods adds up the pods of each node. The indices of all are in one array: first as many are counted as a node has.
func (f *Fleet) placePods() {
	on := make([]*Node, len(f.Pods))
	placed := 0
	for i := range f.Pods {
		p := &f.Pods[i]
		if p.Status.Phase == corev1.PodRunning {
			f.Running++
		}
		if on[i] = f.byName[p.Spec.NodeName]; on[i] != nil {
			on[i].Pods++
			placed++
		} else if p.Spec.NodeName == "" {
			f.Pending = append(f.Pending, i)
		}
	}
	all := make([]int, placed)
	for _, n := range f.Nodes {
		n.pods, all = all[:0:n.Pods], all[n.Pods:]
	}
	for i, n := range on {
		if n == nil {
			continue
		}
		p := &f.Pods[i]
		n.pods = append(n.pods, i)
		*n.CPU.Requested += p.CPU
		*n.Memory.Requested += p.Memory
	}
}

// pod finds a pod; nil if it is gone. It costs O(pods), which only an open pod does.
func (f *Fleet) pod(uid types.UID) *Pod {
	if i := slices.IndexFunc(f.Pods, func(p Pod) bool { return p.UID == uid }); i >= 0 {
		return &f.Pods[i]
	}
	return nil
}

// PodsOn are the pods of one of the Fleet's nodes, sorted by namespace and name. They are shared and must not be changed.
func (f *Fleet) PodsOn(n *Node) iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		for _, i := range n.pods {
			if !yield(&f.Pods[i]) {
				return
			}
		}
	}
}

func (f *Fleet) addPods(pods []Pod) {
	f.Pods = make([]Pod, 0, len(pods))
	for i := range pods {
		if !snapshot.Terminal(pods[i].Pod) {
			f.Pods = append(f.Pods, pods[i])
		}
	}
	slices.SortFunc(f.Pods, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
}

// addNodes joins nodes and claims. A claim belongs to the node with its provider ID.
func (f *Fleet) addNodes(o Objects) {
	claims := make(map[string]*karpv1.NodeClaim, len(o.Claims))
	for _, c := range o.Claims {
		if c.Status.ProviderID != "" {
			claims[c.Status.ProviderID] = c
		}
	}
	joined := map[string]bool{}
	for _, n := range o.Nodes {
		claim := claims[n.Spec.ProviderID]
		if n.Spec.ProviderID == "" {
			claim = nil
		}
		if claim != nil {
			joined[claim.Name] = true
		}
		f.add(n.Name, n, claim, o.Used)
	}
	for _, c := range o.Claims {
		if !joined[c.Name] {
			f.add(c.Name, nil, c, nil)
		}
	}
	slices.SortFunc(f.Nodes, func(a, b *Node) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Claim, b.Claim))
	})
}

func (f *Fleet) add(name string, node *corev1.Node, claim *karpv1.NodeClaim, used map[string]Used) {
	n := &Node{Name: name, node: node, claim: claim}
	var allocatable corev1.ResourceList
	if claim != nil {
		n.Claim, n.Created, allocatable = claim.Name, claim.CreationTimestamp.Time, claim.Status.Allocatable
		n.labels(claim.Labels)
	}
	if node != nil {
		n.Created = node.CreationTimestamp.Time
		if len(node.Status.Allocatable) > 0 {
			allocatable = node.Status.Allocatable
		}
		n.labels(node.Labels)
	}
	n.CPU.Allocatable, n.Memory.Allocatable = allocatable.Cpu().MilliValue(), allocatable.Memory().Value()
	if !f.PodsUnknown {
		n.CPU.Requested, n.Memory.Requested = new(int64), new(int64)
	}
	n.MaxPods = int(min(allocatable.Pods().Value(), math.MaxInt32))
	if u, ok := used[name]; ok && node != nil {
		n.CPU.Used, n.Memory.Used = &u.CPU, &u.Memory
	}
	f.Nodes = append(f.Nodes, n)
	if node != nil || f.byName[name] == nil {
		f.byName[name] = n
	}
}

// labels reads what labels state; a label that is missing changes nothing.
func (n *Node) labels(labels map[string]string) {
	o := fleet.OfferingOf(labels)
	n.Pool = cmp.Or(labels[karpv1.LabelNodePool], n.Pool)
	n.InstanceType, n.Zone = cmp.Or(o.InstanceType, n.InstanceType), cmp.Or(o.Zone, n.Zone)
	n.CapacityType = cmp.Or(o.CapacityType, n.CapacityType)
}

// ready reports whether the node is Ready. A node that reports nothing is not.
func (n *Node) ready() (ready bool, why string) {
	for _, c := range n.node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, cmp.Or(c.Message, c.Reason)
		}
	}
	return false, "the node reports no condition Ready"
}

// drifted reports whether the claim is drifted, and why.
func (n *Node) drifted() (why string, drifted bool) {
	if n.claim == nil {
		return "", false
	}
	c, found := condition.Get(n.claim, karpv1.ConditionDrifted)
	if !found || c.Status != metav1.ConditionTrue {
		return "", false
	}
	return cmp.Or(c.Message, c.Reason), true
}
