package schedule

import "github.com/dovetail-k8s/dovetail/internal/engine/topology"

// Classes are placed in rounds, each once nothing more of the rounds before fits.
const (
	firstRound = iota
	// followRound: a pod that would found a domain of its own must know of all pods that it is to follow.
	followRound
	// apartRound: a pod that keeps out of a domain must know of all pods there.
	apartRound
)

// placeLast finds the classes that are placed after all others: their pods follow pods of a DaemonSet in whole domains, such
// as zones, or keep out of those in which it runs. Each new node may bring a pod of the DaemonSet to its domain.
func (sv *solver) placeLast() {
	if len(sv.topology.CountedDaemons()) == 0 {
		return
	}
	for _, c := range sv.allClasses {
		if len(c.Levels()) == 0 {
			continue
		}
		for _, v := range c.Views(c.Levels()[len(c.Levels())-1]) {
			switch {
			case v.OverHosts() || len(v.Daemons()) == 0:
			case v.KeepsApart():
				c.round = apartRound
			case v.Type() == topology.Affinity:
				c.round = max(c.round, followRound)
			}
		}
		sv.lastRound = max(sv.lastRound, c.round)
	}
}
