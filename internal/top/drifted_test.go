package top

import (
	"testing"
)

// TestADriftedNodeThatMayNotBeDisruptedStatesBoth: drift does not hide what keeps the node.
func TestADriftedNodeThatMayNotBeDisruptedStatesBoth(t *testing.T) {
	name, forecast := samples()[1].name, sampleForecast()
	forecast.stays[name] = stay{blocked: true, why: "pdb prevents pod evictions (PDB=shop/web)"}
	for _, n := range sampleObserved().Fleet.with(forecast).Nodes {
		if n.Name != name {
			continue
		}
		if want := "AMIDrift; stays, since pdb prevents pod evictions (PDB=shop/web)"; n.State != Drifted || n.Why != want {
			t.Errorf("state %s, %q; want %s, %q", n.State, n.Why, Drifted, want)
		}
		return
	}
	t.Fatalf("no node %s", name)
}
