package refusal

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// gangNodes describes what is there of the nodes of a gang.
type gangNodes struct {
	name string
	// came counts how many of its pods without a node have one that was launched for them and has come up, and need how many it needs at
	// least.
	came, need int
	// coming is true while nodes for some of its pods are in flight.
	coming bool
}

// short reports whether too few nodes have come up, since EC2 had no capacity for another, for example.
func (g *gangNodes) short() bool { return g != nil && g.came < g.need }

func (g *gangNodes) message() string {
	return fmt.Sprintf("kube-scheduler binds pods of PodGroup %s together, nodes for %d of them have come up, and it needs %d", g.name, g.came, g.need)
}

// gangOf returns what is there for the pod's gang; nil if it is in none.
//
// Cost: linear in the nodes and in what they were launched for, once per gang.
func (x *Search) gangOf(pod *corev1.Pod) *gangNodes {
	if len(x.PodGroups) == 0 {
		return nil
	}
	if x.groups == nil {
		groups := snapshot.ReadGroups(x.Snapshot)
		x.groups, x.gangs = &groups, map[*snapshot.Group]*gangNodes{}
	}
	g := x.groups.Of(pod)
	if g == nil || !g.Gang {
		return nil
	}
	if x.gangs[g] == nil {
		x.gangs[g] = x.nodesOf(g)
	}
	return x.gangs[g]
}

func (x *Search) nodesOf(g *snapshot.Group) *gangNodes {
	up, coming := map[string]bool{}, map[string]bool{}
	for i := range x.Nodes {
		at := up
		if n := &x.Nodes[i]; !n.Initialized {
			at = coming
		}
		for uid := range split(x.Nodes[i].LaunchedFor) {
			if !slices.Contains(x.Nodes[i].TakenFrom, types.UID(uid)) { // others came first: its node is missing again
				at[uid] = true
			}
		}
	}
	out := &gangNodes{name: g.Name, need: g.Need(0)}
	for _, pod := range x.Waiting() {
		if x.groups.Of(pod) != g || g.Has(pod) {
			continue
		}
		if up[string(pod.UID)] {
			out.came++
		}
		out.coming = out.coming || coming[string(pod.UID)]
	}
	return out
}

// decideShort decides for a node of a gang that is short. Nothing is wrong with the node. But without an end, the next nodes would come as
// soon as EC2 may have capacity again, and go empty as well.
func (x *Search) decideShort(n *snapshot.Node, g *gangNodes) Outcome {
	switch {
	case g.coming || n.SettledAt.IsZero() || x.Now.Before(n.SettledAt):
		return Undecided
	case n.Emptied || n.Deleting || n.Disrupting || !x.Now.Before(n.SettledAt.Add(ReportDelay)):
		return Refused
	}
	return Undecided
}
