package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationRollout on a NodePool, or on an EC2NodeClass for all NodePools of it, sets how drifted nodes are replaced: a Rollout in JSON,
// or only its mode. The NodePool's own comes first.
const AnnotationRollout = "dovetail.sh/rollout"

// ConditionRollout of a NodePool states how far a roll-out with canaries has come: True while it goes on, False while it does not. It is
// missing otherwise.
const ConditionRollout = "Rollout"

// RolloutMode is how drifted nodes are replaced.
type RolloutMode string

// The modes.
const (
	// RolloutOff replaces them as budgets allow, once a first batch has stayed ready.
	RolloutOff RolloutMode = "Off"
	// RolloutCanary replaces one node per zone first, then twice as many in each wave. Each wave must stay healthy for a while.
	RolloutCanary RolloutMode = "Canary"
)

// WavesDouble has each wave replace twice as many nodes as the one before. It is the only value of Rollout.Waves.
const WavesDouble = "double"

// DefaultRolloutSoak is as long as full disks and leaks of memory take to show on a node with pods.
const DefaultRolloutSoak = 10 * time.Minute

// maxCanaryPerZone bounds a typing error: more nodes than that are no canaries.
const maxCanaryPerZone = 100

// Rollout is how drifted nodes of a NodePool are replaced.
type Rollout struct {
	Mode RolloutMode `json:"mode"`
	// Soak is how long the new nodes of a wave must stay healthy before the next wave begins.
	Soak metav1.Duration `json:"soak,omitzero"`
	// CanaryPerZone is how many nodes the first wave replaces per zone with drifted nodes.
	CanaryPerZone int `json:"canaryPerZone,omitempty"`
	// Waves is WavesDouble.
	Waves string `json:"waves,omitempty"`
}

// Canary reports whether nodes are replaced in waves.
func (r Rollout) Canary() bool { return r.Mode == RolloutCanary }

// CanaryDefaults are what a Rollout with the mode Canary has where it states nothing else.
func CanaryDefaults() Rollout {
	return Rollout{Mode: RolloutCanary, Soak: metav1.Duration{Duration: DefaultRolloutSoak}, CanaryPerZone: 1, Waves: WavesDouble}
}

// ParseRollout reads the value of the annotation. Its errors name the field.
func ParseRollout(text string) (Rollout, error) {
	switch RolloutMode(strings.TrimSpace(text)) {
	case RolloutOff:
		return Rollout{Mode: RolloutOff}, nil
	case RolloutCanary:
		return CanaryDefaults(), nil
	}
	out := CanaryDefaults()
	out.Mode = ""
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return Rollout{}, fmt.Errorf("%q is neither %s nor %s nor a JSON object: %w", text, RolloutCanary, RolloutOff, err)
	}
	switch {
	case out.Mode == RolloutOff:
		return Rollout{Mode: RolloutOff}, nil
	case out.Mode != RolloutCanary:
		return Rollout{}, fmt.Errorf("mode: %q is neither %s nor %s", out.Mode, RolloutCanary, RolloutOff)
	case out.Soak.Duration <= 0:
		return Rollout{}, fmt.Errorf("soak: %v is not longer than 0", out.Soak.Duration)
	case out.CanaryPerZone < 1 || out.CanaryPerZone > maxCanaryPerZone:
		return Rollout{}, fmt.Errorf("canaryPerZone: %d is not from 1 to %d", out.CanaryPerZone, maxCanaryPerZone)
	case out.Waves != WavesDouble:
		return Rollout{}, fmt.Errorf("waves: %q is not %q", out.Waves, WavesDouble)
	}
	return out, nil
}

// RolloutOf returns how drifted nodes of a pool are replaced. classes are the values of the annotation on the EC2NodeClasses that the pool
// and its NodeClaims refer to, by name; a class without the annotation is not in it. With an error, which names the annotation and the
// field, the result is the safer reading: canaries.
func RolloutOf(pool *NodePool, classes map[string]string) (Rollout, error) {
	out, err := statedRollout(pool, classes)
	if err != nil {
		out = CanaryDefaults()
	}
	expiry := pool.Spec.Template.Spec.ExpireAfter
	if !out.Canary() || expiry.Duration == nil || *expiry.Duration > out.Soak.Duration {
		return out, err
	}
	if err == nil {
		err = fmt.Errorf("metadata.annotations[%s], soak: %v is not shorter than spec.template.spec.expireAfter of NodePool %s, which is %v",
			AnnotationRollout, out.Soak.Duration, pool.Name, *expiry.Duration)
	}
	// With a node that expires before its soak is over, no wave is ever over.
	out.Soak.Duration = min(DefaultRolloutSoak, *expiry.Duration/2)
	return out, err
}

func statedRollout(pool *NodePool, classes map[string]string) (Rollout, error) {
	if text, own := pool.Annotations[AnnotationRollout]; own {
		out, err := ParseRollout(text)
		if err != nil {
			return out, fmt.Errorf("metadata.annotations[%s] of NodePool %s: %w", AnnotationRollout, pool.Name, err)
		}
		return out, nil
	}
	out := Rollout{Mode: RolloutOff}
	names := slices.Sorted(maps.Keys(classes))
	for i, name := range names {
		stated, err := ParseRollout(classes[name])
		if err != nil {
			return out, fmt.Errorf("metadata.annotations[%s] of EC2NodeClass %s: %w", AnnotationRollout, name, err)
		}
		if i > 0 && stated != out {
			return out, fmt.Errorf("metadata.annotations[%s]: EC2NodeClasses %s and %s roll out nodes of NodePool %s, with different values",
				AnnotationRollout, names[i-1], name, pool.Name)
		}
		out = stated
	}
	return out, nil
}
