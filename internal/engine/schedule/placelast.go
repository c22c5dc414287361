package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// placeLast finds the classes that are placed after all others: their pods keep out of whole domains, such as zones,
// in which a DaemonSet runs. Each new node may bring a pod of the DaemonSet to its domain, so all others come first.
func (sv *solver) placeLast() {
	if len(sv.topology.CountedDaemons()) == 0 {
		return
	}
	for _, c := range sv.allClasses {
		if len(c.Levels()) == 0 {
			continue
		}
		c.last = slices.ContainsFunc(c.Views(c.Levels()[len(c.Levels())-1]), func(v topology.View) bool {
			return v.KeepsApart() && !v.OverHosts() && len(v.Daemons()) > 0
		})
	}
}
