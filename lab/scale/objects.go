package scale

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

// newUID is a UID that depends on what the object is only.
func newUID(key string) types.UID {
	sum := sha256.Sum256([]byte(key))
	return types.UID(fmt.Sprintf("%x-%x-4%x-8%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// nodeUID is the UID of a written node.
func nodeUID(name string) types.UID { return newUID("node/" + name) }

// host is a node with its instance.
type host struct {
	name, claim string
	instance    awsim.Instance
	zone        string
	// number is its position among all; it has the addresses of its pods.
	number int
}

// sample is a node that joined for real, with its other objects.
type sample struct {
	host
	nodeUID, claimUID types.UID
	nodeObject        *corev1.Node
	csiNode           *storagev1.CSINode
	// nominated are the pods that its NodeClaim was launched for, separated by commas; empty if it names none.
	nominated string
	claimDoc  []byte // of the NodeClaim, JSON as in etcd
}

// rename replaces, in a text of the objects of a sample, what identifies its node by what identifies another.
func (s *sample) rename(to host) *strings.Replacer {
	pairs := []string{
		s.name, to.name,
		s.instance.PrivateIP, to.instance.PrivateIP,
		s.instance.ID, to.instance.ID,
		s.claim, to.claim,
		string(s.nodeUID), string(nodeUID(to.name)),
		string(s.claimUID), string(newUID("nodeclaim/" + to.claim)),
	}
	if s.nominated != "" { // no pod is nominated twice
		pairs = append(pairs, s.nominated, string(newUID("nominated/"+to.claim)))
	}
	return strings.NewReplacer(pairs...)
}

// copyJSON fills into with the object of a sample as that of another node.
func (s *sample) copyJSON(from any, to host, into any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(s.rename(to).Replace(string(text))), into)
}

// node is the Node of a host like that of the sample.
func (s *sample) node(to host) (store.Object, error) {
	var n corev1.Node
	if err := s.copyJSON(s.nodeObject, to, &n); err != nil {
		return store.Object{}, fmt.Errorf("copy node %s: %w", s.name, err)
	}
	info := &n.Status.NodeInfo
	info.MachineID = hexOf("machine", to.name)
	info.SystemUUID, info.BootID = string(newUID("system/"+to.name)), string(newUID("boot/"+to.name))
	value, err := store.Encode("Node", "v1", &n)
	return store.Object{Key: "minions/" + to.name, Value: value}, err
}

func hexOf(what, of string) string {
	sum := sha256.Sum256([]byte(what + "/" + of))
	return fmt.Sprintf("%x", sum[:16])
}

// csi is the CSINode of a host like that of the sample.
func (s *sample) csi(to host) (store.Object, error) {
	var n storagev1.CSINode
	if err := s.copyJSON(s.csiNode, to, &n); err != nil {
		return store.Object{}, fmt.Errorf("copy CSINode %s: %w", s.name, err)
	}
	n.UID = newUID("csinode/" + to.name)
	value, err := store.Encode("CSINode", "storage.k8s.io/v1", &n)
	return store.Object{Key: "csinodes/" + to.name, Value: value}, err
}

// nodeClaim is the NodeClaim of a host like that of the sample. Custom resources are in etcd as JSON.
func (s *sample) nodeClaim(to host) store.Object {
	return store.Object{Key: "karpenter.sh/nodeclaims/" + to.claim, Value: []byte(s.rename(to).Replace(string(s.claimDoc)))}
}

// podRange has the addresses of a host's pods: 256 of the range that EKS documents for secondary CIDRs (100.64.0.0/10),
// from its end. Instances that boot take theirs from its beginning.
func podRange(number int) netip.Prefix {
	n := 1<<14 - 1 - number
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(n>>8), byte(n), 0}), 24)
}

// podAddress is the address of a copied pod: in the first half of the range.
func podAddress(number, slot int) string {
	a := podRange(number).Addr().As4()
	a[3] = byte(1 + slot)
	return netip.AddrFrom4(a).String()
}

// laterPodRange has the addresses of the pods that a host starts: the second half of the range.
func laterPodRange(number int) netip.Prefix {
	a := podRange(number).Addr().As4()
	a[3] = 128
	return netip.PrefixFrom(netip.AddrFrom4(a), 25)
}

// podCopy states where a copy of a pod is.
type podCopy struct {
	name string
	to   *host // nil for a pod that is pending
	slot int   // among the pods of the node
}

// copyPod is a pod like another, under another name. A daemon's pod is bound to its node by an affinity, too.
func copyPod(of *corev1.Pod, c podCopy) (store.Object, error) {
	p := of.DeepCopy()
	key := "pods/" + p.Namespace + "/" + c.name
	p.Name, p.UID = c.name, newUID(key)
	if c.to != nil {
		p.Spec.NodeName = c.to.name
		p.Status.HostIP = c.to.instance.PrivateIP
		p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
		ip := podAddress(c.to.number, c.slot)
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		pinToNode(p, c.to.name)
	}
	value, err := store.Encode("Pod", "v1", p)
	return store.Object{Key: key, Value: value}, err
}

func pinToNode(p *corev1.Pod, node string) {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for i := range term.MatchFields {
			if term.MatchFields[i].Key == "metadata.name" {
				term.MatchFields[i].Values = []string{node}
			}
		}
	}
}
