package plan

import corev1 "k8s.io/api/core/v1"

// PreferenceCost describes what the plan makes of one preference of pods with equal constraints, under the policy Priced.
type PreferenceCost struct {
	// Pod is one of the pods that prefer it.
	Pod *corev1.Pod
	// Text is the preference in words.
	Text string
	// Kept, Dropped and Unmet count the scheduled pods by what has become of the preference: dropped ones would cost too
	// much, unmet ones nothing can meet.
	Kept, Dropped, Unmet int
	// KeptCost holds what the kept ones cost, in $/h: by how much the nodes of these pods cost more than nodes without
	// preferences would when the pods were placed. What several preferences of a pod cost together is divided equally. All
	// together cost no more than Stats.PreferenceCost.
	KeptCost float64
	// DroppedCost holds what keeping the dropped ones would cost, in $/h; NaN if it is not known.
	DroppedCost float64
	// OwnPrice is the sum of the own prices of the pods that keep it, each divided by the number of preferences that the
	// pod keeps, in $/h. KeptCost is at most its share that snapshot.Settings.PreferenceCost allows.
	OwnPrice float64

	// Respected is true if the plan respects all preferences, whatever they cost.
	Respected bool
}

// Cost is the price of the plan's nodes with their other costs, in $/h.
func (p *Plan) Cost() float64 { return p.Stats.HourlyCost + p.Stats.NodeCost }

// LimitKeptCosts sets what the plan costs more than one without preferences. What the kept preferences were found to cost
// is reduced to it; where nothing was found out, as for a plan that respects all, it is divided by the own prices of the
// pods.
func (p *Plan) LimitKeptCosts(premium float64) {
	p.Stats.PreferenceCost = premium
	found, own := 0.0, 0.0
	for i := range p.Preferences {
		found += p.Preferences[i].KeptCost
		own += p.Preferences[i].OwnPrice
	}
	for i := range p.Preferences {
		switch c := &p.Preferences[i]; {
		case found > premium:
			c.KeptCost *= premium / found
		case c.Respected && own > 0:
			c.KeptCost = premium * c.OwnPrice / own
		}
	}
}
