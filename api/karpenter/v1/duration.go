package v1

import (
	"encoding/json"
	"fmt"
	"time"
)

// never sets how "without end" is written.
const never = "Never"

// NillableDuration is a span of time, or Never. It remembers how its user spelled it ("72h", not
// "72h0m0s") and writes it back like that, so that tools which compare manifests see no difference.
//
// The zero value is "not given"; it is left out of JSON, so that the API server's default applies.
// +kubebuilder:validation:Type=string
type NillableDuration struct {
	// Duration is nil for Never, and when not given.
	Duration *time.Duration `json:"-"`
	// Spelling states what the user wrote; empty when not given.
	Spelling string `json:"-"`
}

// After returns the duration d.
func After(d time.Duration) NillableDuration {
	return NillableDuration{Duration: &d, Spelling: d.String()}
}

// Never returns the duration without end.
func Never() NillableDuration { return NillableDuration{Spelling: never} }

// IsNever reports whether the user wrote Never.
func (d NillableDuration) IsNever() bool { return d.Duration == nil && d.Spelling == never }

// IsZero reports whether no duration was given.
func (d NillableDuration) IsZero() bool { return d.Duration == nil && d.Spelling == "" }

// String is the user's spelling.
func (d NillableDuration) String() string {
	if d.Spelling == "" && d.Duration != nil {
		return d.Duration.String()
	}
	return d.Spelling
}

// MarshalJSON writes the user's spelling, null when not given.
func (d NillableDuration) MarshalJSON() ([]byte, error) {
	if d.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(d.String())
}

// ToUnstructured is MarshalJSON for conversions that skip JSON.
func (d NillableDuration) ToUnstructured() any {
	if d.IsZero() {
		return nil
	}
	return d.String()
}

// UnmarshalJSON accepts Never, a Go duration, and null for not given.
func (d *NillableDuration) UnmarshalJSON(data []byte) error {
	*d = NillableDuration{}
	if string(data) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	d.Spelling = text
	if text == never {
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %q: %w", text, err)
	}
	d.Duration = &parsed
	return nil
}

// Hash makes equal spans equal however they are spelled, and Never different from each of them.
func (d NillableDuration) Hash() (uint64, error) {
	if d.Duration == nil {
		return ^uint64(0), nil
	}
	return uint64(*d.Duration), nil
}

// DeepCopyInto copies d into out.
func (d *NillableDuration) DeepCopyInto(out *NillableDuration) {
	*out = *d
	if d.Duration != nil {
		span := *d.Duration
		out.Duration = &span
	}
}
