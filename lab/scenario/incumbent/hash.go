package incumbent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mitchellh/hashstructure/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names and the order of these types' fields are part of the hash.
type (
	// NodeClaimTemplate is what of a NodePool makes its nodes drift when it changes.
	NodeClaimTemplate struct {
		ObjectMeta
		Spec NodeClaimTemplateSpec
	}
	// ObjectMeta is the metadata of a template.
	ObjectMeta struct{ Labels, Annotations map[string]string }
	// NodeClaimTemplateSpec is the spec of a template.
	NodeClaimTemplateSpec struct {
		Taints                 []corev1.Taint
		StartupTaints          []corev1.Taint
		NodeClassRef           *NodeClassReference
		TerminationGracePeriod *metav1.Duration
		ExpireAfter            NillableDuration
	}
	// NodeClassReference names a node class.
	NodeClassReference struct{ Kind, Name, Group string }
	// NillableDuration is a duration; nil is Never.
	NillableDuration struct {
		*time.Duration
		Raw []byte `hash:"ignore"`
	}
)

// poolHashOf is the hash of a NodePool.
func poolHashOf(pool *object) (string, error) {
	var read struct {
		Spec struct {
			Template struct {
				Metadata ObjectMeta
				Spec     struct {
					Taints, StartupTaints  []corev1.Taint
					NodeClassRef           *NodeClassReference
					TerminationGracePeriod *metav1.Duration
					ExpireAfter            string
				}
			}
		}
	}
	if err := convert(pool.Object, &read); err != nil {
		return "", err
	}
	t := read.Spec.Template
	out := NodeClaimTemplate{ObjectMeta: t.Metadata, Spec: NodeClaimTemplateSpec{
		Taints: t.Spec.Taints, StartupTaints: t.Spec.StartupTaints, NodeClassRef: t.Spec.NodeClassRef,
		TerminationGracePeriod: t.Spec.TerminationGracePeriod,
	}}
	if after := t.Spec.ExpireAfter; after != "" && after != "Never" {
		d, err := time.ParseDuration(after)
		if err != nil {
			return "", fmt.Errorf("spec.template.spec.expireAfter of NodePool %s: %w", pool.GetName(), err)
		}
		out.Spec.ExpireAfter.Duration = &d
	}
	return hash(out)
}

// notHashed are the fields of an EC2NodeClass that do not count as changes of its nodes.
var notHashed = []string{
	"subnetSelectorTerms", "securityGroupSelectorTerms", "capacityReservationSelectorTerms", "amiSelectorTerms", "amiFamily", "ipPrefixCount",
	"kubelet",
}

// classHashOf is the hash of an EC2NodeClass: of its spec, its image family, the cluster's CA, and kubelet's settings. The
// conventions leave its digits to each implementation: hashes of different versions are never compared.
func (c *Controller) classHashOf(class *object) (string, error) {
	spec := map[string]any{}
	if err := convert(class.Object["spec"], &spec); err != nil {
		return "", err
	}
	kubelet, err := json.Marshal(spec["kubelet"])
	if err != nil {
		return "", err
	}
	family, err := imageFamily(spec)
	if err != nil {
		return "", fmt.Errorf("EC2NodeClass %s: %w", class.GetName(), err)
	}
	for _, field := range notHashed {
		delete(spec, field)
	}
	return hash([]any{spec, family, *c.cluster.CertificateAuthority.Data, string(kubelet)})
}

// imageFamily is that of the alias.
func imageFamily(spec map[string]any) (string, error) {
	var read struct{ AMISelectorTerms []struct{ Alias string } }
	if err := convert(spec, &read); err != nil {
		return "", err
	}
	if len(read.AMISelectorTerms) == 1 && strings.HasPrefix(read.AMISelectorTerms[0].Alias, "al2023@") {
		return "AL2023", nil
	}
	return "", fmt.Errorf("spec.amiSelectorTerms: this controller launches only the alias al2023@, got %+v", read.AMISelectorTerms)
}

func hash(value any) (string, error) {
	sum, err := hashstructure.Hash(value, hashstructure.FormatV2, &hashstructure.HashOptions{
		SlicesAsSets: true, IgnoreZeroValue: true, ZeroNil: true,
	})
	return strconv.FormatUint(sum, 10), err
}

// convert reads a value as another type by its JSON.
func convert(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
