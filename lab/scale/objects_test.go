package scale

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

func example() sample {
	s := sample{
		host: host{
			name: "ip-10-0-0-7.ec2.internal", claim: "general-x7k2p", zone: "us-east-1a",
			instance: awsim.Instance{ID: "i-0aaaaaaaaaaaaaaaa", PrivateIP: "10.0.0.7"},
		},
		nodeUID: "node-uid", claimUID: "claim-uid",
	}
	s.nodeObject = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name, UID: s.nodeUID, Labels: map[string]string{corev1.LabelHostname: s.name, corev1.LabelTopologyZone: s.zone},
			OwnerReferences: []metav1.OwnerReference{{Kind: "NodeClaim", Name: s.claim, UID: s.claimUID}},
		},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + s.instance.ID},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}},
	}
	s.csiNode = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: s.name, UID: "csi-uid"}}
	s.claimDoc = fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q},"status":{"nodeName":%q,"providerID":%q}}`,
		s.claim, s.claimUID, s.name, s.nodeObject.Spec.ProviderID)
	return s
}

// A copy has nothing of what identifies the sample, and its objects name one another.
func TestCopiesOfANodeBelongTogether(t *testing.T) {
	s := example()
	to := host{
		name: "ip-10-0-3-9.ec2.internal", claim: "general-00042", zone: s.zone,
		instance: awsim.Instance{ID: "i-0bbbbbbbbbbbbbbbb", PrivateIP: "10.0.3.9"},
	}
	node, err := s.node(to)
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Decode(node.Value, &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	claim := s.nodeClaim(to)
	var doc struct {
		Metadata metav1.ObjectMeta
		Status   struct{ NodeName, ProviderID string }
	}
	if err := json.Unmarshal(claim.Value, &doc); err != nil {
		t.Fatal(err)
	}
	switch {
	case node.Key != "minions/"+to.name, claim.Key != "karpenter.sh/nodeclaims/"+to.claim:
		t.Errorf("keys %s, %s", node.Key, claim.Key)
	case got.Spec.ProviderID != "aws:///us-east-1a/"+to.instance.ID, doc.Status.ProviderID != got.Spec.ProviderID:
		t.Errorf("provider IDs %s, %s", got.Spec.ProviderID, doc.Status.ProviderID)
	case got.OwnerReferences[0].UID != doc.Metadata.UID, got.OwnerReferences[0].Name != doc.Metadata.Name:
		t.Errorf("the owner of the node is %v, the claim %s", got.OwnerReferences[0], doc.Metadata.UID)
	case doc.Status.NodeName != got.Name, got.Labels[corev1.LabelHostname] != to.name, got.Labels[corev1.LabelTopologyZone] != s.zone:
		t.Errorf("the claim names node %s, labels %v", doc.Status.NodeName, got.Labels)
	}
	csi, err := s.csi(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []store.Object{node, claim, csi} {
		for _, old := range []string{s.name, s.instance.ID, s.instance.PrivateIP, s.claim, string(s.nodeUID), string(s.claimUID)} {
			if strings.Contains(string(o.Value), old) {
				t.Errorf("%s has %q of the sample", o.Key, old)
			}
		}
	}
}

func TestCopiesOfAPod(t *testing.T) {
	of := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent-abcde", UID: "pod-uid"},
		Spec: corev1.PodSpec{NodeName: "node-1", Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
			}}},
		}}},
	}
	seen := map[string]bool{}
	for i := range 3 {
		to := &host{name: fmt.Sprint("node-", i+2), instance: awsim.Instance{PrivateIP: "10.0.0.9"}}
		o, err := copyPod(of, podCopy{name: fmt.Sprint("agent-", i), to: to, slot: i})
		if err != nil {
			t.Fatal(err)
		}
		p, err := store.Decode(o.Value, &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		term := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
		if p.Spec.NodeName != to.name || term.MatchFields[0].Values[0] != to.name || p.Status.HostIP != "10.0.0.9" {
			t.Errorf("the copy is on %s, its affinity for %v", p.Spec.NodeName, term.MatchFields)
		}
		for _, unique := range []string{o.Key, string(p.UID), p.Status.PodIP} {
			if seen[unique] {
				t.Errorf("two copies have %s", unique)
			}
			seen[unique] = true
		}
	}
	if of.Spec.NodeName != "node-1" || of.UID != "pod-uid" {
		t.Error("the sample has changed")
	}
}

// Nothing is to be consolidated: what a node has left is less than the smallest pod requests.
func TestNodesAreFull(t *testing.T) {
	const allocatable, ofDaemons = 15890, 110
	for _, perNode := range []int{3, 18, 28} {
		all := workloads(perNode)
		for first := 0; first < len(all); first += perNode {
			used, smallest := 0, allocatable
			for _, w := range all[first : first+perNode] {
				used += w.MilliCPU
				smallest = min(smallest, w.MilliCPU)
			}
			left := allocatable - ofDaemons - used
			if left < 0 || left >= smallest {
				t.Errorf("%d pods on a node leave %dm, the smallest requests %dm", perNode, left, smallest)
			}
		}
	}
}

// No two pods of a node have one address, whether they were copied or started later, and the ranges of nodes are apart.
func TestAddressesOfPodsAreApart(t *testing.T) {
	for _, number := range []int{0, 1, 255, 256, maxNodes - 1} {
		all, later := podRange(number), laterPodRange(number)
		for slot := range maxPerNode {
			a, err := netip.ParseAddr(podAddress(number, slot))
			if err != nil || !all.Contains(a) || later.Contains(a) {
				t.Errorf("node %d, slot %d: address %s (%v) is not in the first half of %s", number, slot, a, err, all)
			}
		}
		if !all.Contains(later.Addr()) || all.Overlaps(podRange(number+1)) || !netip.MustParsePrefix("100.64.0.0/10").Contains(all.Addr()) {
			t.Errorf("node %d: %s, %s", number, all, later)
		}
	}
}

// Deployments request as many pods as are written, also if nodes do not divide: no controller creates or deletes one.
func TestReplicasAreThePodsThatAreWritten(t *testing.T) {
	for _, size := range []Size{{Nodes: 30, Pods: 300}, {Nodes: 31, Pods: 310}, {Nodes: 32, Pods: 7 * 32}} {
		f := &fleet{size: size, hosts: make([]host, size.Nodes)}
		for _, w := range workloads(size.perNode()) {
			f.kinds = append(f.kinds, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: w.Name + "-"}})
		}
		written := map[string]int{}
		for i := range size.Nodes * size.perNode() {
			o, err := f.boundPod(i, 0)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(o.Key, "pods//app-"), "-")
			written["app-"+name]++
		}
		requested := map[string]int{}
		for name, kind := range f.order() {
			requested[name] = f.replicas(kind)
		}
		if diff := cmp.Diff(requested, written); diff != "" {
			t.Errorf("%d nodes (-requested +written):\n%s", size.Nodes, diff)
		}
	}
}

// A sample that still waits for the controller is not copied: each of 5,000 copies would wait as well, and be no node at rest.
func TestSamplesAreCopiedWhenNothingIsLeftToDo(t *testing.T) {
	claim := &karpv1.NodeClaim{}
	if unsettled(claim) == "" {
		t.Error("a claim that is not Consolidatable is settled")
	}
	condition.SetTrue(claim, karpv1.ConditionConsolidatable, time.Now())
	if unsettled(claim) == "" {
		t.Error("a claim with an instance that is to be tagged is settled")
	}
	claim.Annotations = map[string]string{awsv1.AnnotationTagged: "true"}
	if why := unsettled(claim); why != "" {
		t.Errorf("a claim with nothing left to do %s", why)
	}
}
