package v1

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/mitchellh/hashstructure/v2"
)

// NodeClassHashVersion names the way Hash is computed. Hashes of different versions are never compared:
// objects with another version, including Karpenter's, get a new hash and do not drift because of it.
const NodeClassHashVersion = "dovetail-v1"

// HashInput describes what, beside the spec, nodes of a class are made from.
type HashInput struct {
	// AMIFamily is the resolved one: given, or implied by the alias.
	AMIFamily string
	// ClusterCABundle is the cluster's certificate authority in base64.
	ClusterCABundle string
}

// Hash sums up what of a class makes nodes drift when it changes. Selectors are left out: what they find is
// compared with each instance.
func (c *EC2NodeClass) Hash(in HashInput) (string, error) {
	kubelet, err := c.canonicalKubelet()
	if err != nil {
		return "", err
	}
	sum, err := hashstructure.Hash(struct {
		Spec    EC2NodeClassSpec
		In      HashInput
		Kubelet string
	}{c.Spec, in, kubelet}, hashstructure.FormatV2, &hashstructure.HashOptions{
		SlicesAsSets:    true,
		IgnoreZeroValue: true,
		ZeroNil:         true,
	})
	return strconv.FormatUint(sum, 10), err
}

// canonicalKubelet is spec.kubelet as JSON with sorted keys; empty when there is nothing in it.
func (c *EC2NodeClass) canonicalKubelet() (string, error) {
	if c.Spec.Kubelet == nil || len(c.Spec.Kubelet.Raw) == 0 {
		return "", nil
	}
	var fields map[string]any
	if err := json.Unmarshal(c.Spec.Kubelet.Raw, &fields); err != nil {
		return "", fmt.Errorf("spec.kubelet: %w", err)
	}
	if len(fields) == 0 {
		return "", nil
	}
	text, err := json.Marshal(fields)
	return string(text), err
}
