package podclass

import "github.com/dovetail-k8s/dovetail/internal/engine/preference"

// countPreferences counts what the relaxation levels keep. Where taints have the effect PreferNoSchedule, the last levels
// drop one thing more, which is no preference of the pods.
func (k *Constraints) countPreferences(softTaints bool) {
	all := k.levels[len(k.levels)-1].dropped - btoi(softTaints)
	for _, level := range k.levels {
		level.preferences = max(0, all-level.dropped)
	}
}

// Preferences returns how many preferences of the pods the level keeps.
func (r *Level) Preferences() int { return r.preferences }

// Prefers reports whether the pods prefer anything that is not required.
func (k *Constraints) Prefers() bool { return len(k.levels) > 0 && k.levels[0].preferences > 0 }

// Bare is the first relaxation level that keeps no preference, by index.
func (k *Constraints) Bare() int {
	for i, level := range k.levels {
		if level.preferences == 0 {
			return i
		}
	}
	return len(k.levels) - 1
}

// PreferenceList returns what the pods prefer. Relaxation levels keep the last ones of it. It is not exact for pods with very
// many terms.
func (k *Constraints) PreferenceList() preference.List { return preference.Of(&k.pod.Spec, k.node) }
