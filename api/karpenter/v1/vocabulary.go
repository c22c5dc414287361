package v1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Vocabulary describes what is known about label keys: which ones every node has or may have, which ones users
// must not constrain, and which ones are other spellings. The core's and the cloud's are joined by the
// cloud's API package and handed on as data. Nobody changes a Vocabulary after it is built.
type Vocabulary struct {
	// WellKnown keys get their values from instance types and offerings, so that a pod may request one
	// that no NodePool mentions.
	WellKnown map[string]bool
	// RestrictedDomains, with all their subdomains, belong to the system. Their keys are forbidden to
	// users unless well-known.
	RestrictedDomains []string
	// Normalized maps other spellings of a key to the one that is used.
	Normalized map[string]string
	// KnownValues has the set of values of keys with a closed set.
	KnownValues map[string][]string
	// SetOnJoin are keys that another component gives each node while it joins, with values that are not known before.
	SetOnJoin []string
	// MaySetOnJoin are keys that another component gives some nodes while they join; which ones is not known before.
	MaySetOnJoin []string
	// ReservationID is the key that names a node's capacity reservation; empty if the cloud has none.
	ReservationID string
}

// CoreVocabulary returns what holds on every cloud.
func CoreVocabulary() Vocabulary {
	return Vocabulary{
		WellKnown: map[string]bool{
			LabelNodePool:                  true,
			LabelCapacityType:              true,
			corev1.LabelTopologyZone:       true,
			corev1.LabelTopologyRegion:     true,
			corev1.LabelInstanceTypeStable: true,
			corev1.LabelArchStable:         true,
			corev1.LabelOSStable:           true,
			corev1.LabelWindowsBuild:       true,
		},
		RestrictedDomains: []string{Group},
		Normalized: map[string]string{
			corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
			corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
			"beta.kubernetes.io/arch":           corev1.LabelArchStable,
			"beta.kubernetes.io/os":             corev1.LabelOSStable,
			corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
		},
		KnownValues: map[string][]string{
			LabelCapacityType: {CapacityTypeOnDemand, CapacityTypeReserved, CapacityTypeSpot},
		},
	}
}

// Normalize returns the spelling of key that is used.
func (v Vocabulary) Normalize(key string) string {
	if normalized, ok := v.Normalized[key]; ok {
		return normalized
	}
	return key
}

// IsWellKnown reports whether instance types or offerings give the key its values.
func (v Vocabulary) IsWellKnown(key string) bool { return v.WellKnown[key] }

// IsRestricted reports whether users may not constrain the key, because the system owns it.
func (v Vocabulary) IsRestricted(key string) bool {
	if v.WellKnown[key] {
		return false
	}
	if key == corev1.LabelHostname {
		return true
	}
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(v.RestrictedDomains, func(restricted string) bool {
		return domain == restricted || strings.HasSuffix(domain, "."+restricted)
	})
}
