package topology_test

import (
	"slices"
	"testing"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// countedLabels counts how often the values of a label are listed.
type countedLabels struct {
	threeZones
	asked *int
}

func (l countedLabels) Values(key string) []string {
	*l.asked++
	return l.threeZones.Values(key)
}

// Terms of affinity over one label share the domains of the pool: an explanation of a pod with hundreds of terms lists them once. Before,
// it listed and sorted them for each term under each waiver, and 125 such pods took a plan of 35 s.
func TestTermsOverOneLabelShareTheDomainsOfAPool(t *testing.T) {
	r, _ := registry(nil, nil)
	asked := 0
	pool := topology.Pool{Labels: countedLabels{asked: &asked}}
	var widened topology.Widened
	for _, app := range []string{"a", "b", "c", "d"} {
		for _, view := range views(t, r, Pod(app, Near(Zone, app))) {
			g := widened.Group(view.Group(), pool)
			if got := g.Universe(); !slices.Equal(got, Zones()) {
				t.Errorf("the term to %s counts the domains %v, want %v", app, got, Zones())
			}
		}
	}
	if asked != 1 {
		t.Errorf("the domains of the pool are listed %d times, want once", asked)
	}
}
