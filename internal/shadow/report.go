// Package shadow computes, beside a controller that acts, what Dovetail would have done: which nodes it would have launched and
// removed, and what that would cost. It writes nothing but its own report.
//
// Each pass takes the Snapshot that provisioning and disruption take, and turns it into the world as it would be if Dovetail acted:
// with the nodes that it would have launched for pods that still wait, and without those that it would have removed. So a decision
// that nobody carries out is made once, and the next one takes it into account. Once pods run on a node that the acting controller
// launched for them, that node replaces Dovetail's.
package shadow

import (
	"encoding/json"
	"time"
)

// Report compares the two controllers since the shadow began.
type Report struct {
	Since time.Time `json:"since"`
	// At is the time of the last pass.
	At     time.Time `json:"at"`
	Passes int       `json:"passes"`
	// Format is that of the fields: 1 had other names.
	Format int `json:"format"`
	// Version of the program.
	Version string `json:"version"`
	// Shadow holds what Dovetail would have done, Acting what the acting controller did.
	Shadow Totals `json:"shadow"`
	Acting Totals `json:"acting"`
	// RemovedByBoth counts how many nodes both have removed.
	RemovedByBoth int `json:"removedByBoth"`
	// Unschedulable counts how many pending pods no node fits, existing or new, in the last pass.
	Unschedulable int `json:"unschedulable"`
	// RefusedWrites counts how many writes of this process were refused. Any is a bug in Dovetail.
	RefusedWrites int `json:"refusedWrites"`
	// Decisions are the latest of Dovetail, Actions those of the acting controller; oldest first.
	Decisions []Action `json:"decisions"`
	Actions   []Action `json:"actions"`
}

// Totals are sums since the shadow began, and the fleet at the last pass.
type Totals struct {
	Launches int `json:"launches"`
	// LaunchedHourlyCost holds what the launched nodes cost, in $/h.
	LaunchedHourlyCost float64 `json:"launchedHourlyCost"`
	Removed            int     `json:"removed"`
	// RemovedHourlyCost holds what the removed nodes cost, in $/h.
	RemovedHourlyCost float64 `json:"removedHourlyCost"`
	// Evictions are the pods that had to move from removed nodes.
	Evictions int `json:"evictions"`
	// Nodes and HourlyCost, in $/h, are the nodes of NodePools now.
	Nodes      int     `json:"nodes"`
	HourlyCost float64 `json:"hourlyCost"`
	// TotalCost holds what they have cost since the shadow began, in $.
	TotalCost float64 `json:"totalCost"`
}

// Action is one decision, or what was seen of one.
type Action struct {
	At time.Time `json:"at"`
	// What is launch, remove or replace.
	What string `json:"what"`
	// Reason is "pending pods", or the reason of the disruption as far as it is known.
	Reason string `json:"reason"`
	// Nodes are removed, Launches are new.
	Nodes    []string `json:"nodes"`
	Launches []Launch `json:"launches"`
	// More and MoreLaunches are how many of them are left out.
	More         int `json:"more,omitempty"`
	MoreLaunches int `json:"moreLaunches,omitempty"`
	// Pods counts how many pods get a node, or have to move.
	Pods int `json:"pods"`
	// HourlySavings holds what the fleet costs less by it, in $/h; negative if it costs more.
	HourlySavings float64 `json:"hourlySavings"`
}

// Launch is a launched node.
type Launch struct {
	NodePool     string  `json:"nodePool"`
	InstanceType string  `json:"instanceType"`
	CapacityType string  `json:"capacityType"`
	Zone         string  `json:"zone"`
	HourlyCost   float64 `json:"hourlyCost"`
}

// reportFormat is the Format of the reports of this program.
const reportFormat = 2

// The values of Action.What.
const (
	ActionLaunch  = "launch"
	ActionRemove  = "remove"
	ActionReplace = "replace"
)

// reasonPending is the reason of launches for pods.
const reasonPending = "pending pods"

const (
	// maxActions limits how many actions a report keeps of each controller: of one or two nodes each, they take some 100 KB.
	maxActions = 200
	// maxNodes limits how many nodes and launches of an action are listed.
	maxNodes = 50
	// maxReportBytes leaves room for the state in the 1 MiB of a ConfigMap.
	maxReportBytes = 300 << 10
)

// keep adds an action to the latest ones.
func keep(all []Action, a Action) []Action {
	a.More = max(0, len(a.Nodes)-maxNodes)
	a.MoreLaunches = max(0, len(a.Launches)-maxNodes)
	a.Nodes, a.Launches = a.Nodes[:len(a.Nodes)-a.More], a.Launches[:len(a.Launches)-a.MoreLaunches]
	all = append(all, a)
	return all[max(0, len(all)-maxActions):]
}

// encoded is the report as JSON, without the oldest actions if it is too large with them.
func (r Report) encoded(limit int) ([]byte, error) {
	for {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil || len(text) <= limit || len(r.Decisions)+len(r.Actions) == 0 {
			return text, err
		}
		r.Decisions, r.Actions = r.Decisions[(len(r.Decisions)+1)/2:], r.Actions[(len(r.Actions)+1)/2:]
	}
}
