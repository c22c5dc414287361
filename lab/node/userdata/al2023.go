package userdata

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// nodeConfigMediaType marks a part that nodeadm reads.
const nodeConfigMediaType = "application/node.eks.aws"

// nodeConfig is the part of nodeadm's NodeConfig that decides how a node joins.
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority string `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Kubelet struct {
			// Config is a KubeletConfiguration, of which any subset may be given.
			Config map[string]any `json:"config"`
			Flags  []string       `json:"flags"`
		} `json:"kubelet"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
	} `json:"spec"`
}

// decodeAL2023 merges the NodeConfig documents of the user data as nodeadm does: of two values the
// later wins, kubelet's configuration merges key by key, and kubelet's flags are appended.
func decodeAL2023(raw []byte) (Config, error) {
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw))); err == nil && len(decoded) > 0 {
		raw = decoded // nodeadm accepts one more layer of encoding
	}
	ps, err := parts(raw)
	if err != nil {
		return Config{}, err
	}
	var merged nodeConfig
	found := false
	for _, p := range ps {
		if p.mediaType != nodeConfigMediaType && p.mediaType != "" {
			continue
		}
		doc, err := parseNodeConfig(p.body)
		if err != nil {
			return Config{}, err
		}
		merged.merge(doc)
		found = true
	}
	if !found {
		return Config{}, fmt.Errorf("could not find NodeConfig within UserData (found: %s)", mediaTypes(ps))
	}
	return merged.config()
}

func parseNodeConfig(body []byte) (nodeConfig, error) {
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(body))); err == nil && len(decoded) > 0 {
		body = decoded
	}
	body, err := decompress(body)
	if err != nil {
		return nodeConfig{}, err
	}
	var doc nodeConfig
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return nodeConfig{}, fmt.Errorf("decode NodeConfig: %w", err)
	}
	if doc.APIVersion != "node.eks.aws/v1alpha1" || doc.Kind != "NodeConfig" {
		return nodeConfig{}, fmt.Errorf("decode NodeConfig: no kind %q is registered for version %q", doc.Kind, doc.APIVersion)
	}
	return doc, nil
}

func (c *nodeConfig) merge(later nodeConfig) {
	for _, f := range []struct {
		dst *string
		src string
	}{
		{&c.Spec.Cluster.Name, later.Spec.Cluster.Name},
		{&c.Spec.Cluster.APIServerEndpoint, later.Spec.Cluster.APIServerEndpoint},
		{&c.Spec.Cluster.CertificateAuthority, later.Spec.Cluster.CertificateAuthority},
		{&c.Spec.Cluster.CIDR, later.Spec.Cluster.CIDR},
		{&c.Spec.Instance.LocalStorage.Strategy, later.Spec.Instance.LocalStorage.Strategy},
	} {
		if f.src != "" {
			*f.dst = f.src
		}
	}
	c.Spec.Kubelet.Flags = append(c.Spec.Kubelet.Flags, later.Spec.Kubelet.Flags...)
	c.Spec.Kubelet.Config = mergeDocuments(c.Spec.Kubelet.Config, later.Spec.Kubelet.Config)
}

// mergeDocuments lays later over earlier. Maps merge, everything else is replaced.
func mergeDocuments(earlier, later map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range earlier {
		out[k] = v
	}
	for k, v := range later {
		below, isMap := out[k].(map[string]any)
		above, bothMaps := v.(map[string]any)
		if isMap && bothMaps {
			v = mergeDocuments(below, above)
		}
		out[k] = v
	}
	return out
}

func (c nodeConfig) config() (Config, error) {
	cluster := c.Spec.Cluster
	for _, needed := range []struct{ value, message string }{
		{cluster.Name, "Name is missing in cluster configuration"},
		{cluster.APIServerEndpoint, "Apiserver endpoint is missing in cluster configuration"},
		{cluster.CertificateAuthority, "Certificate authority is missing in cluster configuration"},
		{cluster.CIDR, "CIDR is missing in cluster configuration"},
	} {
		if needed.value == "" {
			return Config{}, fmt.Errorf("%s", needed.message)
		}
	}
	ca, err := decodeCA(cluster.CertificateAuthority)
	if err != nil {
		return Config{}, err
	}
	cfg := Config{
		ClusterName: cluster.Name, Endpoint: cluster.APIServerEndpoint, CA: ca, ServiceCIDR: cluster.CIDR,
		LocalDisks: strings.ToLower(c.Spec.Instance.LocalStorage.Strategy), UseENIMaxPods: true,
	}
	document, err := json.Marshal(c.Spec.Kubelet.Config)
	if err != nil {
		return Config{}, fmt.Errorf("kubelet: encode configuration: %w", err)
	}
	if err := json.Unmarshal(document, &cfg.Kubelet); err != nil {
		return Config{}, fmt.Errorf("kubelet: failed to load kubelet config file: %w", err)
	}
	flags, err := words(strings.Join(c.Spec.Kubelet.Flags, " "))
	if err != nil {
		return Config{}, fmt.Errorf("kubelet flags: %w", err)
	}
	return cfg, applyFlags(&cfg, flags)
}
