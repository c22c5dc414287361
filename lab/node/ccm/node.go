package ccm

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	cloudprovider "k8s.io/cloud-provider/api"
)

// patch changes a node under the condition that it is as it was read; node becomes what was written.
func (m *Manager) patch(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	return m.send(ctx, node, change, true /* only as it was read */)
}

// patchStatus changes the status of a node, whatever else has changed since it was read: kubelet writes to it at the same time. node
// becomes what was written.
func (m *Manager) patchStatus(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	return m.send(ctx, node, change, false, "status")
}

func (m *Manager) send(ctx context.Context, node *corev1.Node, change func(*corev1.Node), exact bool, subresources ...string) error {
	want := node.DeepCopy()
	change(want)
	before, err := json.Marshal(node)
	if err != nil {
		return err
	}
	after, err := json.Marshal(want)
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil || string(patch) == "{}" {
		return err
	}
	if exact {
		if patch, err = withVersion(patch, node.ResourceVersion); err != nil {
			return err
		}
	}
	written, err := m.cfg.Client.CoreV1().Nodes().Patch(
		ctx,
		node.Name,
		types.StrategicMergePatchType,
		patch,
		metav1.PatchOptions{},
		subresources...)
	if err != nil {
		return err
	}
	*node = *written
	return nil
}

// withVersion makes a patch fail if the object changed since. It matters because taints are one list,
// written whole: a list from a stale copy would bring back taints that others removed.
func withVersion(patch []byte, version string) ([]byte, error) {
	document := map[string]any{}
	if err := json.Unmarshal(patch, &document); err != nil {
		return nil, err
	}
	metadata, _ := document["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = version
	document["metadata"] = metadata
	return json.Marshal(document)
}

func setLabels(n *corev1.Node, i ec2types.Instance, region string) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	zone, kind := aws.ToString(i.Placement.AvailabilityZone), string(i.InstanceType)
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable:      kind,
		corev1.LabelInstanceType:            kind,
		corev1.LabelTopologyZone:            zone,
		corev1.LabelFailureDomainBetaZone:   zone,
		corev1.LabelTopologyRegion:          region,
		corev1.LabelFailureDomainBetaRegion: region,
	} {
		n.Labels[key] = value
	}
	if id := aws.ToString(i.Placement.AvailabilityZoneId); id != "" {
		n.Labels["topology.k8s.aws/zone-id"] = id
	}
}

func setAddresses(n *corev1.Node, i ec2types.Instance) {
	dns := aws.ToString(i.PrivateDnsName)
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: aws.ToString(i.PrivateIpAddress)}}
	if ip := aws.ToString(i.PublicIpAddress); ip != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip})
	}
	n.Status.Addresses = append(addresses,
		corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: dns}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: dns})
}

var providerID = regexp.MustCompile(`^aws:///[a-z0-9-]+/(i-[0-9a-f]{8,17})$`)

// instanceID is the instance that a node is, or empty if it is none.
func instanceID(n *corev1.Node) string {
	if m := providerID.FindStringSubmatch(n.Spec.ProviderID); m != nil {
		return m[1]
	}
	return ""
}

func uninitialized(n *corev1.Node) bool {
	return hasTaint(n, cloudprovider.TaintExternalCloudProvider)
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func without(taints []corev1.Taint, key string) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == key })
}

// reports reports whether the node's kubelet counts as alive.
func reports(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
