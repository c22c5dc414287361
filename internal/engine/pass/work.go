package pass

import (
	"fmt"
	"slices"
	"strings"
)

// workNames are the names of work, in the order of the bits.
var workNames = []string{"repair", "due", "empty", "replicas", "drift", "expire", "savings"}

// MarshalText implements encoding.TextMarshaler: the names of the work, joined by commas.
func (w Work) MarshalText() ([]byte, error) {
	var names []string
	for i, name := range workNames {
		if w&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return []byte(strings.Join(names, ",")), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Work) UnmarshalText(text []byte) error {
	*w = 0
	for name := range strings.SplitSeq(string(text), ",") {
		at := slices.Index(workNames, name)
		if at < 0 && name != "" {
			return fmt.Errorf("work %q is not known", name)
		}
		if at >= 0 {
			*w |= 1 << at
		}
	}
	return nil
}
