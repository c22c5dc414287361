// Package savings measures by NodePool what its pods cannot cost less than, and what finished disruption commands have saved.
//
// Savings are kept in memory by the process. One that starts anew begins at 0, and forgets commands that have removed a part of their
// nodes before; a recording in a file keeps the savings of each decision.
package savings

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/savings"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Prices are those of the last Snapshot. They are safe for concurrent use; the zero value knows none.
type Prices struct {
	last atomic.Pointer[func() *catalog.Index]
}

// Saw notes the pools of a Snapshot, none of which is changed later. If none may launch anything, the last prices stay. The prices are
// read when one is needed.
func (p *Prices) Saw(pools []cluster.Pool) {
	if !slices.ContainsFunc(pools, func(pool cluster.Pool) bool { return len(pool.InstanceTypes) > 0 }) {
		return
	}
	read := sync.OnceValue(func() *catalog.Index {
		out, all := catalog.NewIndex(), [][]*catalog.InstanceType{}
		for i := range pools {
			out.Add(pools[i].Name, pools[i].InstanceTypes)
			all = append(all, pools[i].InstanceTypes)
		}
		out.AddOthers(func() [][]*catalog.InstanceType { return all })
		return out
	})
	p.last.Store(&read)
}

// Of is what a node with these labels costs its NodePool, in $/h; what another NodePool pays if its own does not know.
func (p *Prices) Of(labels map[string]string) (hourly float64, known bool) {
	read := p.last.Load()
	if read == nil {
		return 0, false
	}
	of := recorder.NewInstance(labels, 0)
	return (*read)().Price(of.NodePool, catalog.OfferingKey{InstanceType: of.InstanceType, Zone: of.Zone, CapacityType: of.CapacityType})
}

// longestCommand is how long a command may take to remove all of its nodes. Later, it is forgotten: it was rolled back meanwhile.
const longestCommand = 24 * time.Hour

// command is a command that has removed some of its nodes.
type command struct {
	removed map[string]savings.Node // by claim; those without a known price cost 0
	started time.Time
}

// Tracker adds up the savings of commands, from what becomes of NodeClaims. It is safe for concurrent use.
type Tracker struct {
	Prices interface {
		Of(labels map[string]string) (hourly float64, known bool)
	}
	Now func() time.Time
	// Since is when the process began: nodes that were launched before reduce no savings.
	Since time.Time

	mu       sync.Mutex
	ledger   savings.Ledger
	commands map[string]*command
	// launched are the nodes that EC2 launched, while their claims exist.
	launched map[types.UID]savings.Node
	// replacements are those of them by the names of claims that a command has launched in place of others.
	replacements map[string]savings.Node
}

// Pools are the savings by NodePool.
func (t *Tracker) Pools() []savings.PoolAmount {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ledger.Pools(t.Now())
}

// Observe notes a claim that is new or has changed.
func (t *Tracker) Observe(claim *karpv1.NodeClaim) {
	got, found := condition.Get(claim, karpv1.ConditionLaunched)
	if !found || !condition.IsTrue(claim, karpv1.ConditionLaunched) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.launched[claim.UID]; known {
		return
	}
	price, known := t.Prices.Of(claim.Labels)
	if !known {
		return // the next change of the claim tries again
	}
	if t.launched == nil {
		t.launched, t.replacements = map[types.UID]savings.Node{}, map[string]savings.Node{}
	}
	n := savings.Node{NodePool: claim.Labels[karpv1.LabelNodePool], HourlyCost: price, At: got.LastTransitionTime.Time}
	t.launched[claim.UID] = n
	if len(claim.Replaces()) > 0 {
		t.replacements[claim.Name] = n
		return
	}
	if !n.At.Before(t.Since.Truncate(time.Second)) {
		t.ledger.Launch(n)
		t.ledger.Compact()
	}
}

// Gone notes a claim that no longer exists.
func (t *Tracker) Gone(claim *karpv1.NodeClaim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	price, known := t.Prices.Of(claim.Labels)
	if !known {
		price = t.launched[claim.UID].HourlyCost
	}
	delete(t.launched, claim.UID)
	record, has, err := claim.DisruptionCommand()
	if !has || err != nil {
		delete(t.replacements, claim.Name)
		return
	}
	c := t.commandOf(&record)
	c.removed[claim.Name] = savings.Node{NodePool: claim.Labels[karpv1.LabelNodePool], HourlyCost: price, At: t.Now()}
	t.finish(&record, c)
	delete(t.replacements, claim.Name)
}

// commandOf is what is known of a command.
func (t *Tracker) commandOf(record *karpv1.DisruptionCommand) *command {
	if t.commands == nil {
		t.commands = map[string]*command{}
	}
	for id, c := range t.commands {
		if t.Now().Sub(c.started) > longestCommand {
			delete(t.commands, id)
		}
	}
	c := t.commands[record.ID]
	if c == nil {
		c = &command{removed: map[string]savings.Node{}, started: t.Now()}
		t.commands[record.ID] = c
	}
	return c
}

// finish adds a command that has removed all of its nodes, if it counts.
func (t *Tracker) finish(record *karpv1.DisruptionCommand, c *command) {
	var removed, replacements []savings.Node
	for _, name := range record.Candidates {
		n, gone := c.removed[name]
		if !gone {
			return
		}
		removed = append(removed, n)
	}
	delete(t.commands, record.ID)
	for _, name := range record.Replacements {
		n, launched := t.replacements[name]
		if !launched {
			return
		}
		delete(t.replacements, name)
		replacements = append(replacements, n)
	}
	if finished, counts := savings.Finished(record.ID, removed, replacements); counts {
		t.ledger.Finish(finished)
		t.ledger.Compact()
	}
}
