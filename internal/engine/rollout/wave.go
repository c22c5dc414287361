package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxWave bounds the numbers: no fleet has 2^31 nodes.
const maxWave = 31

// State is a roll-out that is under way in a NodePool. It is kept on the NodePool.
type State struct {
	Started metav1.Time `json:"started"`
	// Images are those that are rolled out, sorted.
	Images []string `json:"images,omitempty"`
	// Canaries is how many nodes the first wave replaces: so many per zone that had drifted nodes when the roll-out began.
	Canaries int `json:"canaries"`
	// Nodes is how many nodes of the pool were to be replaced at the most.
	Nodes int `json:"nodes"`
	// Survived is how many new nodes have survived their soak at the most: those that are gone since count, too.
	Survived int `json:"survived,omitempty"`
	// Soak is how long a new node must stay healthy.
	Soak metav1.Duration `json:"soak"`
}

// Wave is a step of a roll-out.
type Wave struct {
	// Number is from 1 to Of.
	Number, Of int
	// Until counts the nodes that are replaced once the wave is done, all waves before it included.
	Until int
}

// until is how many nodes are replaced after a number of waves: each is twice as large as the one before.
func (s State) until(wave int) int { return max(s.Canaries, 1) * (1<<min(wave, maxWave) - 1) }

// Wave is the one under way: the first of which not all nodes have survived.
func (s State) Wave() Wave {
	out := Wave{Number: 1, Of: 1}
	for out.Number < maxWave && s.until(out.Number) <= s.Survived {
		out.Number++
	}
	for out.Of < maxWave && s.until(out.Of) < s.Nodes {
		out.Of++
	}
	out.Of = max(out.Of, out.Number)
	out.Until = min(s.until(out.Number), max(s.Nodes, s.Survived+1))
	return out
}

// Count is what became of the nodes that a roll-out has launched in place of others.
type Count struct {
	// Survived have been healthy for a soak, Soaking not for long enough. Failed are there and have failed.
	Survived, Soaking, Failed int
	// Unseen were started and do not show yet.
	Unseen int
}

// Room returns how many more nodes may be replaced now.
func (s State) Room(c Count) int {
	s.Survived = max(s.Survived, c.Survived)
	return max(s.until(s.Wave().Number)-s.Survived-c.Soaking-c.Failed-c.Unseen, 0)
}

// Fleet is what a roll-out begins with.
type Fleet struct {
	// Images are those that the pool launches.
	Images []string
	// OldZones has the zone of each node that is to be replaced.
	OldZones []string
	// PerZone is how many nodes the first wave replaces per zone, Soak how long a new node must stay healthy.
	PerZone int
	Soak    time.Duration
}

// Next is the roll-out after the fleet was looked at: nil if no node is to be replaced, a new one if there was none or other images are
// rolled out, else the one before with what has changed. before may be nil, and is not changed.
func Next(before *State, f Fleet, survived int, now time.Time) *State {
	if len(f.OldZones) == 0 {
		return nil
	}
	images := slices.Sorted(slices.Values(f.Images))
	out := State{Started: metav1.NewTime(now.UTC()).Rfc3339Copy(), Images: images}
	if before != nil && slices.Equal(before.Images, images) {
		out = *before
		out.Survived = max(out.Survived, survived)
	}
	zones := slices.Compact(slices.Sorted(slices.Values(f.OldZones)))
	out.Canaries = max(out.Canaries, f.PerZone*len(zones))
	out.Nodes = max(out.Nodes, len(f.OldZones)+out.Survived)
	out.Soak.Duration = f.Soak
	return &out
}
